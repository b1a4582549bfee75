package prove

import (
	"fmt"
	"maps"
	"regexp"
	"slices"

	"github.com/felixlike/felixlike/ovsfwd/flowtext"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
	"github.com/felixlike/felixlike/ovsfwd/policyflows"
)

// decided are packets with the flow that decides about them, nil if there is none.
type decided struct {
	flow *flowtext.Flow
	some packets
}

// ids are the actions that only note which rule of a policy decided.
var ids = regexp.MustCompile(`set_field:0x[0-9a-f]+(/0x[0-9a-f]+)?->(reg[356]|ct_label)`)

// effect returns what a flow does with a packet, whichever rule of a policy it is for, and whether it logs it.
func effect(f *flowtext.Flow) string {
	if f == nil {
		return "drop"
	}
	does := &flowtext.Flow{Actions: slices.DeleteFunc(slices.Clone(f.Actions), func(a flowtext.Action) bool {
		c, is := a.(flowtext.Controller)
		return is && c.ID != policyflows.RejectID
	})}
	return ids.ReplaceAllString(does.ActionsText(), "$2")
}

// lookup returns the flows that decide about packets of a state in a table. At the highest priority with a match, a flow that is no
// part of a conjunction decides. Otherwise a conjunction of which all dimensions match decides: the table is looked up again with its id.
func (b *bridge) lookup(table uint8, st inSwitch, rest packets, withClauses bool) (all []decided, err error) {
	t := b.tables[table]
	if t == nil {
		return []decided{{nil, rest}}, nil
	}
	for i := 0; i < len(t.flows) && rest != nothing; {
		hard, clauses := []decided{}, map[uint32][]packets{}
		priority := t.flows[i].Priority
		for ; i < len(t.flows) && t.flows[i].Priority == priority; i++ {
			f := t.flows[i]
			if f.Foreign != "" {
				return nil, &NotProved{fmt.Sprintf("table %d priority %d", table, f.Priority), "felixlike does not write such a flow: " + f.Foreign}
			}
			if !st.meets(f) {
				continue
			}
			found, err := b.condition(f, st.nat)
			if err != nil {
				return nil, &NotProved{fmt.Sprintf("table %d priority %d", table, f.Priority), err.Error()}
			}
			conjunction := false
			for _, a := range f.Actions {
				if c, is := a.(flowtext.Conjunction); is {
					conjunction = true
					for len(clauses[c.ID]) < int(c.N) {
						clauses[c.ID] = append(clauses[c.ID], nothing)
					}
					clauses[c.ID][c.K-1] = b.or(clauses[c.ID][c.K-1], found)
				}
			}
			if found = b.and(found, rest); !conjunction && found != nothing {
				hard = append(hard, decided{f, found})
			}
		}
		for i, d := range hard {
			if b.and(d.some, rest) != d.some && slices.ContainsFunc(hard[:i], func(o decided) bool {
				return o.flow.ActionsText() != d.flow.ActionsText() && b.and(o.some, d.some) != nothing
			}) {
				return nil, &NotProved{fmt.Sprintf("table %d priority %d", table, priority), "two flows match the same packets: " + d.flow.String()}
			}
			all = append(all, decided{d.flow, b.and(d.some, rest)})
			rest = b.without(rest, d.some)
		}
		if !withClauses {
			continue
		}
		before, effects := rest, map[string]packets{}
		for _, id := range slices.Sorted(maps.Keys(clauses)) {
			found := before
			for _, c := range clauses[id] {
				if found = b.and(found, c); found == nothing {
					break
				}
			}
			if found == nothing {
				continue
			}
			with := st
			with.words[openflow.ConjID] = flowtext.Word{Lo: uint64(id)}
			more, err := b.lookup(table, with, found, false)
			if err != nil {
				return nil, err
			}
			for _, d := range more {
				does := effect(d.flow)
				for other, some := range effects {
					if other != does && b.and(some, d.some) != nothing {
						return nil, &NotProved{
							fmt.Sprintf("table %d priority %d", table, priority),
							fmt.Sprintf("packets that match conjunction %d match another one with other actions, and which one the switch takes is not defined", id),
						}
					}
				}
			}
			for _, d := range more {
				did, known := effects[effect(d.flow)]
				if !known {
					did = nothing
				}
				effects[effect(d.flow)] = b.or(did, d.some)
				if some := b.and(d.some, rest); some != nothing {
					all = append(all, decided{d.flow, some})
				}
			}
			rest = b.without(rest, found)
		}
	}
	return append(all, decided{nil, rest}), nil
}
