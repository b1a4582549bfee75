package uplink

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/tables/nftables"
)

const (
	// shieldTable is the nftables table that keeps the host from receiving packets twice,
	// except TCP (see shield).
	shieldTable = "felixlike-uplink"
	// shieldPriority is before everything else at its hook, connection tracking
	// included.
	shieldPriority = -400
	// shieldTimeout bounds the exchange with the kernel.
	shieldTimeout = 5 * time.Second
)

// shield makes the host ignore packets that come in by the uplink: the userspace switch
// reads them there, and hands them to the host by the bridge's local port. Without the
// shield the kernel would accept them a second time, since it accepts packets to its
// addresses on any interface. Datagrams would arrive twice, and the kernel would answer
// tunnel packets with "port unreachable".
//
// The host may receive TCP twice, which does no harm. It must: with offload, a segment from a
// neighbour on a veth or virtio device has no checksum yet, or is larger than the MTU, and
// the switch drops it ("Dropped packet: Too big. GRO/TSO enabled?"). So the kernel's copy is
// the only good one.
//
// It writes nothing if the shield exists.
func shield(name string) error {
	err := onShield(func(ctx context.Context, table *nftables.Table) error {
		table.UpdateChain(tables.Chain{
			Name: "prerouting",
			Hook: &tables.Hook{Type: tables.HookFilter, Point: tables.HookPrerouting, Priority: shieldPriority},
			Rules: []tables.Rule{{
				Matches: []tables.Match{
					tables.MatchInterface{Side: tables.Source, Name: name},
					tables.MatchProtocol{Protocol: model.TCP, Negated: true},
				},
				Action: tables.Drop{},
			}},
		})
		_, err := table.Apply(ctx)
		return err
	})
	if err != nil {
		return fmt.Errorf("shield of %s: %w", name, err)
	}
	return nil
}

// Unshield removes the shield; it is no error if there is none.
func Unshield() error {
	if err := onShield(func(ctx context.Context, table *nftables.Table) error { return table.Remove(ctx) }); err != nil {
		return fmt.Errorf("remove the uplink's shield: %w", err)
	}
	return nil
}

// onShield runs a transaction on the shield's table in the caller's network namespace.
func onShield(do func(context.Context, *nftables.Table) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), shieldTimeout)
	defer cancel()
	table := nftables.New(nftables.Options{Table: shieldTable})
	return errors.Join(do(ctx, table), table.Close())
}
