package openflow

import "context"

// Last delays the additions of one group: they are sent after the flows of all other
// groups, once settle returns because these are in force for packets. So the group
// opens nothing before the denials of the others hold. Last is called before the first
// Apply.
func (t *FlowTable) Last(key string, settle func(ctx context.Context) error) {
	t.last = last{key: key, settle: settle}
}

// split separates the additions of the last group from other changes.
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

// sendLast waits until the first changes are in force, without the lock, and sends
// the additions of the last group. If another program changed flows meanwhile, their
// repair comes first: then the next Apply sends these additions.
func (t *FlowTable) sendLast(ctx context.Context, behind []change, result *Result) error {
	if len(behind) == 0 {
		return nil
	}
	for _, c := range behind {
		t.dirty = append(t.dirty, c.id)
	}
	if t.last.unsettled {
		if err := t.unlocked(func() error { return t.last.settle(ctx) }); err != nil {
			return err
		}
		t.last.unsettled = false
	}
	if len(t.reported) > 0 || t.lost {
		return nil
	}
	if err := t.send(ctx, behind, result); err != nil {
		return err
	}
	t.commit(behind)
	result.count(behind)
	return nil
}
