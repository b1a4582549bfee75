package nftables

import (
	"slices"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/tables/nftables/kernel"
)

// members are the wanted members of a set, each with its verdict (nil but in
// verdict maps), and what the kernel holds of those that were touched.
type members struct {
	want map[model.Member]tables.Action
	// before holds, of each member touched since the last commit, what the
	// kernel has. The kernel's other members are as wanted.
	before map[model.Member]prior
	// aside are the entries that are not to be programmed as wanted. Each of them
	// that has been programmed otherwise is in before.
	aside map[model.Member]standing
}

type prior struct {
	present bool
	verdict tables.Action
}

func newMembers() members {
	return members{want: map[model.Member]tables.Action{}, before: map[model.Member]prior{}}
}

func (ms *members) set(m model.Member, verdict tables.Action) {
	ms.touch(m)
	ms.want[m] = verdict
}

func (ms *members) remove(m model.Member) {
	ms.touch(m)
	delete(ms.want, m)
}

func (ms *members) touch(m model.Member) {
	if _, ok := ms.before[m]; !ok {
		verdict, present := ms.want[m]
		ms.before[m] = prior{present, verdict}
	}
}

// held tells what the kernel is known to hold of a member.
func (ms *members) held(m model.Member) prior {
	if b, ok := ms.before[m]; ok {
		return b
	}
	verdict, present := ms.want[m]
	return prior{present, verdict}
}

// rebase makes the given members what the kernel holds.
func (ms *members) rebase(have map[model.Member]tables.Action) {
	clear(ms.before)
	for m, verdict := range ms.want {
		if held, ok := have[m]; !ok || held != verdict {
			ms.before[m] = prior{ok, held}
		}
	}
	for m, held := range have {
		if _, ok := ms.want[m]; !ok {
			ms.before[m] = prior{true, held}
		}
	}
	for m := range ms.aside {
		verdict, ok := have[m]
		ms.before[m] = prior{ok, verdict}
	}
}

// goal returns what the kernel is to hold of a member.
func (ms *members) goal(m model.Member) (verdict tables.Action, wanted bool) {
	verdict, wanted = ms.want[m]
	switch ms.aside[m] {
	case closed:
		if wanted {
			verdict = tables.Drop{}
		}
	case absent:
		return nil, false
	}
	return verdict, wanted
}

// diff returns what to delete from and to add to the kernel, sorted. A member
// whose verdict changes is in both.
func (ms *members) diff() (deletes, adds []kernel.Change) {
	for m, b := range ms.before {
		verdict, wanted := ms.goal(m)
		if ms.aside[m] == held || b.present == wanted && b.verdict == verdict {
			continue
		}
		if b.present {
			deletes = append(deletes, kernel.Change{Member: m, Verdict: b.verdict})
		}
		if wanted {
			adds = append(adds, kernel.Change{Member: m, Verdict: verdict})
		}
	}
	slices.SortFunc(deletes, kernel.Change.Compare)
	slices.SortFunc(adds, kernel.Change.Compare)
	return deletes, adds
}

// touched returns the wanted ones of the members that were touched, sorted.
func (ms *members) touched() []kernel.Change {
	var out []kernel.Change
	for m := range ms.before {
		if verdict, ok := ms.want[m]; ok {
			out = append(out, kernel.Change{Member: m, Verdict: verdict})
		}
	}
	slices.SortFunc(out, kernel.Change.Compare)
	return out
}

// sorted returns all wanted members.
func (ms *members) sorted() []kernel.Change {
	out := make([]kernel.Change, 0, len(ms.want))
	for m, verdict := range ms.want {
		out = append(out, kernel.Change{Member: m, Verdict: verdict})
	}
	slices.SortFunc(out, kernel.Change.Compare)
	return out
}

// commit notes that the kernel holds what it was to hold, and returns how many
// that are.
func (ms *members) commit() int {
	n := len(ms.want)
	var before map[model.Member]prior
	for m, st := range ms.aside {
		b, touched := ms.before[m]
		if _, wanted := ms.want[m]; wanted && st == absent {
			n--
		}
		if st != held {
			verdict, ok := ms.goal(m)
			b, touched = prior{ok, verdict}, true
		}
		if touched {
			if before == nil {
				before = map[model.Member]prior{}
			}
			before[m] = b
		}
	}
	if len(before) == 0 {
		clear(ms.before)
	} else {
		ms.before = before
	}
	return n
}
