package trace

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/felixlike/felixlike/cmd/felixctl/dump"
	"github.com/felixlike/felixlike/ovsfwd/flowtext"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
)

// Flows are the flows of a bridge, prepared for a walk. Like Open vSwitch, each table
// has a hash table for each set of compared fields and masks. So a walk costs the same
// at any number of flows.
type Flows struct {
	tables map[uint8][]*subtable
	// foreign are flows that could not be read, by table.
	foreign map[uint8][]*flowtext.Flow
}

// subtable holds the flows of a table that compare the same bits.
type subtable struct {
	fields []flowtext.Term // their masks
	flows  map[string][]*flowtext.Flow
}

// NewFlows prepares the flows of a node.
func NewFlows(s *dump.State) *Flows {
	f := &Flows{tables: map[uint8][]*subtable{}, foreign: map[uint8][]*flowtext.Flow{}}
	bySignature := map[string]*subtable{}
	for _, flow := range s.Flows {
		if flow.Foreign != "" {
			f.foreign[flow.Table] = append(f.foreign[flow.Table], flow)
			continue
		}
		signature := signatureOf(flow)
		t := bySignature[signature]
		if t == nil {
			t = &subtable{fields: flow.Match, flows: map[string][]*flowtext.Flow{}}
			bySignature[signature] = t
			f.tables[flow.Table] = append(f.tables[flow.Table], t)
		}
		var key []byte
		for _, term := range flow.Match {
			key = appendWord(key, term.Value)
		}
		t.flows[string(key)] = append(t.flows[string(key)], flow)
	}
	return f
}

func signatureOf(f *flowtext.Flow) string {
	key := []byte{f.Table}
	for _, t := range f.Match {
		key = appendWord(append(key, byte(t.Field)), t.Mask)
	}
	return string(key)
}

func appendWord(b []byte, w flowtext.Word) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(b, w.Hi), w.Lo)
}

// matching returns the flows of a table that match a packet, the highest priority
// first.
func (f *Flows) matching(table uint8, p *fields) []*flowtext.Flow {
	var found []*flowtext.Flow
	var buffer [256]byte
	for _, t := range f.tables[table] {
		key := buffer[:0]
		for _, term := range t.fields {
			key = appendWord(key, p[term.Field].And(term.Mask))
		}
		found = append(found, t.flows[string(key)]...)
	}
	slices.SortStableFunc(found, func(a, b *flowtext.Flow) int {
		return -cmp.Compare(a.Priority, b.Priority)
	})
	return found
}

// fields are a packet's fields, registers and metadata.
type fields [fieldCount]flowtext.Word

// fieldCount is more than any field's number.
const fieldCount = 64

// hit is the result of a lookup: the flow that decides, and for a conjunction the flows
// of its dimensions.
type hit struct {
	flow    *flowtext.Flow
	clauses []*flowtext.Flow
	id      uint32
	// others are the ids of further conjunctions that are fulfilled at the same
	// priority: any of them may be the one that Open vSwitch takes.
	others []uint32
	// nearly are conjunctions with some matching dimensions, and the flows
	// that matched.
	nearly map[uint32]*near
}

// near is a conjunction that is not fulfilled.
type near struct {
	n       uint8
	clauses map[uint8]*flowtext.Flow
}

// lookup finds the flow that decides in a table, with ovs-vswitchd's rules for
// conjunctions. At the highest priority with a match, a flow that is not part of a
// conjunction decides. Otherwise a conjunction decides if all its dimensions match: then
// lookup searches the table again with conj_id, only for flows that are not part of a
// conjunction. If neither decides, lookup goes on at the next lower priority. The hit has
// no flow if nothing matches.
func (f *Flows) lookup(table uint8, p *fields) (*hit, error) {
	for _, flow := range f.foreign[table] {
		return nil, &UnknownRule{Place: "bridge", Table: fmt.Sprintf("table %d", table), Number: int(flow.Priority), Text: flow.Foreign, Reason: "it is not one that felixlike writes"}
	}
	h := &hit{nearly: map[uint32]*near{}}
	for flows := f.matching(table, p); len(flows) > 0; {
		n := 1
		for n < len(flows) && flows[n].Priority == flows[0].Priority {
			n++
		}
		hard, err := theHard(flows[:n])
		if err != nil || hard != nil {
			h.flow = hard
			return h, err
		}
		if ids := h.collect(flows[:n]); len(ids) > 0 {
			h.id, h.others = ids[0], ids[1:]
			for _, k := range sortedKeys(h.nearly[h.id].clauses) {
				h.clauses = append(h.clauses, h.nearly[h.id].clauses[k])
			}
			with := *p
			with[openflow.ConjID] = flowtext.Word{Lo: uint64(h.id)}
			h.flow, err = firstHard(f.matching(table, &with))
			return h, err
		}
		flows = flows[n:]
	}
	return h, nil
}

// theHard returns the flow among those of one priority that is no part of a
// conjunction.
func theHard(flows []*flowtext.Flow) (*flowtext.Flow, error) {
	var hard *flowtext.Flow
	for _, flow := range flows {
		switch {
		case isClause(flow):
		case hard == nil:
			hard = flow
		case hard.ActionsText() != flow.ActionsText():
			return nil, fmt.Errorf("bridge: table %d: two flows of priority %d match, and which one decides is not defined: %s and %s", flow.Table, flow.Priority, hard, flow)
		}
	}
	return hard, nil
}

// firstHard returns the flow of the highest priority that is no part.
func firstHard(flows []*flowtext.Flow) (*flowtext.Flow, error) {
	flows = slices.DeleteFunc(flows, isClause)
	if len(flows) == 0 {
		return nil, nil
	}
	n := 1
	for n < len(flows) && flows[n].Priority == flows[0].Priority {
		n++
	}
	return theHard(flows[:n])
}

func isClause(f *flowtext.Flow) bool {
	if len(f.Actions) == 0 {
		return false
	}
	_, is := f.Actions[0].(flowtext.Conjunction)
	return is
}

// clause returns a flow that is part of a dimension of a conjunction, or nil.
func (f *Flows) clause(table uint8, id uint32, k uint8) *flowtext.Flow {
	for _, t := range f.tables[table] {
		for _, key := range sortedKeys(t.flows) {
			for _, flow := range t.flows[key] {
				if slices.ContainsFunc(flow.Actions, func(a flowtext.Action) bool {
					c, is := a.(flowtext.Conjunction)
					return is && c.ID == id && c.K == k
				}) {
					return flow
				}
			}
		}
	}
	return nil
}

// collect takes in the parts of conjunctions at one priority, and returns the ids
// of those that are fulfilled there.
func (h *hit) collect(flows []*flowtext.Flow) []uint32 {
	here := map[uint32]*near{}
	for _, flow := range flows {
		for _, a := range flow.Actions {
			c, ok := a.(flowtext.Conjunction)
			if !ok {
				continue
			}
			if here[c.ID] == nil {
				here[c.ID] = &near{n: c.N, clauses: map[uint8]*flowtext.Flow{}}
			}
			if here[c.ID].clauses[c.K] == nil {
				here[c.ID].clauses[c.K] = flow
			}
		}
	}
	var ids []uint32
	for _, id := range sortedKeys(here) {
		h.nearly[id] = here[id]
		if len(here[id].clauses) == int(here[id].n) {
			ids = append(ids, id)
		}
	}
	return ids
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K {
	keys := make([]K, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
