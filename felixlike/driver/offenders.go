package driver

import (
	"cmp"
	"slices"
	"time"

	"github.com/felixlike/felixlike/internal/isolate"
	"github.com/felixlike/felixlike/model"
)

const (
	// offenderMemory is how long a deleted policy is remembered: twice the longest wait
	// between two trials.
	offenderMemory = 2 * isolate.LongestWait
	// maxOffenders bounds how many are remembered.
	maxOffenders = 4096
)

// offenders are deleted policies that were untried or refused. A new policy with the same
// namespace and name gets the state of the deleted one. Otherwise a tenant could avoid the
// refusal by deleting and creating a policy again and again.
type offenders map[model.PodID]offender

type offender struct {
	// state is untried or refused.
	state turnState
	trial
	deleted time.Time
}

// remember adds a deleted policy. If there is no room, it drops untried ones before refused
// ones, and then the oldest.
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
	one.before, one.submittedAt = nil, 0
	o[t.id] = one
}

// recall removes and returns the deleted policy with this namespace and name.
func (o offenders) recall(id model.PodID, now time.Time) (offender, bool) {
	one, ok := o[id]
	delete(o, id)
	return one, ok && now.Sub(one.deleted) < offenderMemory
}
