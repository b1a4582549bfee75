package openflow

import (
	"context"
	"errors"
)

// BundleSize is the number of changes in a bundle of flows behind others.
const BundleSize = 5000

// Behind delays flows without which packets take another way: they are sent after all other changes, BundleSize at a time, so that however many there
// are, the others do not wait for them, and an Apply that runs out of time has sent some of them. is tells these flows by their table
// and group; the group is empty for a deletion. Behind is called before the first Apply.
func (t *FlowTable) Behind(is func(table uint8, group string) bool) { t.behind = is }

// delayed separates the changes that come behind others.
func delayed(changes []change, is func(table uint8, group string) bool, states map[identity]state) (first, behind []change) {
	if is == nil {
		return changes, nil
	}
	for _, c := range changes {
		switch {
		case c.group == nil && is(c.table, ""), c.group != nil && is(c.table, c.group.key),
			c.group != nil && states[c.id].right() && is(c.table, ""): // a twin of a deleted flow
			behind = append(behind, c)
		default:
			first = append(first, c)
		}
	}
	return first, behind
}

// sendBehind sends the changes that were delayed. It sends a bundle again without the groups of flows that the switch refuses, and returns what it
// left out, and why. After another error, the next Apply reads back what the switch has.
func (t *FlowTable) sendBehind(ctx context.Context, changes []change, result *Result) (left []identity, refused, err error) {
	for len(changes) > 0 {
		part := changes[:min(BundleSize, len(changes))]
		changes = changes[len(part):]
		for err = t.send(ctx, part, result); err != nil; err = t.send(ctx, part, result) {
			rest, out := accepted(part, err)
			if len(out) == 0 {
				t.synced, t.trusted = false, false
				return nil, nil, err
			}
			part, left, refused = rest, append(left, out...), errors.Join(refused, err)
		}
		t.commit(part)
		result.count(part)
	}
	return left, refused, nil
}

// accepted separates the groups of flows that an error names from other changes.
func accepted(changes []change, err error) (rest []change, out []identity) {
	refused := new(BundleError)
	if !errors.As(err, &refused) {
		return changes, nil
	}
	named := map[string]bool{}
	for _, r := range refused.Refusals {
		named[r.Mod.Key] = true
	}
	for _, c := range changes {
		if c.group != nil && named[c.group.key] {
			out = append(out, c.id)
		} else {
			rest = append(rest, c)
		}
	}
	return rest, out
}
