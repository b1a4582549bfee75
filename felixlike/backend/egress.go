package backend

import (
	"context"
	"time"

	"github.com/felixlike/felixlike/internal/namespace"
	"github.com/felixlike/felixlike/ipsets"
	"github.com/felixlike/felixlike/managers"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/conntrack"
	"github.com/felixlike/felixlike/ovsfwd/hostnet"
	"github.com/felixlike/felixlike/rules"
	"github.com/felixlike/felixlike/tables/nftables"
)

// Names of the stages of Egresses.
const (
	EgressStage          = "egress"
	EgressAddressesStage = "egress addresses"
)

// Egress returns the stage of the table that gives packets of pods to the outside the addresses of Egresses, which is the
// same beside every backend, and the stage of the addresses that this node adds to an interface for that.
//
// Without an Egress the first one removes the table. While it fails, later stages do not run, because a pod must not
// leave with another address. A missing address harms only its own pods, which get no answers.
func Egress(c Config, addresses *hostnet.Addresses) (table, assigned Stage) {
	return egress(c, addresses, endAway)
}

func egress(c Config, addresses *hostnet.Addresses, endAway func(netns int) error) (table, assigned Stage) {
	nft := nftables.New(nftables.Options{Table: nftables.EgressTable, NetNS: c.NetNS})
	m := EgressManager(c, nft, nft)
	remove, programmed, first := &remover{table: nft}, false, true
	table = Stage{
		Name: EgressStage, Required: true, Timeout: 30 * time.Second,
		Managers:   []managers.Manager{m},
		Invalidate: remove.invalidate, Watch: nft.Watch,
		Apply: func(ctx context.Context) (Applied, error) {
			if first {
				if s, err := nft.Snapshot(ctx); err == nil { // without nf_tables there is no table
					programmed, first = s.Exists, false // by an agent before this one
				}
			}
			if m.Needed() {
				programmed = true
				remove.again()
				did, err := nft.Apply(ctx)
				return applied(did), err
			}
			if programmed {
				remove.again()
				// The table without pods still leads packets of connections that leave by other nodes away.
				if _, err := nft.Apply(ctx); err != nil {
					return Applied{}, err
				}
				if err := endAway(c.NetNS); err != nil {
					return Applied{}, Incomplete{err}
				}
				programmed = false
			}
			return remove.apply(ctx)
		},
	}
	assigned = Stage{
		Name: EgressAddressesStage, BestEffort: true, Timeout: 30 * time.Second,
		Apply: func(context.Context) (Applied, error) {
			a := m.Assigned()
			if a == nil {
				return Applied{}, nil
			}
			writes, err := addresses.Apply(*a)
			return Applied{Writes: writes}, err
		},
	}
	return table, assigned
}

// EgressManager returns the manager of that table, which renders into chains and sets.
func EgressManager(c Config, chains managers.Chains, sets ipsets.Sets) *managers.EgressManager {
	return managers.NewEgressManager(c.Node, rules.NewRenderer(model.GatewayPort, rules.NFTablesNameLength), chains, sets)
}

// endAway forgets the connections that leave by another node. Without the table, their packets would leave by this one, with the
// pod's address as their source.
func endAway(netns int) error {
	return inNamespace(netns, func() error {
		k, err := conntrack.OpenKernel()
		if err != nil {
			return err
		}
		defer k.Close()
		var away []conntrack.Connection
		if err := k.Dump(func(c conntrack.Connection) {
			if c.Mark&rules.MarkAway != 0 {
				away = append(away, c)
			}
		}); err != nil {
			return err
		}
		_, err = k.Delete(away)
		return err
	})
}

// inNamespace runs f in the network namespace of a descriptor; zero is the process's own.
func inNamespace(netns int, f func() error) error {
	if netns == 0 {
		return f()
	}
	return namespace.In(netns, f)
}
