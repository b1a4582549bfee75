package nftables

import (
	"slices"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/tables/nftables/kernel"
)

// members are the members of a set. Those of a verdict map have a verdict, others nil.
type members struct {
	desired map[model.Member]tables.Action
	// observed has the kernel's state of each dirty member. The kernel's other members are as desired.
	observed map[model.Member]prior
	// quarantined are the entries that are not programmed as desired. Each of them
	// that has been programmed otherwise is in observed.
	quarantined map[model.Member]unitState
}

type prior struct {
	present bool
	verdict tables.Action
}

func newMembers() members {
	return members{desired: map[model.Member]tables.Action{}, observed: map[model.Member]prior{}}
}

func (ms *members) set(m model.Member, verdict tables.Action) {
	ms.markDirty(m)
	ms.desired[m] = verdict
}

func (ms *members) remove(m model.Member) {
	ms.markDirty(m)
	delete(ms.desired, m)
}

func (ms *members) markDirty(m model.Member) {
	if _, ok := ms.observed[m]; !ok {
		verdict, present := ms.desired[m]
		ms.observed[m] = prior{present, verdict}
	}
}

// held returns the kernel's known state of a member.
func (ms *members) held(m model.Member) prior {
	if b, ok := ms.observed[m]; ok {
		return b
	}
	verdict, present := ms.desired[m]
	return prior{present, verdict}
}

// rebase makes the given members the kernel's state.
func (ms *members) rebase(have map[model.Member]tables.Action) {
	clear(ms.observed)
	for m, verdict := range ms.desired {
		if held, ok := have[m]; !ok || held != verdict {
			ms.observed[m] = prior{ok, held}
		}
	}
	for m, held := range have {
		if _, ok := ms.desired[m]; !ok {
			ms.observed[m] = prior{true, held}
		}
	}
	for m := range ms.quarantined {
		verdict, ok := have[m]
		ms.observed[m] = prior{ok, verdict}
	}
}

// goal returns the state of a member that the kernel shall have.
func (ms *members) goal(m model.Member) (verdict tables.Action, wanted bool) {
	verdict, wanted = ms.desired[m]
	switch ms.quarantined[m] {
	case closed:
		if wanted {
			verdict = tables.Drop{}
		}
	case absent:
		return nil, false
	}
	return verdict, wanted
}

// diff returns the changes to delete and to add, sorted. A member with a new verdict is in both.
func (ms *members) diff() (deletes, adds []kernel.Change) {
	left := len(ms.observed)
	for m, b := range ms.observed {
		verdict, wanted := ms.goal(m)
		if ms.quarantined[m] != kept && (b.present != wanted || b.verdict != verdict) {
			if b.present {
				deletes = grown(deletes, left, kernel.Change{Member: m, Verdict: b.verdict})
			}
			if wanted {
				adds = grown(adds, left, kernel.Change{Member: m, Verdict: verdict})
			}
		}
		left--
	}
	slices.SortFunc(deletes, kernel.Change.Compare)
	slices.SortFunc(adds, kernel.Change.Compare)
	return deletes, adds
}

// grown appends a change to changes, of which at most left are to come. Of a large load, append would copy all several times.
func grown(changes []kernel.Change, left int, c kernel.Change) []kernel.Change {
	if changes == nil {
		changes = make([]kernel.Change, 0, left)
	}
	return append(changes, c)
}

// dirty returns the desired members that are dirty, sorted.
func (ms *members) dirty() []kernel.Change {
	var out []kernel.Change
	for m := range ms.observed {
		if verdict, ok := ms.desired[m]; ok {
			out = append(out, kernel.Change{Member: m, Verdict: verdict})
		}
	}
	slices.SortFunc(out, kernel.Change.Compare)
	return out
}

// sorted returns all desired members.
func (ms *members) sorted() []kernel.Change {
	out := make([]kernel.Change, 0, len(ms.desired))
	for m, verdict := range ms.desired {
		out = append(out, kernel.Change{Member: m, Verdict: verdict})
	}
	slices.SortFunc(out, kernel.Change.Compare)
	return out
}

// commit records that the kernel holds the goal of each member, and returns their number.
func (ms *members) commit() int {
	n := len(ms.desired)
	// An emptied map keeps its size: each look through it would cost as much as after the first load.
	before := map[model.Member]prior{}
	for m, st := range ms.quarantined {
		b, touched := ms.observed[m]
		if _, wanted := ms.desired[m]; wanted && st == absent {
			n--
		}
		if st != kept {
			verdict, ok := ms.goal(m)
			b, touched = prior{ok, verdict}, true
		}
		if touched {
			before[m] = b
		}
	}
	ms.observed = before
	return n
}
