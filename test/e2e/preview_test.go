package e2e

import (
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/cmd/felixctl/preview"
	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/lab"
)

// onlyFromB takes the place of onlyFromC.
const onlyFromB = `
{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {namespace: x, name: only-from-c}, spec: {podSelector: {matchLabels: {pod: a}},
  ingress: [{from: [{podSelector: {matchLabels: {pod: b}}}], ports: [{port: 80}]}, {from: [{podSelector: {matchLabels: {pod: d}}}], ports: [{port: 81}]}]}}
`

// TestCountersAndPreview opens connections under every backend. `felixctl policies`
// counts them, and nothing else. `felixctl preview` of another policy names the connections
// that could not begin again, and the new ones that could; the policy then proves it.
func TestCountersAndPreview(t *testing.T) {
	t.Parallel()
	inEachBackend(t, func(t *testing.T, l *lab.Lab, backend string) {
		set(t, l, state(t, threeNodes, onlyFromC))
		socket := l.Node("node1").ControlSocket()
		if never := counted(t, socket); never.Connections != 0 || never.Rule != "ingress[0]" {
			t.Errorf("before the first packet: %+v", never)
		}
		var conns []net.Conn
		for _, f := range model.Families() {
			for range 2 {
				conns = append(conns, dial(t, l, "c", "a", f))
			}
		}
		for _, conn := range conns {
			talk(t, conn, "while they are counted")
		}
		expect(t, l, false, "x/b", "x/a", model.TCP, 80)
		hits := counted(t, socket)
		if hits.Connections != uint64(len(conns)) || hits.Last.IsZero() {
			t.Errorf("%d connections began and one was denied: counted %+v", len(conns), hits)
		}
		if all := hits.Packets; (all != nil) != (backend == config.OpenFlow) || all != nil && *all < 4*uint64(len(conns)) {
			t.Errorf("packets: %+v", hits)
		}
		previewed(t, socket, conns)
		for _, command := range []string{"status", "policies", "drops"} {
			if out, errs, code := felixctl(t, command, "--socket", socket, "-n", "nosuch"); code != 2 || !strings.Contains(errs, "no such namespace") {
				t.Errorf("felixctl %s -n nosuch: exit code %d\n%s%s", command, code, out, errs)
			}
		}
		for from, want := range map[string]int{"x/b": 0, "x/c": 1} {
			if out, errs, code := felixctl(t, "reach", "--socket", socket, "--from", from, "--to", "x/a", "--port", "80/tcp", "--deny"); code != want {
				t.Errorf("felixctl reach --deny from %s: exit code %d, want %d\n%s%s", from, code, want, out, errs)
			}
		}
		set(t, l, state(t, threeNodes, onlyFromB))
		expect(t, l, true, "x/b", "x/a", model.TCP, 80)
		expect(t, l, false, "x/c", "x/a", model.TCP, 80)
		expect(t, l, true, "x/d", "x/a", model.TCP, 81)
		for _, conn := range conns {
			talk(t, conn, "under a policy that would not let it begin")
		}
	})
}

// counted asks for the counters of node1's only rule.
func counted(t *testing.T, socket string) control.RuleHits {
	t.Helper()
	out, errs, code := felixctl(t, "policies", "--socket", socket, "-o", "json")
	var hits control.Hits
	if err := json.Unmarshal([]byte(out), &hits); err != nil || code != 0 || len(hits.Rules) != 1 || hits.Rules[0].Policy != "networkpolicy/x/only-from-c" {
		t.Fatalf("felixctl policies: exit code %d, %v\n%s%s", code, err, out, errs)
	}
	return hits.Rules[0]
}

// previewed returns the preview of onlyFromB while x/c has connections to x/a.
func previewed(t *testing.T, socket string, conns []net.Conn) {
	t.Helper()
	out, errs, code := felixctl(t, "preview", "--socket", socket, "-o", "json", "-f", file(t, onlyFromB))
	var p preview.Preview
	if err := json.Unmarshal([]byte(out), &p); err != nil || code != 1 {
		t.Fatalf("felixctl preview: exit code %d, %v\n%s%s", code, err, out, errs)
	}
	var verdicts []string
	for _, d := range p.Verdicts {
		verdicts = append(verdicts, fmt.Sprintln(d.From, d.To, d.Ports, d.Families, d.Becomes))
	}
	if got, want := strings.Join(verdicts, ""), "[x/b] [x/a] [tcp/80] [IPv4 IPv6] allowed\n[x/c] [x/a] [tcp/80] [IPv4 IPv6] denied\n[x/d] [x/a] [tcp/81] [IPv4 IPv6] allowed\n"; got != want {
		t.Errorf("verdicts that change:\n%s\nwant\n%s", got, want)
	}
	ports := map[string]bool{}
	for _, o := range p.Outlived {
		if o.From != "x/c" || o.To != "x/a" || o.Port != 80 {
			t.Errorf("outlived: %+v", o)
		}
		ports[fmt.Sprint(o.Source, o.SourcePort)] = true
	}
	for _, conn := range conns {
		at := conn.LocalAddr().(*net.TCPAddr).AddrPort()
		if !ports[fmt.Sprint(at.Addr(), at.Port())] {
			t.Errorf("the connection from %s is not named among those that could not begin again: %+v", at, p.Outlived)
		}
	}
	if !p.Looked || len(p.Programmed) == 0 {
		t.Errorf("%+v", p)
	}
}
