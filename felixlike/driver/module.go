package driver

import (
	"context"

	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/felixlike/metrics"
	"github.com/felixlike/felixlike/model"
)

// Module is a feature beside the stages. The driver knows no feature: it calls these functions, each of which may be nil. All but Begin, Run and Problems
// run in the loop, so they return at once, and what they get must not be changed.
type Module struct {
	// Begin runs before the loop.
	Begin func()
	// Needs says what is missing that the first apply needs, or "".
	Needs func() string
	// Run runs until ctx ends, beside the loop. An error ends the agent.
	Run func(ctx context.Context) error
	// OnUpdate gets each update of the model, with the model's revision after it.
	OnUpdate func(u model.Update, revision uint64)
	// OnFlush follows updates that belong together. partial has the NetworkPolicies of which the model does not have the rules as written.
	OnFlush func(partial map[model.PolicyID]bool, revision uint64)
	// OnEnforced follows an apply of the backend in force, with the revision of the model that it has programmed.
	OnEnforced func(revision uint64)
	// OnPass begins a pass, when the managers have set the desired state. The function that it returns is called if the pass succeeds.
	OnPass func() (succeeded func())
	// OnForeign follows a repaired change of another program, and a change of the backend.
	OnForeign func()
	// Notices are reasons why the node is not ready although everything is programmed. A reason with a kind becomes an Event.
	Notices func() []datastore.Notice
	// Problems are problems of this node, for status.
	Problems func() []model.Problem
	// ObjectProblems are problems of users' objects, for status and Events.
	ObjectProblems func() []model.Problem
	// Status adds the module's part of status.
	Status func(s *control.Status)
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

func (ms modules) objectProblems() (all []model.Problem) {
	for _, m := range ms {
		if m.ObjectProblems != nil {
			all = append(all, m.ObjectProblems()...)
		}
	}
	return all
}

func (ms modules) onUpdate(u model.Update, revision uint64) {
	for _, m := range ms {
		if m.OnUpdate != nil {
			m.OnUpdate(u, revision)
		}
	}
}

func (ms modules) onFlush(partial func() map[model.PolicyID]bool, revision uint64) {
	for _, m := range ms {
		if m.OnFlush != nil {
			m.OnFlush(partial(), revision)
		}
	}
}

func (ms modules) onEnforced(revision uint64) {
	for _, m := range ms {
		if m.OnEnforced != nil {
			m.OnEnforced(revision)
		}
	}
}

// onPass returns the functions for a pass that succeeds.
func (ms modules) onPass() (succeeded []func()) {
	for _, m := range ms {
		if m.OnPass != nil {
			succeeded = append(succeeded, m.OnPass())
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

func (ms modules) notices() (all []datastore.Notice) {
	for _, m := range ms {
		if m.Notices != nil {
			all = append(all, m.Notices()...)
		}
	}
	return all
}

func (ms modules) problems() (all []model.Problem) {
	for _, m := range ms {
		if m.Problems != nil {
			all = append(all, m.Problems()...)
		}
	}
	return all
}

func (ms modules) status(s *control.Status) {
	for _, m := range ms {
		if m.Status != nil {
			m.Status(s)
		}
	}
}
