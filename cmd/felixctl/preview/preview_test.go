package preview

import (
	"net/netip"
	"path/filepath"
	"slices"
	"testing"

	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/policy/oracle"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/truthtable"
)

// TestPredictionComesTrue predicts every step of the truth tables from the policies
// of the step before, and every step from none: for each probe, the verdict of
// before with the differences applied is that of the table.
func TestPredictionComesTrue(t *testing.T) {
	files, err := filepath.Glob("../../../test/truthtable/testdata/*.jsonl")
	if err != nil || len(files) == 0 {
		t.Fatal("no truth tables", err)
	}
	probes, changed := 0, 0
	for _, file := range files {
		steps, err := truthtable.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for i, s := range steps {
			for _, family := range model.Families() {
				var before truthtable.Objects
				if i > 0 && s.Step > 1 {
					before = steps[i-1].Objects(family)
				}
				n, c := predict(t, &s, before, family)
				probes, changed = probes+n, changed+c
			}
		}
	}
	t.Logf("%d probes, of which %d change", probes, changed)
	if changed == 0 {
		t.Error("nothing ever changes")
	}
}

// predict checks the probes of a step that had other policies before.
func predict(t *testing.T, s *truthtable.Step, before truthtable.Objects, f model.Family) (probes, changed int) {
	t.Helper()
	o := s.Objects(f)
	now := control.Objects{Node: o.Nodes[0].Name, Nodes: o.Nodes, Namespaces: o.Namespaces, Pods: o.Pods, Policies: before.Policies, ClusterPolicies: before.ClusterPolicies, Antrea: before.Antrea}
	p, err := Of(t.Context(), now, difference(before, o))
	if err != nil {
		t.Fatalf("%s: %v", s, err)
	}
	cluster := &oracle.Cluster{Nodes: o.Nodes, Namespaces: o.Namespaces, Pods: o.Pods, Policies: before.Policies, ClusterPolicies: before.ClusterPolicies, Antrea: before.Antrea}
	for _, probe := range s.Probes {
		packet := oracle.Packet{Port: probe.Port, Source: address(t, s, probe.From, f), Destination: address(t, s, probe.To, f)}
		if packet.Protocol, err = model.ParseProtocol(probe.Protocol); err != nil {
			t.Fatal(err)
		}
		probes++
		want := cluster.Evaluate(packet).Allowed
		for _, d := range p.Verdicts {
			if d.covers(s, probe, packet, f) {
				changed++
				want = d.Becomes == Allowed
			}
		}
		if probe.Expect != nil && want != *probe.Expect {
			t.Errorf("%s IPv%s: %s -> %s %s: allowed %v is predicted, and comes to be %v", s, f, probe.From, probe.To, packet, want, *probe.Expect)
		}
	}
	return probes, changed
}

// covers reports whether a difference is about a probe.
func (d Difference) covers(s *truthtable.Step, probe truthtable.Probe, p oracle.Packet, f model.Family) bool {
	return probe.From != probe.To && slices.Contains(d.Families, "IPv"+f.String()) && isEnd(d.from, d.From, probe.From, p.Source) && isEnd(d.to, d.To, probe.To, p.Destination) &&
		slices.ContainsFunc(d.ranges, func(r model.PortRange) bool { return r.Protocol == p.Protocol && r.First <= p.Port && p.Port <= r.Last })
}

func isEnd(e *end, names []string, name string, a netip.Addr) bool {
	if !e.addr.IsValid() {
		return slices.Contains(names, name) || e.node != nil && name == "node:"+e.node.Name
	}
	return name[:3] == "ip:" && e.region.Contains(a) && !slices.ContainsFunc(e.inside, func(p netip.Prefix) bool { return p.Contains(a) })
}

// difference is the change from some policies to others.
func difference(before, after truthtable.Objects) Change {
	c := Change{Set: after.Policies, SetCluster: after.ClusterPolicies, SetAntrea: after.Antrea.All()}
	all := func(o truthtable.Objects) []anyPolicy {
		return policiesOf(control.Objects{Policies: o.Policies, ClusterPolicies: o.ClusterPolicies, Antrea: o.Antrea})
	}
	remaining := all(after)
	for _, b := range all(before) {
		if !slices.ContainsFunc(remaining, func(a anyPolicy) bool { return a.name() == b.name() }) {
			c.Delete = append(c.Delete, b.name())
		}
	}
	return c
}

func address(t *testing.T, s *truthtable.Step, name string, f model.Family) netip.Addr {
	t.Helper()
	a, err := s.Address(name, f)
	if err != nil {
		t.Fatal(err)
	}
	return a
}
