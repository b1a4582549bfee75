package felixlike

import (
	"cmp"
	"slices"
	"time"

	"github.com/felixlike/felixlike/model"
)

const (
	// offenderMemory is how long a deleted policy is remembered: twice the longest wait
	// between two trials.
	offenderMemory = 2 * lastTrial
	// maxOffenders bounds how many are remembered.
	maxOffenders = 4096
)

// offenders are deleted policies that were suspected or refused. A policy of the same
// namespace and name goes on where the deleted one was. Otherwise a tenant who deletes and
// creates a policy again and again would never have it refused.
type offenders map[model.PodID]offender

type offender struct {
	// state is suspected or refused.
	state turnState
	trial
	deleted time.Time
}

// remember takes a policy that is deleted. If there is no room, suspected ones are forgotten
// before refused ones, and then the oldest.
func (o offenders) remember(t *turn, now time.Time) {
	for id, one := range o {
		if now.Sub(one.deleted) >= offenderMemory {
			delete(o, id)
		}
	}
	if len(o) >= maxOffenders {
		var ids []model.PodID
		for id := range o {
			ids = append(ids, id)
		}
		delete(o, slices.MinFunc(ids, func(a, b model.PodID) int {
			return cmp.Or(cmp.Compare(o[a].state, o[b].state), o[a].deleted.Compare(o[b].deleted), a.Compare(b))
		}))
	}
	one := offender{state: t.state, trial: t.trial, deleted: now}
	one.before, one.noted = nil, 0
	o[t.id] = one
}

// recall forgets the deleted policy of this namespace and name, and returns it.
func (o offenders) recall(id model.PodID, now time.Time) (offender, bool) {
	one, ok := o[id]
	delete(o, id)
	return one, ok && now.Sub(one.deleted) < offenderMemory
}
