package dump

import (
	"cmp"
	"slices"

	"github.com/felixlike/felixlike/ovsfwd/flowtext"
)

// State is all that was read of one node, or of some files.
type State struct {
	// Tables are netfilter's, of nftables or of iptables, in the order in which
	// they were read.
	Tables []*Table `json:"tables,omitempty"`
	// IPSets are the kernel's ipsets, which all tables of iptables share.
	IPSets []*Set `json:"ipsets,omitempty"`
	// Flows are those of one bridge.
	Flows []*flowtext.Flow `json:"flows,omitempty"`
}

// Add takes over the contents of another State.
func (s *State) Add(o *State) {
	s.Tables = append(s.Tables, o.Tables...)
	s.IPSets = append(s.IPSets, o.IPSets...)
	s.Flows = append(s.Flows, o.Flows...)
}

// Table returns the table of that dialect, family ("inet", "ip", "ip6") and name,
// or nil.
func (s *State) Table(d Dialect, family, name string) *Table {
	for _, t := range s.Tables {
		if t.Dialect == d && t.Family == family && t.Name == name {
			return t
		}
	}
	return nil
}

// IPSet returns the kernel's ipset of that name, or nil.
func (s *State) IPSet(name string) *Set { return setNamed(s.IPSets, name) }

// FlowTable returns the flows of one table, those of the highest priority first;
// of equal ones the order is that of the dump.
func (s *State) FlowTable(table uint8) []*flowtext.Flow {
	var all []*flowtext.Flow
	for _, f := range s.Flows {
		if f.Table == table {
			all = append(all, f)
		}
	}
	slices.SortStableFunc(all, func(a, b *flowtext.Flow) int { return -cmp.Compare(a.Priority, b.Priority) })
	return all
}

// Count is the number of objects of each kind.
type Count struct {
	Tables, Chains, Rules, Sets, Elements, Flows int
	// Foreign counts the rules, elements and flows that are kept as text.
	Foreign int
}

// Count counts.
func (s *State) Count() Count {
	c := Count{Tables: len(s.Tables), Flows: len(s.Flows)}
	for _, set := range s.IPSets {
		c.addSet(set)
	}
	for _, t := range s.Tables {
		c.Chains += len(t.Chains)
		c.Foreign += len(t.Foreign)
		for _, chain := range t.Chains {
			c.Rules += len(chain.Rules)
			for i := range chain.Rules {
				if chain.Rules[i].Foreign != "" {
					c.Foreign++
				}
			}
		}
		for _, set := range t.Sets {
			c.addSet(set)
		}
	}
	for _, f := range s.Flows {
		if f.Foreign != "" {
			c.Foreign++
		}
	}
	return c
}

func (c *Count) addSet(s *Set) {
	c.Sets++
	c.Elements += len(s.Elements) + len(s.Foreign)
	c.Foreign += len(s.Foreign)
}
