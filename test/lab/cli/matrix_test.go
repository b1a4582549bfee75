package cli

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/lab"
)

const twoPods = `
kind: Pod
metadata: {namespace: x, name: a}
spec: {nodeName: n, containers: [{name: c, ports: [{containerPort: 80}, {containerPort: 53, protocol: UDP}]}]}
status: {podIP: 10.0.0.10, podIPs: [{ip: 10.0.0.10}]}
---
kind: Pod
metadata: {namespace: x, name: b}
spec: {nodeName: n, containers: [{name: c, ports: [{containerPort: 80}]}]}
status: {podIP: 10.0.0.11, podIPs: [{ip: 10.0.0.11}]}
---
kind: Namespace
metadata: {name: x}
---
kind: NetworkPolicy
metadata: {namespace: x, name: deny-a}
spec: {podSelector: {}, policyTypes: [Ingress], ingress: [{from: [{podSelector: {}}]}]}
`

func testMatrix(t *testing.T) *Matrix {
	t.Helper()
	s, err := lab.Parse("test", []byte(twoPods))
	if err != nil {
		t.Fatal(err)
	}
	m, err := NewMatrix(&s, []string{"ip:192.0.2.1"}, nil, model.IPv4)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestMatrixPrint(t *testing.T) {
	m := testMatrix(t)
	results := make([]lab.Result, 0, len(m.Cells))
	for _, c := range m.Cells {
		if !c.Skipped {
			results = append(results, lab.Result{Probe: c.Probe, Tried: true, Through: c.Expected})
		}
	}
	results[0].Through = false                  // x/a -> x/a tcp/80
	results[1] = lab.Result{Reason: "not sent"} // x/a -> x/a udp/53
	results[12].Through = true                  // outside -> x/a tcp/80
	m.Fill(results)
	var out bytes.Buffer
	if err := m.Print(&out); err != nil {
		t.Fatal(err)
	}
	want := strings.TrimLeft(`
IPv4; a cell shows tcp/80 udp/53
              x/a  x/b  ip:192.0.2.1
x/a           x?   +.   ++
x/b           ++   +.   ++
ip:192.0.2.1  !-   -.
`, "\n")
	got, _, _ := strings.Cut(out.String(), "+ through")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if n := len(m.Wrong()); n != 3 {
		t.Errorf("%d wrong cells, want 3", n)
	}
	if through, probed := m.Counts(); probed != 16 || through != 9 {
		t.Errorf("%d of %d through", through, probed)
	}
}

func TestParsePort(t *testing.T) {
	if p, err := ParsePort("udp/53"); err != nil || p.String() != "udp/53" {
		t.Errorf("udp/53: %v, %v", p, err)
	}
	if p, err := ParsePort("53/udp"); err != nil || p.String() != "udp/53" {
		t.Errorf("53/udp: %v, %v", p, err)
	}
	for _, text := range []string{"", "80", "80/", "0/tcp", "80/80", "80x/tcp", "tcp", "tcp/", "tcp/0", "tcp/x", "tcp/80x", "icmp/1", "tcp/70000"} {
		if p, err := ParsePort(text); err == nil {
			t.Errorf("%q was read as %s", text, p)
		}
	}
}
