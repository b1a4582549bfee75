package policyflows

import (
	"fmt"
	"hash/fnv"
	"maps"
	"math/bits"
	"slices"
	"strings"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
)

// crowdedParts is the number of conjunctions in the flows of a set of ports from which on the
// set has a bit: each change of a rule sends all flows of its ports again.
const crowdedParts = 2000

// portSets are the sets of ports of a layer's rules. All rules with equal ports share one. A crowded set
// gets one of the bits of the layer: one flow has the rules of the set, in the place of one for each port. Other flows
// set the bits of a packet's port. Where no bit is left, a set stays as it is.
type portSets struct {
	layer layer
	all   map[string]*portSet
	// crowded are the sets that are to have a bit, bits those that have one.
	crowded map[*portSet]struct{}
	bits    []*portSet
	// stale says that crowded has changed since the bits were given.
	stale bool
	// limit is crowdedParts, but in tests.
	limit int
	// users counts the installed rules that match a bit. Without any, there are no flows that set bits.
	users int
}

// portSet is a set of ports with the number of its rules.
type portSet struct {
	key   string
	ports []portMask
	rules int
	// bit is the set's bit of the register; zero if it has none.
	bit uint32
}

// portBits are the bits of openflow.Reg7 for the sets of a layer. A packet between two pods of a node meets both directions.
func (l layer) portBits() uint32 {
	switch l {
	case ruleEgress:
		return 0x0000ffff
	case ruleIngress:
		return 0xffff0000
	}
	return 0
}

// enter gives a rule its set, if it has ports of which some flows could be one.
func (ps *portSets) enter(r *rule) {
	if ps.layer.portBits() == 0 || len(r.ports) < 2 {
		return
	}
	var key strings.Builder
	for _, m := range r.ports {
		if m.protocol.IsICMP() {
			return
		}
		key.WriteString(m.String() + " ")
	}
	s := ps.all[key.String()]
	if s == nil {
		s = &portSet{key: key.String(), ports: r.ports}
		ps.all[s.key] = s
	}
	r.set, r.ports = s, s.ports
	ps.count(s, 1)
}

// leave takes a rule out of its set.
func (ps *portSets) leave(r *rule) {
	if r.set != nil {
		ps.count(r.set, -1)
	}
}

func (ps *portSets) count(s *portSet, more int) {
	s.rules += more
	if s.rules == 0 {
		delete(ps.all, s.key)
	}
	_, was := ps.crowded[s]
	if is := s.rules*len(s.ports) > ps.limit; is && !was {
		ps.crowded[s], ps.stale = struct{}{}, true
	} else if !is && was {
		delete(ps.crowded, s)
		ps.stale = true
	}
}

// settle gives the crowded sets their bits: each the first free one from its hash on, in the order of their ports.
// It reports whether any may have changed.
func (ps *portSets) settle() bool {
	if !ps.stale {
		return false
	}
	ps.stale = false
	for _, s := range ps.bits {
		s.bit = 0
	}
	ps.bits = nil
	free := ps.layer.portBits()
	for _, s := range slices.SortedFunc(maps.Keys(ps.crowded), func(a, b *portSet) int { return strings.Compare(a.key, b.key) }) {
		h := fnv.New32a()
		_, _ = h.Write([]byte(s.key))
		for n := range 32 {
			if bit := bits.RotateLeft32(1, int(h.Sum32()%32)+n); free&bit != 0 {
				s.bit = bit
				free &^= bit
				ps.bits = append(ps.bits, s)
				break
			}
		}
	}
	return true
}

func (ps *portSets) flowsKey() string { return fmt.Sprintf("%d port sets", ps.layer.table()) }

// flows returns the flows that set the bits of a packet's port, and have the table look at the packet again. They do
// not overlap, and only match packets without a bit.
func (ps *portSets) flows(families []model.Family) []openflow.Flow {
	// A port may be twice in one set, as 80 and in 80 to 90.
	type edge struct {
		bit  uint32
		more int
	}
	edges := map[int][]edge{}
	for _, s := range ps.bits {
		for _, i := range intervals(s.ports) {
			edges[i.first] = append(edges[i.first], edge{s.bit, 1})
			edges[i.last+1] = append(edges[i.last+1], edge{s.bit, -1})
		}
	}
	bounds, counts := slices.Sorted(maps.Keys(edges)), map[uint32]int{}
	var flows []openflow.Flow
	for n, first := range bounds {
		for _, e := range edges[first] {
			counts[e.bit] += e.more
		}
		value := uint32(0)
		for bit, count := range counts {
			if count > 0 {
				value |= bit
			}
		}
		if value == 0 {
			continue
		}
		actions := []openflow.Action{openflow.SetBits(openflow.Reg7, value, ps.layer.portBits()), openflow.Resubmit(ps.layer.table())}
		for _, m := range classMasks(interval{first, bounds[n+1] - 1}) {
			for _, f := range families {
				flows = append(flows, openflow.Flow{
					Table: ps.layer.table(), Priority: priorityPortSets, Match: m.match(f).Bits(openflow.Reg7, 0, ps.layer.portBits()), Actions: actions,
				})
			}
		}
	}
	return flows
}
