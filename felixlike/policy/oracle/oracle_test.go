package oracle_test

import (
	"net/netip"
	"path/filepath"
	"testing"

	"github.com/felixlike/felixlike/felixlike/policy/oracle"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/truthtable"
)

// TestTruthTables compares the oracle with every probe of the truth tables,
// in both address families.
func TestTruthTables(t *testing.T) {
	for _, s := range tables(t, "../../../test/truthtable/testdata/*.jsonl") {
		for _, family := range model.Families() {
			t.Run(s.String()+"/IPv"+family.String(), func(t *testing.T) { compare(t, s, family) })
		}
	}
}

// tables reads the truth tables of all files that match the pattern.
func tables(t *testing.T, pattern string) []truthtable.Step {
	t.Helper()
	names, err := filepath.Glob(pattern)
	if err != nil || len(names) == 0 {
		t.Fatalf("no truth tables: %v", err)
	}
	var all []truthtable.Step
	for _, name := range names {
		steps, err := truthtable.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, steps...)
	}
	return all
}

func compare(t *testing.T, s truthtable.Step, family model.Family) {
	o := s.Objects(family)
	cluster := oracle.Cluster{Nodes: o.Nodes, Namespaces: o.Namespaces, Pods: o.Pods, Policies: o.Policies, ClusterPolicies: o.ClusterPolicies, Antrea: o.Antrea}
	c := &cluster
	for _, probe := range s.Probes {
		p := oracle.Packet{Port: probe.Port, Source: address(t, s, probe.From, family), Destination: address(t, s, probe.To, family)}
		var err error
		if p.Protocol, err = model.ParseProtocol(probe.Protocol); err != nil {
			t.Fatal(err)
		}
		if probe.Expect == nil {
			t.Fatalf("%+v expects nothing", probe)
		}
		if v := c.Evaluate(p); v.Allowed != *probe.Expect {
			t.Errorf("%s -> %s (%s): %+v, want allowed %v", probe.From, probe.To, p, v, *probe.Expect)
		}
	}
}

func address(t *testing.T, s truthtable.Step, end string, family model.Family) netip.Addr {
	t.Helper()
	a, err := s.Address(end, family)
	if err != nil {
		t.Fatal(err)
	}
	return a
}
