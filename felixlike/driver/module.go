package driver

import (
	"context"
	"log/slog"
	"maps"
	"time"

	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/felixlike/cluster"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/felixlike/metrics"
	"github.com/felixlike/felixlike/felixlike/policy"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
)

// View is what a Module sees of the driver. It is made before the modules, and bound to the driver by New.
type View struct{ Loop }

// Loop is a driver's loop. Any goroutine may call the methods up to Stopped. The others belong to the loop: a module calls them in a function that it
// gives to Post, Do or Wait, or that the loop calls by itself (Module).
type Loop interface {
	// Node returns the name of this node.
	Node() string
	// Log returns the log, which names the backend.
	Log() *slog.Logger
	// Panicked returns the log for an error that may be a panic: with its stack the first time that it comes from this place.
	Panicked(err error) *slog.Logger
	// Metrics returns the agent's metrics.
	Metrics() *metrics.Metrics
	// Post hands f to the loop.
	Post(ctx context.Context, f func())
	// Do runs f in the loop, and returns when it has run.
	Do(ctx context.Context, f func()) error
	// Wait waits until ready, which runs in the loop, returns true or an error.
	Wait(ctx context.Context, ready func() (bool, error)) error
	// Stopped is closed when the loop has ended.
	Stopped() <-chan struct{}

	// Model returns the model. It must not be changed.
	Model() *cluster.Model
	// Policy returns the policy engine, which answers questions about the model. Only Change changes it.
	Policy() *policy.Engine
	// Change changes the policy engine, and hands its updates to the managers.
	Change(change func(*policy.Engine))
	// SourceSynced reports whether the first listing of the datastore is complete.
	SourceSynced() bool
	// InSync reports whether everything is known that the first apply needs.
	InSync() bool
	// Begun reports whether a cycle has succeeded, and InSync still holds.
	Begun() bool
	// SourceProblems returns the problems that the datastore has with objects.
	SourceProblems() []model.Problem
	// State returns the state of a pod, and the reason if it is closed.
	State(id model.PodID) (state, reason string)
	// Backend returns the backend in force.
	Backend() backend.Backend
	// Changing reports whether the backend is being changed.
	Changing() bool
	// Enforcing returns the backend that enforces policy now. It fails during a change of the backend, and before the first policy is programmed.
	Enforcing() (backend.Backend, error)
	// Attempted returns the revision of the model: the number of its updates.
	Attempted() uint64
	// Programmed reports whether the backend in force has the updates up to this revision of the model, and programs nothing now.
	Programmed(revision uint64) bool
	// Idle reports whether everything is programmed and nothing runs.
	Idle() bool
	// LastRun returns the start of the newest run of a stage.
	LastRun() (at time.Time)
	// Changes counts the runs of stages that wrote something, or failed. A full read that finds everything as it should be is none.
	Changes() uint64
	// Refused returns the quarantined objects of the backend in force.
	Refused() []tables.Refusal
	// Quarantined returns the number of quarantined objects of all stages.
	Quarantined() int
	// Lost says, with the reason, that programmed state may be lost. The next cycle reads everything, except in stages with a Watch that reports all changes.
	Lost(reason error)
	// RetryNow ends the wait after a failed cycle.
	RetryNow()
	// Update adds an update to the model.
	Update(u model.Update)
	// Reread makes the next cycle read everything from kernel and switch.
	Reread()
}

// Module is a feature beside the stages. The driver knows no feature: it calls these functions, each of which may be nil. All but Begin, Run and Count
// run in the loop, so they return at once, and what they get must not be changed.
type Module struct {
	// Begin runs before the loop.
	Begin func()
	// Needs says what is missing that the first apply needs, or "".
	Needs func() string
	// Run runs until ctx ends, beside the loop. An error ends the agent.
	Run func(ctx context.Context) error
	// OnEvent gets each change of an object of the datastore, after the policy engine.
	OnEvent func(e datastore.Event)
	// Updates returns the updates that follow from changes since the last call. It ends each batch of the datastore.
	Updates func() []model.Update
	// OnUpdate gets each update of the model, with the model's revision after it.
	OnUpdate func(u model.Update, revision uint64)
	// OnFlush follows updates that belong together. partial has the NetworkPolicies of which the model does not have the rules as written.
	OnFlush func(partial map[model.PolicyID]bool, revision uint64)
	// OnEnforced follows an apply of the backend in force, with the revision of the model that it has programmed.
	OnEnforced func(revision uint64)
	// OnCycle begins a cycle, when the managers have set the desired state. The function that it returns is called if the cycle succeeds.
	OnCycle func() (succeeded func())
	// OnForeign follows a repaired change of another program, and a change of the backend.
	OnForeign func()
	// OnResync begins a full read of the dataplane (Timing.Resync), which the next cycle does.
	OnResync func()
	// Notices are reasons why the node is not ready although everything is programmed. A reason with a kind becomes an Event.
	Notices func() []datastore.Notice
	// Problems are problems of this node, for status.
	Problems func() []model.Problem
	// ObjectProblems are problems of users' objects, for status and Events. They do not make the node less ready.
	ObjectProblems func() []datastore.Notice
	// Closed returns the pods that the module keeps closed, each with the reason.
	Closed func() map[model.PodID]string
	// Status, Served and Measure add the module's part of status, of the model that tools get, and of a scrape.
	Status  func(s *control.Status)
	Served  func(m *control.Model)
	Measure func(s *metrics.State)
	// Count registers metrics.
	Count func(m *metrics.Metrics)
}

// Source returns a module that feeds the model: watch delivers updates until ctx ends. needed, unless it is empty, says what is missing
// until the first one.
func Source[U model.Update](v *View, needed string, watch func(ctx context.Context, update func(U)) error) Module {
	known := false
	return Module{
		Run: func(ctx context.Context) error {
			return watch(ctx, func(u U) {
				v.Post(ctx, func() {
					known = true
					v.Update(u)
				})
			})
		},
		Needs: func() string {
			if known {
				return ""
			}
			return needed
		},
	}
}

// modules calls the functions of all modules.
type modules []Module

// collect returns what a function of the modules returns, together.
func collect[T any](ms modules, get func(Module) func() []T) (all []T) {
	for _, m := range ms {
		if f := get(m); f != nil {
			all = append(all, f()...)
		}
	}
	return all
}

// tell calls a function of the modules.
func tell[A any](ms modules, about A, get func(Module) func(A)) {
	for _, m := range ms {
		if f := get(m); f != nil {
			f(about)
		}
	}
}

func (ms modules) begin() {
	for _, m := range ms {
		if m.Begin != nil {
			m.Begin()
		}
	}
}

func (ms modules) needs() (all []string) {
	for _, m := range ms {
		if m.Needs == nil {
			continue
		}
		if missing := m.Needs(); missing != "" {
			all = append(all, missing)
		}
	}
	return all
}

func (ms modules) updates() []model.Update {
	return collect(ms, func(m Module) func() []model.Update { return m.Updates })
}

func (ms modules) Notices() []datastore.Notice {
	return collect(ms, func(m Module) func() []datastore.Notice { return m.Notices })
}

func (ms modules) Problems() []model.Problem {
	return collect(ms, func(m Module) func() []model.Problem { return m.Problems })
}

func (ms modules) ObjectProblems() []datastore.Notice {
	return collect(ms, func(m Module) func() []datastore.Notice { return m.ObjectProblems })
}

func (ms modules) Closed() map[model.PodID]string {
	all := map[model.PodID]string{}
	for _, m := range ms {
		if m.Closed != nil {
			maps.Copy(all, m.Closed())
		}
	}
	return all
}

func (ms modules) onEvent(e datastore.Event) {
	tell(ms, e, func(m Module) func(datastore.Event) { return m.OnEvent })
}

func (ms modules) onEnforced(revision uint64) {
	tell(ms, revision, func(m Module) func(uint64) { return m.OnEnforced })
}

func (ms modules) Status(s *control.Status) {
	tell(ms, s, func(m Module) func(*control.Status) { return m.Status })
}

func (ms modules) Served(to *control.Model) {
	tell(ms, to, func(m Module) func(*control.Model) { return m.Served })
}

func (ms modules) Measure(s *metrics.State) {
	tell(ms, s, func(m Module) func(*metrics.State) { return m.Measure })
}

func (ms modules) count(to *metrics.Metrics) {
	tell(ms, to, func(m Module) func(*metrics.Metrics) { return m.Count })
}

func (ms modules) onUpdate(u model.Update, revision uint64) {
	for _, m := range ms {
		if m.OnUpdate != nil {
			m.OnUpdate(u, revision)
		}
	}
}

func (ms modules) onFlush(partial func() map[model.PolicyID]bool, revision uint64) {
	var all map[model.PolicyID]bool
	for _, m := range ms {
		if m.OnFlush == nil {
			continue
		}
		if all == nil {
			all = partial()
		}
		m.OnFlush(all, revision)
	}
}

// onCycle returns the functions for a cycle that succeeds.
func (ms modules) onCycle() (succeeded []func()) {
	for _, m := range ms {
		if m.OnCycle != nil {
			succeeded = append(succeeded, m.OnCycle())
		}
	}
	return succeeded
}

func (ms modules) onForeign() {
	for _, m := range ms {
		if m.OnForeign != nil {
			m.OnForeign()
		}
	}
}

func (ms modules) onResync() {
	for _, m := range ms {
		if m.OnResync != nil {
			m.OnResync()
		}
	}
}
