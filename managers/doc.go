// Package managers turns typed updates into the desired state of the dataplane. Each
// concern has one manager with two methods. OnUpdate records an update and is cheap.
// CompleteDeferredWork brings the desired chains, sets, flows and host state up to date
// with all recorded updates. It calls the setters of the drivers below, in a
// deterministic order.
//
// Managers do no I/O: the driver (felixlike/) programs the desired state when it
// applies. The policy, endpoint, ipset, static, source and own-node managers serve the netfilter
// backends. The switch policy, host and host policy managers serve the openflow backend. The
// conntrack, forwarding, tunnel, tunnel port, route, sender, egress, service, translation and WireGuard managers
// serve every backend. The multitenant manager replaces the forwarding, tunnel and switch policy managers with pipelineVariant: openshift. They are tested against recording fakes of their small
// consumer interfaces, and on the real kernel by the packet property test in
// test/property.
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
	// CompleteDeferredWork sets the desired state for the recorded updates.
	CompleteDeferredWork()
}

// Chains is the interface of a table driver to managers.
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
	// Complete sets the chains that depend on changed verdicts.
	Complete()
}

// Flows is the interface of the OpenFlow driver to managers: groups of flows by key.
// The driver keeps render and calls it again when it sends the group's flows. So render
// must return the same flows each time until the group is set again.
type Flows interface {
	SetFlows(key string, render func() []openflow.Flow)
	RemoveFlows(key string)
}
