package managers

import (
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/rules"
	"github.com/felixlike/felixlike/tables"
)

// DeniedManager keeps the chains for packets that policy denies, and for packets to
// addresses that no Service has. The chains report these packets while somebody follows.
type DeniedManager struct {
	chains Chains
	render func(reported bool) []tables.Chain
	// told is the last DenialsUpdate since the chains were set, nil if there is none.
	told *bool
}

// NewDeniedManager returns a manager that wants the chains without reports.
func NewDeniedManager(chains Chains) *DeniedManager {
	return &DeniedManager{chains: chains, told: new(bool), render: func(reported bool) []tables.Chain {
		return []tables.Chain{rules.Denied(model.Ingress, reported), rules.Denied(model.Egress, reported), rules.NoService(reported)}
	}}
}

// NewNoServiceManager is NewDeniedManager for the host's table of the backend that
// judges in the switch.
func NewNoServiceManager(chains Chains) *DeniedManager {
	return &DeniedManager{chains: chains, told: new(bool), render: func(reported bool) []tables.Chain {
		return []tables.Chain{rules.NoService(reported)}
	}}
}

// OnUpdate takes a DenialsUpdate.
func (m *DeniedManager) OnUpdate(u model.Update) {
	if u, ok := u.(model.DenialsUpdate); ok {
		m.told = &u.Reported
	}
}

// CompleteDeferredWork sets the chains if reports were switched on or off.
func (m *DeniedManager) CompleteDeferredWork() {
	if m.told == nil {
		return
	}
	for _, c := range m.render(*m.told) {
		m.chains.UpdateChain(c)
	}
	m.told = nil
}
