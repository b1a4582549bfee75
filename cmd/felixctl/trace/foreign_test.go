package trace

import (
	"testing"

	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/felixlike/policy/oracle"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/truthtable"
)

// TestForeignChain: a chain of another program at FORWARD that drops packets of pods ends the path where they pass the host, and only there.
func TestForeignChain(t *testing.T) {
	step := readSteps(t, "../../../test/truthtable/testdata/hosts.jsonl")[0]
	for _, backend := range backends() {
		for _, family := range model.Families() {
			o := step.Objects(family)
			c := &oracle.Cluster{Nodes: o.Nodes, Namespaces: o.Namespaces, Pods: o.Pods}
			asked := false
			sites := sitesOf(t, c, backend)
			for _, s := range sites {
				s.Foreign = func(p Forwarded) ([]ForeignChain, error) {
					asked = true
					if p.In != model.GatewayPort || !p.New {
						t.Errorf("%s: %+v", backend, p)
					}
					return []ForeignChain{{"table inet wall", "passing"}}, nil
				}
			}
			p := packetOf(t, &step, truthtable.Probe{From: "x/a", To: "x/b", Protocol: "TCP", Port: 80}, family)
			path, err := Follow(p, sites, nil)
			if err != nil {
				t.Fatal(err)
			}
			if backend == config.OpenFlow { // the bridge delivers it
				if asked || path.ByForeign() || path.Fate != ToPod {
					t.Errorf("%s: %s\n%s", backend, path.Fate, stepsText(path))
				}
				continue
			}
			const why = "dropped at node1 by chain passing of table inet wall of another program"
			if got := path.Opinion(); !path.ByForeign() || got.Through || got.Why != why {
				t.Errorf("%s: %+v\n%s", backend, got, stepsText(path))
			}
		}
	}
}
