package policyflows

import (
	"cmp"
	"crypto/sha256"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
)

// RuleID identifies a rule over restarts: its policy, direction and place in the policy.
type RuleID struct {
	Policy    model.PolicyID
	Direction model.Direction
	Index     int
}

// Compare orders rules by policy, direction, place.
func (r RuleID) Compare(o RuleID) int {
	return cmp.Or(r.Policy.Compare(o.Policy), cmp.Compare(r.Direction, o.Direction), cmp.Compare(r.Index, o.Index))
}

// String returns "egress rule 2 of default/web".
func (r RuleID) String() string {
	return r.Direction.String() + " rule " + strconv.Itoa(r.Index) + " of " + r.Policy.String()
}

// bytes are equal for equal rules only: names contain no zero. Policies of
// Kubernetes end here after the index, as in earlier versions, so that an update keeps their ids.
func (r RuleID) bytes() []byte {
	var b []byte
	for _, word := range []string{r.Policy.Namespace, r.Policy.Name} {
		b = append(append(b, word...), 0)
	}
	b = append(b, byte(r.Policy.Tier), byte(r.Direction), byte(r.Index>>16), byte(r.Index>>8), byte(r.Index))
	if p := r.Policy; p.API != 0 || p.Part != 0 || p.Within != "" {
		b = append(append(b, byte(p.API), byte(p.Part>>8), byte(p.Part)), p.Within...)
	}
	return b
}

// hash is the same after every restart.
func (r RuleID) hash() uint64 {
	h := fnv.New64a()
	_, _ = h.Write(r.bytes())
	// FNV leaves the last bytes in the lower bits alone; both halves count here.
	n := h.Sum64()
	n = (n ^ n>>32) * 0x9e3779b97f4a7c15
	return n ^ n>>32
}

// HashID is where the allocator of a real node looks for an id first.
func HashID(r RuleID) uint32 { return uint32(r.hash()) }

// note is the note in a flow of a rule: 112 bits of hash.
func (r RuleID) note() openflow.NoteText {
	sum := sha256.Sum256(r.bytes())
	return openflow.NoteText(sum[:len(openflow.NoteText{})])
}

// ids gives each rule an id of its own out of one space for all tables: the first
// free one from its hash on. A rule keeps its id until it is removed, so a rule that
// arrives later changes no flow of the others. Rules that arrive at once, as after a
// restart, get theirs in order.
//
// A rule whose id is not its hash says so in the switch, by a note (see counters). After
// a restart it gets that id again (adopt). Zero is nobody's.
type ids struct {
	hash  func(RuleID) uint32
	taken map[uint32]RuleID
	have  map[RuleID]uint32
	// changed are the rules that were added (true) or removed since the last settle.
	changed map[RuleID]bool
}

func newIDs(hash func(RuleID) uint32) *ids {
	return &ids{hash: hash, taken: map[uint32]RuleID{}, have: map[RuleID]uint32{}, changed: map[RuleID]bool{}}
}

// IDs returns the rules by the ids that a node gives them, if these are all that
// it has, and they arrive at once.
func IDs(rules []RuleID) map[uint32]RuleID { return idsOf(rules, nil) }

// idsOf is IDs for a switch that has these notes.
func idsOf(rules []RuleID, notes map[openflow.NoteText]uint32) map[uint32]RuleID {
	a := newIDs(HashID)
	for _, r := range rules {
		a.add(r)
	}
	a.adopt(notes)
	return a.taken
}

func following(id uint32) uint32 {
	if id++; id == 0 {
		return 1
	}
	return id
}

func (a *ids) first(r RuleID) uint32 {
	return max(1, a.hash(r))
}

// get returns the id of a rule, or zero.
func (a *ids) get(r RuleID) uint32 { return a.have[r] }

// displaced reports whether another rule had the id of the rule's hash.
func (a *ids) displaced(r RuleID) bool { return a.have[r] != a.first(r) }

// add and remove note that a rule is there, or gone; settle gives and takes ids.
func (a *ids) add(r RuleID)    { a.changed[r] = true }
func (a *ids) remove(r RuleID) { a.changed[r] = false }

// settle takes back the ids of the rules that are gone, and gives ids to added ones that
// have none. It returns the added ones, in order.
func (a *ids) settle() []RuleID {
	var added []RuleID
	for r, there := range a.changed {
		id, had := a.have[r]
		switch {
		case there:
			added = append(added, r)
		case had:
			delete(a.have, r)
			delete(a.taken, id)
		}
	}
	a.changed = map[RuleID]bool{} // cleared, it would keep the room of the first load
	slices.SortFunc(added, RuleID.Compare)
	for _, r := range added {
		if a.have[r] != 0 {
			continue
		}
		id := a.first(r)
		for a.taken[id] != (RuleID{}) {
			id = following(id)
		}
		a.give(r, id)
	}
	return added
}

func (a *ids) give(r RuleID, id uint32) { a.taken[id], a.have[r] = r, id }

// adopt gives all rules their ids anew: first those that the switch has a note of, by
// the noted ids, then the others. It returns the rules with a changed id.
func (a *ids) adopt(notes map[openflow.NoteText]uint32) []RuleID {
	a.settle()
	before := a.have
	a.have, a.taken = map[RuleID]uint32{}, map[uint32]RuleID{}
	for _, r := range slices.SortedFunc(maps.Keys(before), RuleID.Compare) {
		if id := notes[r.note()]; id != 0 && a.taken[id] == (RuleID{}) {
			a.give(r, id)
		} else {
			a.add(r)
		}
	}
	a.settle()
	var changed []RuleID
	for r, id := range before {
		if a.have[r] != id {
			changed = append(changed, r)
		}
	}
	return changed
}
