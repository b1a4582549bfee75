package hosts

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/felixlike/felixlike/felixlike/hosts/boot"
	"github.com/felixlike/felixlike/model"
)

// trial are policies that are programmed and not confirmed. It is never changed.
type trial struct {
	policies    *model.HostPolicies
	fingerprint string
	// began is the time since when nothing is confirmed and the API server does not answer.
	began time.Time
	// since is the time before which no policies of this trial were programmed, programmed the time after which the table has had these.
	since, programmed time.Time
	// refused is why the kernel does not take them, "" if it does.
	refused string
	// inherited is set for the trial of the agent before this one: its policies may have been recorded and not programmed. So it
	// may be withdrawn, not confirmed.
	inherited bool
}

// pause reports whether the time passed before ctx ended.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// running returns the trial that runs, and whether other policies may be in the table.
func (m *Module) running() (_ *trial, superseded bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.trial, m.superseded
}

func (m *Module) reach(ctx context.Context) error {
	if m.Reach == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, reachTimeout)
	defer cancel()
	return m.Reach(ctx)
}

// decide confirms or withdraws the policies of the trial that runs, until none does.
func (m *Module) decide(ctx context.Context) {
	var c contact
	for {
		t, superseded := m.running()
		switch {
		case t == nil:
			m.retry(ctx)
			return
		case t.refused != "" && !superseded:
			m.withdraw(ctx, t, cause{reason: "the kernel does not take all of it: " + t.refused})
			continue
		}
		err := m.reach(ctx)
		if err == nil {
			err = m.lease.renewed(ctx, t)
		}
		c.note(err, time.Now())
		var kubelet *notRenewed
		wait := every
		switch {
		case errors.As(err, &kubelet):
			wait = kubelet.next()
		case errors.As(err, new(*unread)) && time.Since(latest(c.unread, t.began)) > m.Within:
			m.lease.missing.Note(ctx, err)
			err = nil // the agent's own connections decide
		}
		if ctx.Err() != nil || err == nil && m.confirm(ctx, t) {
			return
		}
		// Other policies may have been programmed since.
		if t, _ = m.running(); err != nil && t != nil && !errors.As(err, new(*unread)) {
			left := c.left(err, t.began, time.Now(), m.Within)
			if left <= 0 && !m.Table.Off() {
				m.withdraw(ctx, t, causeOf(err, m.Within))
				m.blame(ctx, kubelet)
				continue
			}
			wait = max(every, min(wait, left))
		}
		select {
		case <-ctx.Done():
			return
		case <-m.wake: // other policies are programmed
			if !pause(ctx, every) {
				return
			}
		case <-time.After(wait):
		}
	}
}

// contact is when the API server last answered, when it last did not or did not say the Lease, and since when each look did not say the Lease.
type contact struct{ answered, failed, unread time.Time }

// note takes down what came of a look at the API server and the Lease.
func (c *contact) note(err error, at time.Time) {
	silent := errors.As(err, new(*unread))
	switch {
	case !silent:
		c.unread = time.Time{}
	case c.unread.IsZero():
		c.unread = at
	}
	lost := err != nil && !silent && !errors.As(err, new(*notRenewed))
	if !lost {
		c.answered = at
	}
	if lost || silent {
		c.failed = at
	}
}

// left returns how much longer the reason of an error may last in a trial that began at a time.
func (c *contact) left(err error, began, now time.Time, within time.Duration) time.Duration {
	var kubelet *notRenewed
	if !errors.As(err, &kubelet) {
		return within - now.Sub(latest(c.answered, began))
	}
	// The Lease may be renewed between changes that follow one upon another, and is not while the API server is away. If that is away again and again,
	// it counts after all.
	limit, since := kubelet.limit(within), latest(kubelet.at, began)
	return min(limit-now.Sub(latest(c.failed, since)), 3*limit-now.Sub(since))
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// cause is why policies are withdrawn.
type cause struct {
	reason string
	// unproven is set if blame finds out whether the policies are the reason.
	unproven bool
	// kubelet is set if the agent reaches the API server, and kubelet does not.
	kubelet bool
}

// causeOf returns the cause if an error lasted as long as it may.
func causeOf(err error, within time.Duration) cause {
	var kubelet *notRenewed
	if errors.As(err, &kubelet) {
		return cause{fmt.Sprintf("with it, %v for %s, while the agent reached the API server", err, kubelet.limit(within)), true, true}
	}
	return cause{fmt.Sprintf("with it, this node could not reach the API server for %s: %v", within, err), true, false}
}

// confirm records the policies of a trial as confirmed, and reports whether the trial is over. It does not if others may have been in force when
// the API server answered, or no table at all.
func (m *Module) confirm(ctx context.Context, t *trial) (over bool) {
	if exists, err := m.Table.Exists(ctx); err != nil || !exists || m.Table.Off() {
		return false
	}
	m.mu.Lock()
	switch {
	case m.trial == nil:
		m.mu.Unlock()
		return true
	case m.trial == t && t.inherited: // the first cycle begins another one
		m.trial = nil
		m.mu.Unlock()
		return true
	case m.trial != t, m.superseded:
		again := *m.trial
		again.began = time.Now()
		m.trial = &again
		m.mu.Unlock()
		return false
	}
	first := m.record.Confirmed.Empty()
	m.trial, m.record = nil, boot.Record{Confirmed: t.policies}
	m.mu.Unlock()
	err := m.write()
	if err == nil && first { // the record before it has them, too
		err = m.write()
	}
	if err != nil {
		m.Log.Error("the confirmed policies of this node cannot be recorded: after a reboot, older ones are in force first", "error", err)
	}
	m.Log.Info("the policies of this node are confirmed", "policies", len(t.policies.Policies))
	m.publish(ctx)
	return true
}

// withdraw has the confirmed policies take the place of those of the trial, and of those that are wanted by now.
func (m *Module) withdraw(ctx context.Context, t *trial, why cause) {
	m.mu.Lock()
	if m.trial != t {
		m.mu.Unlock()
		return
	}
	confirmed, policies := m.record.Confirmed, t.policies
	if fp := m.wanted.Fingerprint(); !t.inherited && fp != "" && fp != confirmed.Fingerprint() {
		policies = m.wanted // they follow upon the trial, and are not programmed
	}
	m.trial, m.restored = nil, false
	before := m.record
	// Until the table is without them, an agent that starts has to decide upon them.
	m.record = boot.Record{Confirmed: confirmed, Trial: before.Trial, Since: before.Since}
	if fp := policies.Fingerprint(); fp != "" { // with a damaged record nobody knows them
		m.record.Withdrawn, m.record.Changed, m.record.Reason = fp, policies.Differing(confirmed), why.reason
		m.record.Unproven, m.record.Kubelet = why.unproven, why.kubelet
		m.record.Retried, m.record.Retries = fp, before.RetriesOf(fp)
	}
	next := m.record
	m.mu.Unlock()
	m.Log.Error("policies of this node are withdrawn: the last confirmed ones are in force", "changed", next.Changed, "reason", why.reason)
	m.publish(ctx)
	// Before the first listing there is no cycle. The API server may be out of reach because of these policies.
	if did, err := m.Table.Restore(ctx, confirmed, false); err != nil {
		m.Log.Error("the confirmed policies of this node cannot be programmed", "error", err)
	} else if did {
		m.mu.Lock()
		m.restored, m.record.Trial = true, nil
		m.mu.Unlock()
		m.Log.Info("the confirmed policies of this node are in force again")
	}
	// After the table: a disk that hangs does not put it off.
	if err := m.write(); err != nil {
		m.Log.Error("that policies of this node are withdrawn cannot be recorded", "error", err)
	}
}

// blame finds out whether the policies that were just withdrawn are the reason. They are if the API server answers promptly once the table does
// not have them. If kubelet was missed, they are if it renews its Lease in time, and that has happened before: kubelet may have started again. Otherwise
// an outage may have been it.
func (m *Module) blame(ctx context.Context, kubelet *notRenewed) {
	fp, began := m.withdrawn(), time.Now()
	// state reports whether there is nothing more to find out, and whether the table has the confirmed policies.
	state := func() (over, restored bool) {
		m.mu.Lock()
		defer m.mu.Unlock()
		return fp == "" || m.trial != nil || m.record.Withdrawn != fp || kubelet != nil && m.record.Retries == 0, m.restored
	}
	for restored := false; !restored; {
		if !pause(ctx, restoredEvery) {
			return
		}
		var over bool
		if over, restored = state(); over {
			return
		}
	}
	if kubelet == nil {
		if m.reach(ctx) != nil || time.Since(began) > promptly {
			return
		}
	} else {
		for restored := time.Now(); !m.lease.renewedAfter(ctx, restored); {
			if over, _ := state(); over || time.Since(restored) > kubelet.patience() || !pause(ctx, every) {
				return
			}
		}
	}
	m.mu.Lock()
	if m.record.Withdrawn == fp {
		m.record.Unproven = false
	}
	m.mu.Unlock()
	if err := m.write(); err != nil {
		m.Log.Error("that policies of this node stay withdrawn cannot be recorded: an agent that starts may try them again", "error", err)
	}
}

// retry tries unproven policies again once the API server has answered for some time, which grows, and if kubelet was missed, it has renewed its Lease.
func (m *Module) retry(ctx context.Context) {
	m.mu.Lock()
	r := m.record
	m.mu.Unlock()
	if !r.WillRetry() {
		return
	}
	retries := r.RetriesOf(r.Withdrawn)
	steady := m.Within << (2 * retries)
	for answers := (time.Time{}); answers.IsZero() || time.Since(answers) < steady; {
		wait := every
		if r.Kubelet || !answers.IsZero() {
			wait = max(every, m.Within/5)
		}
		select {
		case <-ctx.Done():
			return
		case <-m.wake: // a trial has begun
			signal(m.wake)
			return
		case <-time.After(wait):
		}
		if t, _ := m.running(); t != nil || m.withdrawn() != r.Withdrawn {
			return
		}
		look := m.reach
		if r.Kubelet {
			look = m.lease.renewing
		}
		if err := look(ctx); err != nil {
			answers = time.Time{}
		} else if answers.IsZero() {
			answers = time.Now()
		}
	}
	m.mu.Lock()
	tried := m.trial == nil && m.record.Withdrawn == r.Withdrawn
	if tried {
		m.record = boot.Record{Confirmed: m.record.Confirmed, Retried: r.Withdrawn, Retries: retries + 1}
	}
	m.mu.Unlock()
	if !tried {
		return
	}
	if err := m.write(); err != nil {
		m.Log.Error("that withdrawn policies of this node are tried again cannot be recorded", "error", err)
	}
	m.Log.Info("what was missed works again: the withdrawn policies of this node are tried again", "retry", retries+1)
	m.publish(ctx)
}
