package openflow

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// ConflictError says that two desired flows have equal table, priority and
// match, but different actions: only one could be in force.
type ConflictError struct {
	Keys  [2]string
	Flows [2]Flow
}

// Error names both flows and the groups they belong to.
func (e *ConflictError) Error() string {
	return fmt.Sprintf("conflicting flows: %s: %s; %s: %s", e.Keys[0], e.Flows[0], e.Keys[1], e.Flows[1])
}

// Apply brings the switch to the desired flows, in one bundle but for those of Last and Behind. The first time, and
// after Connect, it reads the installed flows back. It does not send installed flows
// again, deletes our flows that are not desired, and leaves flows with foreign cookies
// alone. Later it sends only differences, and no bundle if there are none.
//
// A *ConflictError, or a *BundleError of that bundle, leaves the switch as it was. The flows stay
// desired, so the owner removes the named group and applies again. A *BundleError of flows of Behind leaves
// out only the named groups.
func (t *FlowTable) Apply(ctx context.Context) (Result, error) {
	if t.sw == nil {
		return Result{}, errors.New("openflow: not connected")
	}
	if err := t.sw.Err(); err != nil {
		return Result{}, fmt.Errorf("openflow connection lost: %w", err)
	}
	if !t.monitored {
		if err := t.monitor(ctx); err != nil {
			return Result{}, err
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.takeUp()
	var result Result
	if !t.synced {
		if err := t.resync(ctx); err != nil {
			return result, err
		}
		result.FullRead = true
	}
	if err := t.conflict(); err != nil {
		return result, err
	}
	changes, last := t.split(t.changes())
	changes, behind := delayed(changes, t.behind, t.states)
	if err := t.send(ctx, changes, &result); err != nil {
		return result, err
	}
	t.commit(changes)
	result.count(changes)
	t.last.unsettled = t.last.unsettled || len(changes) > 0
	left, refused, err := t.sendBehind(ctx, behind, &result)
	if err != nil {
		return result, err
	}
	defer func() { t.dirty = append(t.dirty, left...) }()
	if err := t.sendLast(ctx, last, &result); err != nil {
		return result, err
	}
	if err := sendGroups(ctx, t, &result); err != nil {
		return result, err
	}
	result.Repaired = t.repaired()
	return result, refused
}

// silence is the time without a reply after which Apply sends a barrier: a hung
// switch reports no changes either.
const silence = time.Second

// send makes the changes. The lock is not held meanwhile. If another program has deleted a HashGroup that they use, send sends it as well.
func (t *FlowTable) send(ctx context.Context, changes []change, result *Result) (err error) {
	if len(changes) == 0 && time.Since(t.alive) < silence {
		return nil
	}
	sent := map[uint32]bool{}
	err = t.unlocked(func() error {
		if len(changes) == 0 {
			return t.sw.Barrier(ctx)
		}
		err := t.sw.Bundle(ctx, t.mods(changes, sent))
		if lacksGroup(err) && t.hashes.doubt(slices.Collect(maps.Keys(t.hashes))) {
			err = t.sw.Bundle(ctx, t.mods(changes, sent))
		}
		return err
	})
	if err == nil {
		t.alive = time.Now()
		result.Groups += t.hashes.sent(sent)
	}
	// After an error the switch's flows are known only if it refused the bundle.
	if refused := new(BundleError); err != nil && !errors.As(err, &refused) {
		t.synced, t.trusted = false, false
	}
	return err
}

// conflict returns an error if two groups disagree about an identity.
func (t *FlowTable) conflict() error {
	var found []claim
	for id, further := range t.further {
		first := t.states[id].claim
		for _, r := range further {
			if r.cookie() == first.cookie() && r.rest() == first.rest() {
				continue
			}
			pair := []claim{first, r}
			slices.SortStableFunc(pair, claim.compare)
			if found == nil || slices.CompareFunc(pair, found, claim.compare) < 0 {
				found = pair
			}
		}
	}
	if found == nil {
		return nil
	}
	e := &ConflictError{}
	for i, c := range found {
		flow, err := c.flow()
		if err != nil {
			return err
		}
		e.Keys[i], e.Flows[i] = c.group.key, flow
	}
	return e
}
