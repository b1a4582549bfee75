// Package hosts is the module of the policies of the node itself. It watches over the table that the stage backend.Hosts programs, so that no
// policy locks the node out:
//
//	new policies -> record a trial -> table -> a new connection to the API server -> record them as confirmed
//	                                              none within 25 s -> record them as withdrawn -> table of the confirmed ones
//
// The record is a file, which survives restarts and reboots. An agent that starts with a trial in its record, or with a damaged record, decides that
// first, since such a policy may keep it from the API server. An agent that starts without a table (after a reboot) programs the confirmed policies before it
// knows any object. A second file, which felixctl hosts off writes, turns everything off.
//
// It is tested under a driver, with the table of a kernel.
package hosts

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/felixlike/driver"
	"github.com/felixlike/felixlike/felixlike/metrics"
	"github.com/felixlike/felixlike/internal/files"
	"github.com/felixlike/felixlike/model"
)

// recordName is the file in the directory for state, previousName the one that it has replaced.
const (
	recordName   = "record.json"
	previousName = "record.json.previous"
)

const (
	// DefaultWithin bounds a trial. With the time to program the table again, a policy is withdrawn after 30 s. If the API server does
	// not answer for as long after that, the policy is not the reason.
	DefaultWithin = 25 * time.Second
	// reachTimeout bounds one connection, every is the time between two, and between two looks for the file.
	reachTimeout = 3 * time.Second
	every        = time.Second
	// maxRecord bounds the record in bytes.
	maxRecord = 64 << 20
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
	// Reach makes a new connection to the API server. Without it, policies are confirmed as soon as they are programmed.
	Reach func(context.Context) error
	// Within replaces DefaultWithin if it is not zero.
	Within time.Duration
	Log    *slog.Logger
}

// record is the content of the file.
type record struct {
	// Confirmed are the last policies with which the node was seen to work, Trial those that are being tried.
	Confirmed *model.HostPolicies `json:"confirmed,omitempty"`
	Trial     *model.HostPolicies `json:"trial,omitempty"`
	// Withdrawn is the fingerprint of policies that were withdrawn, Changed those that differ from the confirmed ones, and Reason why.
	Withdrawn string           `json:"withdrawn,omitempty"`
	Changed   []model.PolicyID `json:"changed,omitempty"`
	Reason    string           `json:"reason,omitempty"`
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
	record record
	// trial is the one that runs. It is nil before its policies are programmed, and is replaced once other policies are.
	trial *trial
	// superseded is set while other policies than those of trial may be in the table: it may be withdrawn, not confirmed.
	superseded bool
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
}

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

// New returns the module of a driver that is made next.
func New(v *driver.View, o Options) *Module {
	if o.Within == 0 {
		o.Within = DefaultWithin
	}
	m := &Module{Options: o, view: v, wake: make(chan struct{}, 1), moved: make(chan struct{}, 1), stale: true}
	o.Table.Attempt, o.Table.Programmed = m.attempt, m.programmed
	o.Table.Off = func() bool { return backend.HostsOff(m.path(backend.HostsOffFile)) }
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

func (m *Module) path(name string) string { return filepath.Join(m.Dir, name) }

// begin reads the record, and programs what must not wait for the datastore.
func (m *Module) begin() {
	m.mu.Lock()
	defer m.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), restoreTimeout)
	defer cancel()
	var err error
	if m.record, err = m.read(recordName); err != nil {
		var before error
		m.record, before = m.read(previousName)
		// The machine may have stopped after save renamed the old record.
		if m.damaged = !errors.Is(err, fs.ErrNotExist) || before == nil; m.damaged {
			m.Log.Error("the record of the policies of this node cannot be read: the one before it is used", "error", err)
			// save must not replace the one before it by this one.
			if err := os.Remove(m.path(recordName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				m.Log.Error("the damaged record cannot be removed", "error", err)
			}
		}
	}
	if m.off = m.Table.Off(); m.off {
		return // the stage removes a table
	}
	if m.record.Trial != nil || m.damaged {
		exists, err := m.Table.Exists(ctx)
		if err == nil && exists {
			m.trial = &trial{policies: m.record.Trial, fingerprint: m.record.Trial.Fingerprint(), began: time.Now(), inherited: true}
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

// read reads a record, which is empty if it cannot be read.
func (m *Module) read(name string) (r record, err error) {
	data, err := files.Read(m.path(name), maxRecord)
	if err == nil {
		err = json.Unmarshal(data, &r)
	}
	if err != nil {
		return record{}, err
	}
	return r, nil
}

// save writes the record, and keeps the one before. A reboot finds the old one or the new one. The caller holds saving, and not mu: a disk that
// hangs must not stop the loop.
func (m *Module) save(r record) error {
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(m.Dir, 0o755); err != nil {
		return err
	}
	next := m.path("." + recordName + ".next")
	f, err := os.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(m.path(recordName), m.path(previousName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Rename(next, m.path(recordName)); err != nil {
		return err
	}
	dir, err := os.Open(m.Dir)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// write writes the record as it is now.
func (m *Module) write() error {
	m.saving.Lock()
	defer m.saving.Unlock()
	m.mu.Lock()
	now := m.record
	m.mu.Unlock()
	return m.save(now)
}

// attempt implements backend.Hosts: it records a trial before its policies are programmed.
func (m *Module) attempt(p, wanted *model.HostPolicies) error {
	fp := p.Fingerprint()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.wanted = wanted
	if before := m.record.Trial; p != nil && fp != m.record.Confirmed.Fingerprint() && fp != before.Fingerprint() {
		m.record.Trial = p
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
		m.trial = nil
		if p != nil && !p.SameMembers(m.record.Confirmed) {
			m.members = p
			signal(m.moved)
		}
		before := m.record
		m.record.Trial = nil
		if p == nil && m.wanted == nil && !m.off {
			m.record = record{}
		}
		repaired := m.damaged
		m.damaged = false
		return repaired || before.Trial != nil || m.record.Confirmed != before.Confirmed || m.record.Withdrawn != before.Withdrawn
	}
	if now := m.trial; now == nil || now.inherited || now.fingerprint != fp || now.refused != refused {
		m.trial = &trial{policies: p, fingerprint: fp, began: time.Now(), refused: refused}
		if now != nil && !now.inherited {
			m.trial.began = now.began // else policies that change again and again would never be withdrawn
		}
	}
	signal(m.wake)
	return false
}

func (m *Module) run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return m.watchOff(ctx) })
	g.Go(func() error { return m.watchMembers(ctx) })
	g.Go(func() error {
		m.blame(ctx) // for the agent before this one
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

// watchMembers records other members of the confirmed policies once the API server answers with them: after a reboot they are in force.
func (m *Module) watchMembers(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-m.moved:
		}
		for m.recordMembers(ctx) != nil {
			if !pause(ctx, every) {
				return nil
			}
		}
		if !pause(ctx, membersEvery) {
			return nil
		}
	}
}

// recordMembers records the members of the confirmed policies. It fails while the API server does not answer.
func (m *Module) recordMembers(ctx context.Context) error {
	m.mu.Lock()
	p := m.members
	m.mu.Unlock()
	if p == nil {
		return nil
	}
	if err := m.reach(ctx); err != nil {
		return err
	}
	m.mu.Lock()
	same := m.members == p
	if same {
		m.members, m.record.Confirmed = nil, p
	}
	m.mu.Unlock()
	if !same {
		return nil // programmed has given the signal again
	}
	if err := m.write(); err != nil {
		m.Log.Error("other members of the peers of this node's policies cannot be recorded: after a reboot, older ones are in force first", "error", err)
	}
	return nil
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
	for _, id := range m.record.Changed {
		all = append(all, datastore.Notice{Kind: noticeWithdrawn, Problem: model.Problem{
			Object: id.Object(), Field: "spec.appliedTo",
			Reason: "withdrawn from node " + m.view.Node() + ": " + m.record.Reason + ". In force there: " + inForce + ". Tried again when it changes.",
		}})
	}
	return all
}

// status shows the policies of the node, if there are any or they are off.
func (m *Module) status(s *control.Status) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.policies.Empty() && !m.off {
		return
	}
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
	switch fp := m.policies.Fingerprint(); {
	case m.off:
		h.State, h.Reason = control.HostsOff, "felixctl hosts off has written "+m.path(backend.HostsOffFile)
	case fp == m.record.Withdrawn:
		h.State, h.Reason, h.Confirmed = control.HostsWithdrawn, m.record.Reason, names(m.record.Confirmed)
		for _, id := range m.record.Changed {
			h.Withdrawn = append(h.Withdrawn, id.String())
		}
	case fp != m.record.Confirmed.Fingerprint():
		h.State = control.HostsUnconfirmed
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
