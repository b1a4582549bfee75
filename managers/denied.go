package managers

import (
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/rules"
	"github.com/felixlike/felixlike/tables"
)

// DeniedManager keeps the chains for packets that policy denies or rejects, and for packets to addresses that no Service
// has. The chains report these packets while a client follows.
type DeniedManager struct {
	chains Chains
	render func(reported bool) []tables.Chain
	// pending is the last DenialsUpdate since the chains were set, nil if there is none.
	pending *bool
}

// NewDeniedManager returns a manager that wants the chains without reports.
func NewDeniedManager(chains Chains, r *rules.Renderer) *DeniedManager {
	return &DeniedManager{chains: chains, pending: new(bool), render: func(reported bool) []tables.Chain {
		all := []tables.Chain{rules.NoService(reported)}
		for _, d := range model.Directions() {
			all = append(all, rules.Denied(d, reported), r.Rejected(d, reported))
		}
		return append(all, r.Answers()...)
	}}
}

// NewNoServiceManager is NewDeniedManager for the host's table of the backend that
// judges in the switch.
func NewNoServiceManager(chains Chains) *DeniedManager {
	return &DeniedManager{chains: chains, pending: new(bool), render: func(reported bool) []tables.Chain {
		return []tables.Chain{rules.NoService(reported)}
	}}
}

// OnUpdate takes a DenialsUpdate.
func (m *DeniedManager) OnUpdate(u model.Update) {
	if u, ok := u.(model.DenialsUpdate); ok {
		m.pending = &u.Reported
	}
}

// CompleteDeferredWork sets the chains if reports were switched on or off.
func (m *DeniedManager) CompleteDeferredWork() {
	if m.pending == nil {
		return
	}
	for _, c := range m.render(*m.pending) {
		m.chains.UpdateChain(c)
	}
	m.pending = nil
}
