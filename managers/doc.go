// Package managers turns typed updates into what each concern wants of the
// dataplane: one manager a concern, each with two verbs. OnUpdate takes note
// of an update and is cheap; CompleteDeferredWork brings chains, sets, flows
// and host state up to date with all that was noted, in a deterministic
// order, by calling the setters of the drivers below.
//
// Managers do no I/O: what they set is programmed when the driver (felixlike/)
// applies it. The policy, endpoint, ipset, static and source managers serve both
// netfilter backends, switch policy and host the one whose policy is in the
// switch; forwarding, tunnel and route serve every backend. They are tested against recording fakes of their small consumer interfaces, and
// on the real kernel by the packet property test in test/property.
package managers

import (
	"net/netip"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
	"github.com/felixlike/felixlike/tables"
)

// Manager is one concern.
type Manager interface {
	// OnUpdate takes note of an update. Updates that are not the manager's
	// are ignored.
	OnUpdate(model.Update)
	// CompleteDeferredWork sets what follows from the updates noted.
	CompleteDeferredWork()
}

// Chains is what managers ask of a table driver.
type Chains interface {
	UpdateChain(tables.Chain)
	RemoveChain(name string)
}

// Dispatcher maps a pod's addresses to the verdict or chain of a direction.
// The nftables backend has verdict maps for it; the iptables backend renders
// prefix trees.
type Dispatcher interface {
	SetVerdict(d model.Direction, addr netip.Addr, verdict tables.Action)
	RemoveVerdict(d model.Direction, addr netip.Addr)
	// Complete sets what follows from the verdicts that changed.
	Complete()
}

// Flows is what managers ask of the OpenFlow side: groups of flows by key. What
// renders a group is kept and called again when its flows are sent, so it
// returns the same each time until the group is set again.
type Flows interface {
	SetFlows(key string, render func() []openflow.Flow)
	RemoveFlows(key string)
}
