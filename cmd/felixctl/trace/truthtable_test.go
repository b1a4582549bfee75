package trace

import (
	"testing"

	"github.com/felixlike/felixlike/felixlike/policy/oracle"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/truthtable"
)

// TestTruthTables follows every probe of the truth tables through the desired state of
// each backend on every node. The tracer's verdict is the table's.
func TestTruthTables(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	for _, name := range []string{"sample", "hosts", "tiers", "antrea"} {
		for _, step := range readSteps(t, "../../../test/truthtable/testdata/"+name+".jsonl") {
			for _, backend := range backends() {
				for _, family := range model.Families() {
					t.Run(step.String()+"/"+backend+"/IPv"+family.String(), func(t *testing.T) {
						o := step.Objects(family)
						cluster := oracle.Cluster{Nodes: o.Nodes, Namespaces: o.Namespaces, Pods: o.Pods, Policies: o.Policies, ClusterPolicies: o.ClusterPolicies, Antrea: o.Antrea}
						c := &cluster
						compare(t, &step, sitesOf(t, c, backend), family)
					})
				}
			}
		}
	}
}

func readSteps(t testing.TB, path string) []truthtable.Step {
	t.Helper()
	steps, err := truthtable.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return steps
}

func packetOf(t testing.TB, s *truthtable.Step, probe truthtable.Probe, f model.Family) Packet {
	t.Helper()
	p := Packet{Port: probe.Port}
	var err error
	if p.Protocol, err = model.ParseProtocol(probe.Protocol); err != nil {
		t.Fatal(err)
	}
	if p.Source, err = s.Address(probe.From, f); err != nil {
		t.Fatal(err)
	}
	if p.Destination, err = s.Address(probe.To, f); err != nil {
		t.Fatal(err)
	}
	return p
}

func compare(t *testing.T, step *truthtable.Step, sites []*Site, f model.Family) {
	wrong := 0
	for _, probe := range step.Probes {
		p := packetOf(t, step, probe, f)
		path, err := Follow(p, sites, nil)
		if err != nil {
			t.Errorf("%s -> %s (%s): %v", probe.From, probe.To, p, err)
			wrong++
		} else if path.Fate.Through() != *probe.Expect {
			t.Errorf("%s -> %s (%s): %s at %s, want through %v\n%s", probe.From, probe.To, p, path.Fate, path.At, *probe.Expect, stepsText(path))
			wrong++
		}
		if wrong > 3 {
			t.FailNow()
		}
	}
}

func stepsText(p *Path) string {
	var text string
	for _, s := range p.Steps {
		text += "  " + s.Node + " | " + s.Place + " | " + s.Table + " | " + s.Rule + " | " + s.Effect + "\n"
	}
	return text
}
