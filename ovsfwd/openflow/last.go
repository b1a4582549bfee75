package openflow

import "context"

// last is a group that comes behind all others.
type last struct {
	key    string
	settle func(ctx context.Context) error
	// unsettled says that settle has not been called since others were sent, or may
	// have been.
	unsettled bool
}

// Last has the flows of one group added only behind those of all others, once
// settle says that packets go by these: what the group opens is not open a moment
// before what the others deny is denied. It is called before the first Apply.
func (t *FlowTable) Last(key string, settle func(ctx context.Context) error) {
	t.last = last{key: key, settle: settle}
}

// split parts what is to be added last from other changes.
func (t *FlowTable) split(changes []change) (first, behind []change) {
	if t.last.settle == nil {
		return changes, nil
	}
	for _, c := range changes {
		if c.group != nil && c.group.key == t.last.key {
			behind = append(behind, c)
		} else {
			first = append(first, c)
		}
	}
	return first, behind
}

// sendLast sends what comes behind the first changes. The lock is not held while
// these settle. What somebody else has changed meanwhile comes first again: then
// the next Apply sends it.
func (t *FlowTable) sendLast(ctx context.Context, first, behind []change, result *Result) error {
	t.last.unsettled = t.last.unsettled || len(first) > 0
	if len(behind) == 0 {
		return nil
	}
	for _, c := range behind {
		t.touched = append(t.touched, c.id)
	}
	if t.last.unsettled {
		if err := t.unlocked(func() error { return t.last.settle(ctx) }); err != nil {
			return err
		}
		t.last.unsettled = false
	}
	if len(t.heard) > 0 || t.lost {
		return nil
	}
	if err := t.send(ctx, behind); err != nil {
		return err
	}
	t.commit(behind)
	result.count(behind)
	return nil
}
