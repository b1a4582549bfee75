package admission

import (
	"cmp"
	"slices"
	"time"

	"github.com/felixlike/felixlike/internal/isolate"
	"github.com/felixlike/felixlike/model"
)

const (
	// refusalMemory is how long a deleted policy is remembered: twice the longest wait
	// between two trials.
	refusalMemory = 2 * isolate.LongestWait
	// maxPastRefusals bounds how many are remembered.
	maxPastRefusals = 4096
)

// refusalHistory has the deleted policies that were unproven or refused. A new policy with the same
// namespace and name gets the state of the deleted one. Otherwise a tenant could avoid the
// refusal by deleting and creating a policy again and again.
type refusalHistory map[model.PodID]pastRefusal

type pastRefusal struct {
	// state is unproven or refused.
	state itemState
	record
	deleted time.Time
}

// remember adds a deleted policy. If there is no room, it drops unproven ones before refused
// ones, and then the oldest.
func (o refusalHistory) remember(t *item, now time.Time) {
	for id, one := range o {
		if now.Sub(one.deleted) >= refusalMemory {
			delete(o, id)
		}
	}
	if len(o) >= maxPastRefusals {
		var ids []model.PodID
		for id := range o {
			ids = append(ids, id)
		}
		delete(o, slices.MinFunc(ids, func(a, b model.PodID) int {
			return cmp.Or(cmp.Compare(o[a].state, o[b].state), o[a].deleted.Compare(o[b].deleted), a.Compare(b))
		}))
	}
	one := pastRefusal{state: t.state, record: t.record, deleted: now}
	one.before, one.submittedAt = nil, 0
	o[t.id] = one
}

// recall removes and returns the deleted policy with this namespace and name.
func (o refusalHistory) recall(id model.PodID, now time.Time) (pastRefusal, bool) {
	one, ok := o[id]
	delete(o, id)
	return one, ok && now.Sub(one.deleted) < refusalMemory
}
