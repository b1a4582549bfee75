// Package hosts is the module of the policies of the node itself. It watches over the table that the stage backend.Hosts programs, so that no
// policy locks the node out:
//
//	new policies -> record a trial -> table -> a new connection to the API server, and kubelet renews its Lease -> record them as confirmed
//	                                              one of both is missing for 25 s -> record them as withdrawn -> table of the confirmed ones
//
// The record is a file, which survives restarts and reboots. An agent that starts with a trial in its record, or with a damaged record, decides that
// first, since such a policy may keep it from the API server. An agent that starts without a table (after a reboot) programs the confirmed policies before it
// knows any object. A second file, which felixctl hosts off writes, turns everything off.
//
// It is tested under a driver, with the table of a kernel.
package hosts

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/felixlike/driver"
	"github.com/felixlike/felixlike/felixlike/hosts/boot"
	"github.com/felixlike/felixlike/felixlike/leases"
	"github.com/felixlike/felixlike/felixlike/metrics"
	"github.com/felixlike/felixlike/model"
)

const (
	// DefaultWithin bounds a trial. With the time to program the table again, a policy is withdrawn after 30 s.
	DefaultWithin = 25 * time.Second
	// reachTimeout bounds one connection, every is the time between two, and between two looks for the file.
	reachTimeout = 3 * time.Second
	every        = time.Second
	// restoredEvery is the time between two looks whether a withdrawn policy has left the table.
	restoredEvery = 100 * time.Millisecond
	// promptly bounds the time from a withdrawal to an answer of the API server that proves the policy to be the reason.
	promptly = 5 * time.Second
	// membersEvery is the least time between two records of other members.
	membersEvery = 10 * time.Second
	// restoreTimeout bounds the work before the loop.
	restoreTimeout = 10 * time.Second
)

// Kinds of Events.
const noticeWithdrawn = "HostPolicyWithdrawn"

// Options are what a Module uses.
type Options struct {
	Table *backend.Hosts
	// Dir has the files.
	Dir      string
	Failsafe model.Failsafe
	// TrafficMode is the way of packets between nodes.
	TrafficMode model.TrafficMode
	// Reach makes a new connection to the API server. Without it, policies are confirmed as soon as they are programmed.
	Reach func(context.Context) error
	// Lease reads the Lease that kubelet renews for this node. Without it, policies are confirmed without kubelet.
	Lease func(context.Context) (*leases.Lease, error)
	// Conditions has the condition of this node, nil with a datastore that has none.
	Conditions Conditions
	// Within replaces DefaultWithin if it is not zero.
	Within time.Duration
	Log    *slog.Logger
}

// Module watches over the table.
type Module struct {
	Options
	view *driver.View
	// wake has a trial looked at, moved the members.
	wake, moved chan struct{}

	// saving is held while the record is written, and mu is not.
	saving sync.Mutex
	mu     sync.Mutex
	record boot.Record
	// trial is the one that runs. It is nil before its policies are programmed, and is replaced once other policies are.
	trial *trial
	// superseded is set while other policies than those of trial may be in the table: it may be withdrawn, not confirmed.
	superseded bool
	// restored is set once the table has the confirmed policies after a withdrawal.
	restored bool
	// members are the confirmed policies as they are programmed, if their groups have other members than in the record; else nil.
	members *model.HostPolicies
	// wanted are those of the engine at the last attempt.
	wanted *model.HostPolicies
	off    bool
	// damaged is set if the record could not be read, until it is written again.
	damaged bool
	// stale is set while the managers do not have the state of the record.
	stale bool

	// policies are those of the engine. They belong to the loop.
	policies *model.HostPolicies
	// lease belongs to the goroutine that decides.
	lease nodeLease
}

// New returns the module of a driver that is made next.
func New(v *driver.View, o Options) *Module {
	if o.Within == 0 {
		o.Within = DefaultWithin
	}
	m := &Module{Options: o, view: v, wake: make(chan struct{}, 1), moved: make(chan struct{}, 1), stale: true}
	o.Table.Attempt, o.Table.Programmed = m.attempt, m.programmed
	o.Table.Off = func() bool { return boot.Off(m.Dir) }
	m.lease = newNodeLease(o)
	return m
}

// Module returns the functions of the module.
func (m *Module) Module() driver.Module {
	return driver.Module{
		Begin: m.begin, Run: m.run, Updates: m.updates, OnUpdate: m.onUpdate, ObjectProblems: m.problems, Status: m.status,
		Served:  func(s *control.Model) { s.HostState, s.Failsafe = m.state(), &m.Failsafe },
		Measure: func(s *metrics.State) { s.HostPolicies, s.HostPoliciesWithdrawn = m.counts() },
	}
}

// begin reads the record, and programs what must not wait for the datastore.
func (m *Module) begin() {
	m.mu.Lock()
	defer m.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), restoreTimeout)
	defer cancel()
	var fault error
	m.record, fault = boot.Read(m.Dir)
	if m.damaged = fault != nil; m.damaged {
		m.Log.Error("the record of the policies of this node cannot be read: the one before it is used", "error", fault)
		// save must not replace the one before it by this one.
		if err := os.Remove(m.path(boot.RecordFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			m.Log.Error("the damaged record cannot be removed", "error", err)
		}
	}
	if m.off = m.Table.Off(); m.off {
		// The stage removes a table, but runs only if the table lets the agent reach the API server.
		if _, err := m.Table.Remove(ctx); err != nil {
			m.Log.Error("the policies of this node are off, and cannot be removed", "error", err)
		}
		return
	}
	if m.record.Trial != nil || m.damaged {
		exists, err := m.Table.Exists(ctx)
		if err == nil && exists {
			now := time.Now()
			m.trial = &trial{policies: m.record.Trial, fingerprint: m.record.Trial.Fingerprint(), began: now, since: m.since(now), programmed: now, inherited: true}
			signal(m.wake)
			return
		}
		m.record.Trial = nil
	}
	did, err := m.Table.Restore(ctx, m.record.Confirmed, true)
	switch {
	case err != nil:
		m.Log.Error("the confirmed policies of this node cannot be programmed before the objects are known", "error", err)
	case did:
		m.Log.Info("the confirmed policies of this node are in force again", "policies", len(m.record.Confirmed.Policies))
	}
}

// since returns when the recorded trial began; if the record does not say, it returns otherwise. The caller holds mu.
func (m *Module) since(otherwise time.Time) time.Time {
	if m.record.Since.IsZero() {
		return otherwise
	}
	return m.record.Since
}

func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// state returns what the managers need of the record.
func (m *Module) state() model.HostState {
	m.mu.Lock()
	defer m.mu.Unlock()
	return model.HostState{Off: m.off, Confirmed: m.record.Confirmed, Withdrawn: m.record.Withdrawn}
}

// withdrawn returns the fingerprint of the policies that are withdrawn, "" if none are.
func (m *Module) withdrawn() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.record.Withdrawn
}

func (m *Module) updates() []model.Update {
	m.mu.Lock()
	stale := m.stale
	m.stale = false
	m.mu.Unlock()
	state := m.state()
	if !stale || !state.Off && state.Confirmed == nil && state.Withdrawn == "" {
		return nil
	}
	return []model.Update{model.HostStateUpdate{State: state}}
}

// publish hands the state to the managers.
func (m *Module) publish(ctx context.Context) {
	m.view.Post(ctx, func() { m.view.Update(model.HostStateUpdate{State: m.state()}) })
}

func (m *Module) onUpdate(u model.Update, _ uint64) {
	if u, is := u.(model.HostPoliciesUpdate); is {
		m.policies = u.Policies
	}
}

// attempt implements backend.Hosts: it records a trial before its policies are programmed.
func (m *Module) attempt(p, wanted *model.HostPolicies) error {
	fp := p.Fingerprint()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.wanted = wanted
	if before := m.record.Trial; p != nil && fp != m.record.Confirmed.Fingerprint() && fp != before.Fingerprint() {
		m.record.Trial = p
		if before == nil {
			m.record.Since = time.Now()
		}
		m.mu.Unlock()
		err := m.write()
		m.mu.Lock()
		switch {
		case m.record.Trial != p:
			return errors.New("policies of this node stay as they are: earlier ones were decided upon meanwhile")
		case err != nil:
			m.record.Trial = before
			return fmt.Errorf("policies of this node stay as they are: the new ones cannot be recorded in %s, so nothing could withdraw them after a restart: %w", m.Dir, err)
		}
	}
	if m.trial != nil && fp != m.trial.fingerprint {
		m.superseded = true
	}
	return nil
}

// programmed implements backend.Hosts: it begins the trial.
func (m *Module) programmed(p *model.HostPolicies, refused string) {
	if m.begun(p, refused) {
		if err := m.write(); err != nil {
			m.Log.Error("the record of the policies of this node cannot be written", "error", err)
		}
	}
}

// begun begins the trial of policies that are programmed, or ends one. It reports whether the record has changed.
func (m *Module) begun(p *model.HostPolicies, refused string) (changed bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	fp := p.Fingerprint()
	m.superseded, m.members = false, nil
	if p == nil || fp == m.record.Confirmed.Fingerprint() {
		m.trial, m.restored = nil, true
		if p != nil && !p.SameMembers(m.record.Confirmed) {
			m.members = p
			signal(m.moved)
		}
		before := m.record
		m.record.Trial = nil
		if p == nil && m.wanted == nil && !m.off {
			m.record = boot.Record{}
		}
		repaired := m.damaged
		m.damaged = false
		return repaired || before.Trial != nil || m.record.Confirmed != before.Confirmed || m.record.Withdrawn != before.Withdrawn
	}
	if now := m.trial; now == nil || now.inherited || now.fingerprint != fp || now.refused != refused {
		at := time.Now()
		m.trial = &trial{policies: p, fingerprint: fp, began: at, since: m.since(at), programmed: at, refused: refused}
		if now != nil && !now.inherited {
			m.trial.began = now.began // else policies that change again and again would never be withdrawn
		}
	}
	signal(m.wake)
	return false
}

func (m *Module) run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		m.recordSettings()
		return nil
	})
	g.Go(func() error { return m.watchOff(ctx) })
	g.Go(func() error { return m.watchMembers(ctx) })
	g.Go(func() error { return m.keepCondition(ctx) })
	g.Go(func() error {
		m.retry(ctx) // for the agent before this one
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-m.wake:
				m.decide(ctx)
			}
		}
	})
	return g.Wait()
}

// watchOff tells the managers when the file comes or goes. Until the stage has run for the first time, it also programs the confirmed
// policies again if the table is gone: felixctl hosts on may follow so soon upon off that nobody sees the file.
func (m *Module) watchOff(ctx context.Context) error {
	for {
		obeyed, off := m.Table.ObeyedOff(), m.Table.Off()
		m.mu.Lock()
		changed := off != m.off || obeyed && !off
		m.off = off
		if off {
			m.trial = nil // the API server answers without its policies
		}
		confirmed := m.record.Confirmed
		m.mu.Unlock()
		if changed {
			m.Log.Warn("felixctl hosts has turned the policies of this node on or off", "off", off)
			m.publish(ctx)
		}
		if did, err := m.Table.Restore(ctx, confirmed, true); did {
			m.Log.Warn("the table of the policies of this node was gone: the confirmed policies are programmed again", "error", err)
		}
		if !pause(ctx, every) {
			return nil
		}
	}
}

// counts returns the policies of this node, and those that are withdrawn.
func (m *Module) counts() (all, withdrawn int) {
	if m.policies != nil {
		all = len(m.policies.Policies)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.policies.Fingerprint() == m.record.Withdrawn {
		withdrawn = len(m.record.Changed)
	}
	return all, withdrawn
}

func (m *Module) problems() (all []datastore.Notice) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.policies.Empty() || m.policies.Fingerprint() != m.record.Withdrawn {
		return nil
	}
	inForce := "none"
	if !m.record.Confirmed.Empty() {
		inForce = "the last confirmed policies"
	}
	again := "Tried again when it changes."
	switch {
	case m.record.WillRetry() && m.record.Kubelet:
		again = "Tried again when it changes, or once kubelet has renewed its Lease for some time."
	case m.record.WillRetry():
		again = "Tried again when it changes, or once the API server has answered for some time."
	}
	for _, id := range m.record.Changed {
		all = append(all, datastore.Notice{Kind: noticeWithdrawn, Problem: model.Problem{
			Object: id.Object(), Field: "spec.appliedTo",
			Reason: "withdrawn from node " + m.view.Node() + ": " + m.record.Reason + ". In force there: " + inForce + ". " + again,
		}})
	}
	return all
}

// status shows the policies of the node, and the failsafe ports even if there are none: who writes the first policy has to know them.
func (m *Module) status(s *control.Status) {
	m.mu.Lock()
	defer m.mu.Unlock()
	h := &control.Hosts{State: control.HostsConfirmed, Policies: names(m.policies)}
	for _, p := range m.Failsafe.In {
		h.FailsafeIn = append(h.FailsafeIn, p.String())
	}
	for _, p := range m.Failsafe.Out {
		h.FailsafeOut = append(h.FailsafeOut, p.String())
	}
	if m.Failsafe.GRE {
		h.FailsafeIn, h.FailsafeOut = append(h.FailsafeIn, "gre"), append(h.FailsafeOut, "gre")
	}
	last := m.Table.Last()
	switch fp := m.policies.Fingerprint(); {
	case m.off:
		h.State, h.Reason = control.HostsOff, "felixctl hosts off has written "+m.path(boot.OffFile)
	case m.policies.Empty() && !m.record.Confirmed.Empty():
		h.State, h.Confirmed = control.HostsUnconfirmed, names(m.record.Confirmed)
		h.Reason = "in force, as none is known yet to replace them: " + strings.Join(h.Confirmed, ", ")
	case m.policies.Empty():
		h.State = control.HostsNone
	case fp == m.record.Withdrawn:
		h.State, h.Reason, h.Confirmed = control.HostsWithdrawn, m.record.Reason, names(m.record.Confirmed)
		for _, id := range m.record.Changed {
			h.Withdrawn = append(h.Withdrawn, id.String())
		}
	case fp != m.record.Confirmed.Fingerprint(), fp != last.Fingerprint:
		h.State = control.HostsUnconfirmed
	}
	if last.Fault != "" {
		if h.Reason != "" {
			h.Reason += "; "
		}
		h.State, h.Reason = control.HostsNotProgrammed, h.Reason+last.Fault
	}
	s.Hosts = h
}

// names returns the identifiers of policies.
func names(h *model.HostPolicies) (all []string) {
	if h != nil {
		for _, p := range h.Policies {
			all = append(all, p.ID.String())
		}
	}
	return all
}
