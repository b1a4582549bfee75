package prove

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/cmd/felixctl/dump"
	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/flowtext"
	"github.com/felixlike/felixlike/tables"
)

// TestRefusals has states that the proof does not understand: none is equal, and the object is named.
func TestRefusals(t *testing.T) {
	flow := func(text string) *flowtext.Flow {
		f, err := flowtext.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	chain := func(s *dump.State, name string) *dump.Chain {
		for _, table := range s.Tables {
			if c := table.Chain(name); c != nil {
				return c
			}
		}
		t.Fatal("no chain ", name)
		return nil
	}
	for name, one := range map[string]struct {
		backend string
		change  func(m *control.Model, s *dump.State)
		want    string
	}{
		"rule": {config.NFTables, func(_ *control.Model, s *dump.State) {
			c := chain(s, "forward")
			c.Rules = append([]dump.Rule{{Foreign: "ip ttl 3 drop"}}, c.Rules...)
		}, "chain forward rule 1: felixlike does not write such a rule: ip ttl 3 drop"},
		"hook": {config.NFTables, func(_ *control.Model, s *dump.State) {
			chain(s, "forward").Hook.Point = "ingress"
		}, "chain forward: the hook ingress"},
		"set": {config.NFTables, func(_ *control.Model, s *dump.State) {
			for _, set := range s.Tables[0].Sets {
				set.Foreign = []string{"10.0.0.1 timeout 3s"}
			}
		}, "has a form that the proof does not know"},
		"chain": {config.NFTables, func(_ *control.Model, s *dump.State) {
			c := chain(s, "forward")
			c.Rules = append([]dump.Rule{{Rule: tables.Rule{Action: tables.Jump{Chain: "gone"}}}}, c.Rules...)
		}, "there is no chain gone"},
		"object": {config.NFTables, func(_ *control.Model, s *dump.State) {
			s.Tables[0].Foreign = []string{"flowtable ft"}
		}, "flowtable ft"},
		"other program's rule before ours": {config.IPTablesNFT, func(_ *control.Model, s *dump.State) {
			c := chain(s, "FORWARD")
			c.Rules = append([]dump.Rule{{Foreign: "-A FORWARD -m string --string x -j DROP"}}, c.Rules...)
		}, "--string x"},
		"flow": {config.OpenFlow, func(_ *control.Model, s *dump.State) {
			s.Flows = append(s.Flows, &flowtext.Flow{Table: 10, Priority: 65000, Foreign: "actions=group:1"})
		}, "table 10 priority 65000: felixlike does not write such a flow: actions=group:1"},
		"two ports": {config.OpenFlow, func(_ *control.Model, s *dump.State) {
			s.Flows = append(s.Flows, flow("table=0, priority=65000, actions=output:7,output:8"))
		}, "more than one port"},
		"two flows": {config.OpenFlow, func(_ *control.Model, s *dump.State) {
			s.Flows = append(s.Flows, flow("table=0, priority=65000, ip actions=drop"), flow("table=0, priority=65000, ipv6 actions=drop"),
				flow("table=0, priority=65000, tcp actions=output:7"), flow("table=0, priority=65000, tcp6 actions=output:7"))
		}, "two flows match the same packets"},
		"SNAT in the switch": {config.OpenFlow, func(m *control.Model, s *dump.State) {
			m.Settings.SNAT = true
			s.Flows = s.Flows[1:]
		}, "node n1: source translation in the switch"},
		"traffic mode": {config.OpenFlow, func(m *control.Model, s *dump.State) {
			m.Settings.TrafficMode = model.NoEncap
			s.Flows = s.Flows[1:]
		}, "node n1: traffic mode"},
		"Egress": {config.OpenFlow, func(m *control.Model, s *dump.State) {
			m.Egresses = append(m.Egresses, model.EgressAddress{})
			s.Flows = s.Flows[1:]
		}, "node n1: Egresses"},
		"table of Services": {config.NFTables, func(_ *control.Model, s *dump.State) {
			s.Tables = append(s.Tables, &dump.Table{Dialect: dump.NFT, Family: "inet", Name: "felixlike-services", Chains: []*dump.Chain{{Name: "x"}}})
		}, "the tables of Services and of bridges"},
		"no flows": {config.OpenFlow, func(_ *control.Model, s *dump.State) { s.Flows = nil }, "a side has no flows"},
	} {
		t.Run(name, func(t *testing.T) {
			m := modelOf(t, events(t, filepath.Join(cases, "tier-pass.txtar")), "n1")
			before, after, other := stateOf(t, *m, one.backend), stateOf(t, *m, one.backend), *m
			one.change(&other, after)
			_, err := Compare(t.Context(), Side{before, m}, Side{after, &other}, Options{OnlyOurs: true})
			var refused *NotProved
			if !errors.As(err, &refused) || !strings.HasPrefix(err.Error(), "not proved: ") || !strings.Contains(err.Error(), one.want) {
				t.Errorf("%v, want %s", err, one.want)
			}
		})
	}
}

// TestOtherPrograms has rules of other programs behind ours: they are named, or have to be the same.
func TestOtherPrograms(t *testing.T) {
	m := modelOf(t, events(t, filepath.Join(cases, "tier-pass.txtar")), "n1")
	before, after := stateOf(t, *m, config.IPTablesNFT), stateOf(t, *m, config.IPTablesNFT)
	for _, table := range after.Tables {
		if c := table.Chain("FORWARD"); c != nil {
			c.Rules, c.Policy = append(c.Rules, dump.Rule{Foreign: "-A FORWARD -m string --string x -j DROP"}), "drop"
		}
	}
	r, err := Compare(t.Context(), Side{before, m}, Side{after, m}, Options{OnlyOurs: true})
	if err != nil || len(r.Differences) > 0 || !strings.Contains(strings.Join(r.Assumed, " "), "other programs behind felixlike's do the same. They differ: ") {
		t.Errorf("%+v, %v", r, err)
	}
	var refused *NotProved
	if _, err = Compare(t.Context(), Side{before, m}, Side{after, m}, Options{}); !errors.As(err, &refused) || !strings.Contains(err.Error(), "--string x") {
		t.Errorf("%v", err)
	}
	if r, err = Compare(t.Context(), Side{after, m}, Side{after, m}, Options{}); err != nil || len(r.Differences) > 0 {
		t.Errorf("%+v, %v", r, err)
	}
}
