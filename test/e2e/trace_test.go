package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/cmd/felixctl/labs"
	"github.com/felixlike/felixlike/cmd/felixctl/trace"
	"github.com/felixlike/felixlike/cmd/felixctl/trace/cluster"
	"github.com/felixlike/felixlike/cmd/felixctl/trace/live"
	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/eventually"
	"github.com/felixlike/felixlike/test/lab"
	"github.com/felixlike/felixlike/test/lab/verify"
	"github.com/felixlike/felixlike/test/truthtable"
)

// readLab reads the state of the nodes of a lab.
func readLab(t *testing.T, l *lab.Lab) *cluster.World {
	t.Helper()
	var nodes []*cluster.Node
	for _, n := range l.Status(t.Context()).Nodes {
		nodes = append(nodes, &cluster.Node{Agent: control.NewClient(n.ControlSocket)})
	}
	w, err := cluster.Read(t.Context(), nodes, nil)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// traceProbes traces every probe of a step: the policies, the programmed state and the
// real packet must agree.
func traceProbes(t *testing.T, l *lab.Lab, s *truthtable.Step, family model.Family, o verify.Outcome) {
	t.Helper()
	w := readLab(t, l)
	for i, probe := range s.Probes {
		p := trace.Packet{Port: probe.Port}
		var err error
		if p.Protocol, err = model.ParseProtocol(probe.Protocol); err != nil {
			t.Fatal(err)
		}
		if p.Source, err = s.Address(probe.From, family); err != nil {
			t.Fatal(err)
		}
		if p.Destination, err = s.Address(probe.To, family); err != nil {
			t.Fatal(err)
		}
		judged, err := w.Judge(p)
		if err != nil {
			t.Fatal(err)
		}
		path, err := w.Follow(p)
		switch {
		case err != nil:
			t.Errorf("%s: %s: %v", s.String(), p, err)
		case trace.Compare(judged, path) != "":
			t.Errorf("%s: %s: %s", s.String(), p, trace.Compare(judged, path))
		case o.Got[i] != '-' && (o.Got[i] == '1') != path.Fate.Through():
			t.Errorf("%s: %s: by programmed state %q, the packet's answer %c", s.String(), p, path.Opinion().Why, o.Got[i])
		}
	}
}

const shop = `
{apiVersion: v1, kind: Pod, metadata: {namespace: shop, name: web, labels: {app: web}}, spec: {nodeName: node1, containers: [{name: c, image: i, ports: [{containerPort: 80}]}]}}
---
{apiVersion: v1, kind: Pod, metadata: {namespace: shop, name: api, labels: {app: api}}, spec: {nodeName: node1, containers: [{name: c, image: i, ports: [{containerPort: 8080}]}]}}
---
{apiVersion: v1, kind: Pod, metadata: {namespace: shop, name: db, labels: {app: db}}, spec: {nodeName: node2, containers: [{name: c, image: i, ports: [{containerPort: 5432, name: pg}]}]}}
---
{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {namespace: shop, name: api}, spec: {podSelector: {matchLabels: {app: api}}, ingress: [{from: [{podSelector: {matchLabels: {app: web}}}], ports: [{port: 8080}]}]}}
---
{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {namespace: shop, name: db}, spec: {podSelector: {matchLabels: {app: db}}, ingress: [{from: [{podSelector: {matchLabels: {app: api}}}], ports: [{port: pg}]}]}}
`

// traceAnswer is the part of `felixctl trace -o json` that the test reads.
type traceAnswer struct {
	Verdict, Disagreement string
	Programmed            []struct{ Path trace.Path }
	Live                  *live.Observed
}

// TestTraceCommand asks felixctl trace with real packets, under each backend.
func TestTraceCommand(t *testing.T) {
	t.Parallel()
	needLab(t)
	for _, backend := range backends() {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			name := fmt.Sprintf("tr-%d-%s", os.Getpid(), backend)
			name = name[:min(len(name), 24)]
			ctl := labNamed(t, name)
			t.Cleanup(func() { ctl(0, "down", "--ignore-not-found") })
			ctl(0, "up", "--backend", backend, "-f", file(t, shop))
			for _, c := range []struct {
				from, to, port string
				code           int
				// policy is the one that a step is to name.
				policy string
			}{
				{"shop/web", "shop/api", "8080/tcp", 0, "networkpolicy/shop/api ingress[0]"},
				{"shop/db", "shop/api", "8080/tcp", 1, "networkpolicy/shop/api ingress[0]"},
				{"shop/api", "shop/db", "pg/tcp", 0, "networkpolicy/shop/db ingress[0]"},
				{"shop/web", "shop/db", "pg/tcp", 1, "networkpolicy/shop/db ingress[0]"},
				{"shop/api", "shop/web", "80/udp", 0, ""},
				{"shop/web", "shop/api", "icmp", 1, ""},
				{"shop/web", "shop/api", "8080/sctp", 1, ""},
			} {
				for _, family := range []string{"4", "6"} {
					traced(t, name, c.from, c.to, c.port, family, c.code, c.policy)
				}
			}
			traceRefuses(t, name)
			if backend == config.IPTablesLegacy {
				traceContradicts(t, name)
			}
		})
	}
}

func traced(t *testing.T, name, from, to, port, family string, wantCode int, policy string) {
	t.Helper()
	out, errs, code := felixctl(t, "trace", "--lab", name, "--from", from, "--to", to, "--port", port, "--family", family, "--live", "-o", "json")
	what := fmt.Sprintf("%s -> %s %s IPv%s", from, to, port, family)
	var all []traceAnswer
	if err := json.Unmarshal([]byte(out), &all); err != nil || len(all) != 1 {
		t.Fatalf("%s: %v\n%s%s", what, err, out, errs)
	}
	a := all[0]
	if code != wantCode || (a.Verdict == "allowed") != (wantCode == 0) || a.Disagreement != "" {
		t.Errorf("%s: exit code %d, want %d: %+v", what, code, wantCode, a)
	}
	if !a.Live.Known || a.Live.Through != (wantCode == 0) || len(a.Live.Steps) == 0 {
		t.Errorf("%s: the real packet: %+v", what, a.Live)
	}
	if policy != "" && !strings.Contains(policiesIn(a.Programmed[0].Path.Steps), policy) {
		t.Errorf("%s: no step names %q: %s", what, policy, out)
	}
}

// policiesIn are the rules that steps name, those that decided and those that did
// not match.
func policiesIn(steps []trace.Step) string {
	var all []string
	for _, s := range steps {
		all = append(all, s.Policy+" "+s.PolicyRule)
		for _, m := range s.Missed {
			all = append(all, m.Policy+" "+m.PolicyRule)
		}
	}
	return strings.Join(all, "\n")
}

// traceRefuses: questions that make no sense get an answer that does.
func traceRefuses(t *testing.T, name string) {
	t.Helper()
	for _, c := range [][]string{
		{"--from", "shop/nobody", "--to", "shop/db", "--port", "80/tcp", "knows no such pod"},
		{"--from", "shop/web", "--to", "shop/db", "--port", "80", "want PORT/PROTOCOL"},
		{"--from", "shop/web", "--to", "service:shop/db", "--port", "80/tcp", "--services"},
		{"--from", "192.0.2.7", "--to", "shop/db", "--port", "80/tcp", "--live", "needs a source pod on the node that answers"},
		{"--from", "shop/web", "--to", "shop/db", "--port", "http/tcp", "no tcp port with the name http"},
		{"--lab", "", "--socket", labs.ControlSocket("", name, "node2"), "--from", "shop/web", "--to", "shop/api", "--port", "80/tcp", "shop/web is on node1 and shop/api is on node1: neither is on node2"},
	} {
		args, want := c[:len(c)-1], c[len(c)-1]
		_, errs, code := felixctl(t, append([]string{"trace", "--lab", name}, args...)...)
		if code != 2 || !strings.Contains(errs, want) {
			t.Errorf("%v: exit code %d, %q; want 2 and %q", args, code, errs, want)
		}
	}
}

// traceContradicts: trace reports foreign rules before ours as a contradiction. They are in two
// tables, since the agent's filter drops what its mangle has not judged. The agent
// puts its own rules first again within a quarter of a second, so a trace can be too late.
func traceContradicts(t *testing.T, name string) {
	t.Helper()
	foreign := func(do string) {
		t.Helper()
		for _, table := range []string{"mangle", "filter"} {
			out, err := exec.Command("ip", "netns", "exec", "flx-"+name+"-node1", "iptables-legacy", "-w", "-t", table, do, "FORWARD", "-d", "10.10.0.0/16", "-j", "ACCEPT").CombinedOutput()
			if err != nil {
				t.Fatalf("%s: %v: %s", table, err, out)
			}
		}
	}
	eventually.True(t, "a trace reads the foreign rule before the agent has repaired it", func() bool {
		foreign("-I")
		text, _, code := felixctl(t, "trace", "--lab", name, "--from", "shop/web", "--to", "shop/api", "--port", "81/tcp")
		foreign("-D")
		return code == 3 && strings.Contains(text, "DISAGREEMENT: by the policies the packet is denied")
	})
}
