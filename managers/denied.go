package managers

import (
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/rules"
)

// DeniedManager keeps the chains that drop what policy denies, and has them tell of
// it for as long as that is wanted.
type DeniedManager struct {
	chains Chains
	// told is nil if nothing has changed.
	told *bool
}

// NewDeniedManager returns a manager that wants the chains without reports.
func NewDeniedManager(chains Chains) *DeniedManager {
	return &DeniedManager{chains: chains, told: new(bool)}
}

// OnUpdate takes a DenialsUpdate.
func (m *DeniedManager) OnUpdate(u model.Update) {
	if u, ok := u.(model.DenialsUpdate); ok {
		m.told = &u.Reported
	}
}

// CompleteDeferredWork sets the chains, if there are to be others.
func (m *DeniedManager) CompleteDeferredWork() {
	if m.told == nil {
		return
	}
	for _, d := range model.Directions() {
		m.chains.UpdateChain(rules.Denied(d, *m.told))
	}
	m.told = nil
}
