package cli

import (
	"bytes"
	"fmt"
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

// TestMatrixByClass: pods that no policy distinguishes share a row of 80 columns. A difference between them and a wrong cell are shown.
func TestMatrixByClass(t *testing.T) {
	var text strings.Builder
	for i := range 60 {
		app := []string{"web", "api", "db"}[i%3]
		fmt.Fprintf(&text, "kind: Pod\nmetadata: {namespace: shop, name: %s-%02d, labels: {app: %s}}\n"+
			"spec: {nodeName: n, containers: [{name: c, ports: [{containerPort: 80}]}]}\nstatus: {podIP: 10.0.0.%d, podIPs: [{ip: 10.0.0.%d}]}\n---\n", app, i/3, app, 10+i, 10+i)
	}
	text.WriteString("kind: NetworkPolicy\nmetadata: {namespace: shop, name: db}\n" +
		"spec: {podSelector: {matchLabels: {app: db}}, ingress: [{from: [{podSelector: {matchLabels: {app: api}}}]}]}\n")
	s, err := lab.Parse("test", []byte(text.String()))
	if err != nil {
		t.Fatal(err)
	}
	m, err := NewMatrix(&s, []string{"ip:192.0.2.1"}, []Port{{model.TCP, 80}}, model.IPv4)
	if err != nil {
		t.Fatal(err)
	}
	for i := range m.Cells {
		c := &m.Cells[i]
		c.Tried, c.Through = true, c.Expected
		switch {
		case c.Probe.From == "shop/web-03" && c.Probe.To == "shop/db-07":
			c.Through = true // denied
		case c.Probe.From == "shop/web-04" && c.Probe.To == "shop/db-08":
			c.Tried = false // does not hide the one before
		case c.Probe.From == "shop/web-05" && c.Probe.To == "shop/db-08":
			c.Expected, c.Through = true, false
		case c.Probe.From == "shop/api-01" && c.Probe.To == "shop/web-02":
			c.Expected, c.Through = false, false
		}
	}
	var out bytes.Buffer
	if err := m.PrintClasses(&out, classesOf(&s)); err != nil {
		t.Fatal(err)
	}
	const want = `                            1 2 3 4
  1 shop/api-00 (+19 alike) + + ~ +
  2 shop/db-00 (+19 alike)  + - + +
  3 shop/web-00 (+19 alike) + ! + +
  4 ip:192.0.2.1            + - +
`
	_, got, _ := strings.Cut(out.String(), "\n")
	if got, _, _ = strings.Cut(got, "+ through"); got != want {
		t.Errorf("(-want +got):\n%s", cmp.Diff(want, got))
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
