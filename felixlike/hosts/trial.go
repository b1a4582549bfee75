package hosts

import (
	"context"
	"fmt"
	"time"

	"github.com/felixlike/felixlike/model"
)

// trial are policies that are programmed and not confirmed. It is never changed.
type trial struct {
	policies    *model.HostPolicies
	fingerprint string
	// began is the time since when nothing is confirmed and the API server does not answer.
	began time.Time
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
	for {
		t, superseded := m.running()
		switch {
		case t == nil:
			return
		case t.refused != "" && !superseded:
			m.withdraw(ctx, t, "the kernel does not take all of it: "+t.refused)
			continue
		}
		err := m.reach(ctx)
		if ctx.Err() != nil || err == nil && m.confirm(ctx, t) {
			return
		}
		// Other policies may have been programmed since.
		if t, _ = m.running(); err != nil && t != nil && time.Since(t.began) >= m.Within && !m.Table.Off() {
			m.withdraw(ctx, t, fmt.Sprintf("with it, this node could not reach the API server for %s: %v", m.Within, err))
			m.blame(ctx)
			continue
		}
		if !pause(ctx, every) {
			return
		}
	}
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
	m.trial, m.record = nil, record{Confirmed: t.policies}
	m.mu.Unlock()
	if err := m.write(); err != nil {
		m.Log.Error("the confirmed policies of this node cannot be recorded: after a reboot, older ones are in force first", "error", err)
	}
	m.Log.Info("the policies of this node are confirmed", "policies", len(t.policies.Policies))
	m.publish(ctx)
	return true
}

// withdraw has the confirmed policies take the place of those of the trial, and of those that are wanted by now.
func (m *Module) withdraw(ctx context.Context, t *trial, reason string) {
	m.mu.Lock()
	if m.trial != t {
		m.mu.Unlock()
		return
	}
	confirmed, policies := m.record.Confirmed, t.policies
	if fp := m.wanted.Fingerprint(); !t.inherited && fp != "" && fp != confirmed.Fingerprint() {
		policies = m.wanted // they follow upon the trial, and are not programmed
	}
	m.trial = nil
	m.record = record{Confirmed: confirmed}
	if !policies.Empty() { // with a damaged record nobody knows them
		m.record.Withdrawn, m.record.Changed, m.record.Reason = policies.Fingerprint(), policies.Differing(confirmed), reason
	}
	next := m.record
	m.mu.Unlock()
	m.Log.Error("policies of this node are withdrawn: the last confirmed ones are in force", "changed", next.Changed, "reason", reason)
	m.publish(ctx)
	// Before the first listing there is no cycle. The API server may be out of reach because of these policies.
	if did, err := m.Table.Restore(ctx, confirmed, false); err != nil {
		m.Log.Error("the confirmed policies of this node cannot be programmed", "error", err)
	} else if did {
		m.Log.Info("the confirmed policies of this node are in force again")
	}
	// After the table: a disk that hangs does not put it off.
	if err := m.write(); err != nil {
		m.Log.Error("that policies of this node are withdrawn cannot be recorded", "error", err)
	}
}

// blame finds out whether the API server answers without the policies. If it does not, they are tried again once it does.
func (m *Module) blame(ctx context.Context) {
	fp, began, away := m.state().Withdrawn, time.Now(), false
	for fp != "" && pause(ctx, every) {
		if t, _ := m.running(); t != nil || m.state().Withdrawn != fp {
			return
		}
		err := m.reach(ctx)
		switch {
		case ctx.Err() != nil, err == nil && !away:
			return
		case err == nil:
			m.mu.Lock()
			if m.record.Withdrawn == fp {
				m.record = record{Confirmed: m.record.Confirmed}
			}
			m.mu.Unlock()
			if err := m.write(); err != nil {
				m.Log.Error("that withdrawn policies of this node are tried once more cannot be recorded", "error", err)
			}
			m.Log.Info("the API server answers again: the withdrawn policies of this node are tried once more")
			m.publish(ctx)
			return
		}
		away = away || time.Since(began) > m.Within
	}
}
