package policyflows

import (
	"cmp"
	"hash/fnv"
	"strconv"

	"github.com/felixlike/felixlike/model"
)

// RuleID is what a rule is known by over restarts: its policy, direction and
// place in the policy.
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

// hash is the same after every restart.
func (r RuleID) hash() uint64 {
	h := fnv.New64a()
	for _, word := range []string{r.Policy.Namespace, r.Policy.Name} {
		_, _ = h.Write([]byte(word))
		_, _ = h.Write([]byte{0})
	}
	_, _ = h.Write([]byte{byte(r.Policy.Tier), byte(r.Direction), byte(r.Index >> 16), byte(r.Index >> 8), byte(r.Index)})
	// FNV leaves the last bytes in the lower bits alone; both halves count here.
	n := h.Sum64()
	n = (n ^ n>>32) * 0x9e3779b97f4a7c15
	return n ^ n>>32
}

// HashID is where the allocator of a real node looks for an id first.
func HashID(r RuleID) uint32 { return uint32(r.hash()) }

// ids gives each rule an id of its own out of one space for all tables: the
// first free one from its hash on. Of two rules that want the same, the lesser
// one has it, whoever came first, so the ids follow from the set of rules alone
// and are the same after a restart. Zero is nobody's.
type ids struct {
	hash  func(RuleID) uint32
	taken map[uint32]RuleID
}

func newIDs(hash func(RuleID) uint32) *ids {
	return &ids{hash: hash, taken: map[uint32]RuleID{}}
}

// IDs returns the rules by the ids that a node gives them, if these are all that
// it has.
func IDs(rules []RuleID) map[uint32]RuleID {
	a := newIDs(HashID)
	for _, r := range rules {
		a.add(r)
	}
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
func (a *ids) get(r RuleID) uint32 {
	for id := a.first(r); ; id = following(id) {
		switch owner, taken := a.taken[id]; {
		case !taken:
			return 0
		case owner == r:
			return id
		}
	}
}

// add gives the rule an id, and returns the rules whose id is another one than
// before, itself included.
func (a *ids) add(r RuleID) []RuleID {
	if a.get(r) != 0 {
		return nil
	}
	changed := []RuleID{r}
	for id := a.first(r); ; id = following(id) {
		owner, taken := a.taken[id]
		if !taken {
			a.taken[id] = r
			return changed
		}
		if r.Compare(owner) < 0 {
			a.taken[id] = r
			r = owner
			changed = append(changed, r)
		}
	}
}

// remove takes the rule's id back, and returns the other rules whose id is
// another one than before.
func (a *ids) remove(r RuleID) []RuleID {
	id := a.get(r)
	if id == 0 {
		return nil
	}
	delete(a.taken, id)
	before := map[RuleID]uint32{}
	for next := following(id); ; next = following(next) {
		owner, taken := a.taken[next]
		if !taken {
			break
		}
		before[owner] = next
		delete(a.taken, next)
	}
	var changed []RuleID
	for owner := range before {
		a.add(owner)
	}
	for owner, id := range before {
		if a.get(owner) != id {
			changed = append(changed, owner)
		}
	}
	return changed
}
