package trace

import (
	"strings"
	"testing"

	"github.com/felixlike/felixlike/felixlike/policy/oracle"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/truthtable"
)

// TestTunnelEnds: the evaluator and the desired state of each backend agree about
// packets of pods to the tunnel's ports, and give the reason for the drop.
func TestTunnelEnds(t *testing.T) {
	step := readSteps(t, "../../../test/truthtable/testdata/hosts.jsonl")[0]
	for _, backend := range backends() {
		for _, family := range model.Families() {
			o := step.Objects(family)
			c := &oracle.Cluster{Nodes: o.Nodes, Namespaces: o.Namespaces, Pods: o.Pods}
			sites := sitesOf(t, c, backend)
			dropped := 0
			for _, port := range append(model.TunnelPorts(), 6082) {
				for _, to := range []string{"node:node1", "node:node2", "x/b"} {
					p := packetOf(t, &step, truthtable.Probe{From: "x/a", To: to, Protocol: "UDP", Port: port}, family)
					judged, err := Judge(p, c, nil)
					if err != nil {
						t.Fatal(err)
					}
					path, err := Follow(p, sites, nil)
					if err != nil {
						t.Fatal(err)
					}
					if what := Compare(judged, path); what != "" {
						t.Errorf("%s: %s: %s\n%s", backend, p, what, stepsText(path))
					}
					if path.Fate != Dropped {
						continue
					}
					dropped++
					for _, why := range []string{judged.Why, path.Opinion().Why} {
						if !strings.Contains(why, string(oracle.TunnelEnd)) {
							t.Errorf("%s: %s: the reason is %q", backend, p, why)
						}
					}
				}
			}
			if dropped != 4 {
				t.Errorf("%s, IPv%s: %d packets are dropped, want those to two ports of two nodes", backend, family, dropped)
			}
		}
	}
}
