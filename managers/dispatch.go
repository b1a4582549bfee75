package managers

import (
	"net/netip"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/rules"
	"github.com/felixlike/felixlike/tables"
)

// mapDispatcher dispatches through a driver's verdict maps.
type mapDispatcher struct{ maps tables.VerdictMaps }

// NewMapDispatcher returns a Dispatcher over verdict maps, and wants the maps
// of both directions and families.
func NewMapDispatcher(maps tables.VerdictMaps) Dispatcher {
	for _, d := range model.Directions() {
		for _, f := range model.Families() {
			maps.CreateMap(rules.DispatchMap(d, f), f)
		}
	}
	return mapDispatcher{maps}
}

func (m mapDispatcher) SetVerdict(d model.Direction, addr netip.Addr, verdict tables.Action) {
	m.maps.SetVerdict(rules.DispatchMap(d, model.FamilyOf(addr)), addr, verdict)
}

func (m mapDispatcher) RemoveVerdict(d model.Direction, addr netip.Addr) {
	m.maps.RemoveVerdict(rules.DispatchMap(d, model.FamilyOf(addr)), addr)
}

// Complete does nothing: the driver collects deltas itself.
func (m mapDispatcher) Complete() {}
