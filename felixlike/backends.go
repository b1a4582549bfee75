package felixlike

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"github.com/felixlike/felixlike/tables/iptables"
)

// Names of the backends. IPTables leaves the variant to the setting
// iptables.variant, or to what is found on the node.
const (
	NFTables       = "nftables"
	IPTables       = "iptables"
	IPTablesLegacy = "iptables-legacy"
	IPTablesNFT    = "iptables-nft"
)

// Choice says which backend is wanted, and for whom.
type Choice struct {
	// Name is one of BackendNames; Variant the one that IPTables stands for.
	Name    string
	Variant iptables.Variant
	// Node is the node's name. With Masquerade, pods are hidden behind the node's
	// address on the way out of the cluster.
	Node       string
	Masquerade bool
	// NetNS is the descriptor of the network namespace to program; the
	// caller's if zero.
	NetNS int
}

// NewBackend returns the backend of that choice. It touches the kernel only to
// look which variant of iptables is in use, if that is left to it.
func NewBackend(ctx context.Context, c Choice) (Backend, error) {
	switch c.Name {
	case NFTables:
		return newNFTables(c), nil
	case IPTablesLegacy:
		c.Variant = iptables.Legacy
		return newIPTables(c), nil
	case IPTablesNFT:
		c.Variant = iptables.NFT
		return newIPTables(c), nil
	case IPTables:
		why := "iptables variant " + c.Variant.String() + ": it is set so"
		if c.Variant == iptables.Auto {
			var err error
			if c.Variant, why, err = iptables.Detect(ctx, c.NetNS); err != nil {
				return Backend{}, err
			}
		}
		b := newIPTables(c)
		b.Why = why
		return b, nil
	}
	return Backend{}, fmt.Errorf("%q is not one of %s", c.Name, strings.Join(BackendNames(), ", "))
}

// BackendNames lists the names that NewBackend takes.
func BackendNames() []string { return []string{NFTables, IPTables, IPTablesLegacy, IPTablesNFT} }

// kinds lists the backends as they are in force.
func kinds() []string { return []string{NFTables, IPTablesLegacy, IPTablesNFT} }

// leftoversStage is the name of the stage that leftovers returns.
const leftoversStage = "leftovers"

// leftovers returns the stage that removes, once the backend in force is in
// place, what another one has left: before a restart with another setting, or in a
// change that a crash has ended. It only ever denies more, and some of it may not
// be possible to look for: so it is told and tried again, and holds nothing up.
func leftovers(inForce string) Stage {
	done := false
	return Stage{Name: leftoversStage, Aside: true, Timeout: 60 * time.Second, Apply: func(ctx context.Context) (Applied, error) {
		if done {
			return Applied{}, nil
		}
		_, err := RemoveBackends(ctx, inForce)
		done = err == nil
		return Applied{}, err
	}}
}

// stays returns the backend that still uses what the named one does: sets go with
// the last of those that use them.
func stays(name, keep string) string {
	if name == IPTablesLegacy && !usesSets(keep) {
		return IPTablesNFT
	}
	return keep
}

// RemoveBackends removes all that backends own in this network namespace, but
// for the one to keep (or "" for none), and returns the names of those of which
// nothing is left. A backend whose tools are not there cannot have left
// anything that they could tell of: it is not named, and no error.
func RemoveBackends(ctx context.Context, keep string) (gone []string, err error) {
	var errs []error
	for _, name := range kinds() {
		if name == keep {
			continue
		}
		b, err := NewBackend(ctx, Choice{Name: name})
		if err == nil {
			err = errors.Join(b.Remove(ctx, stays(name, keep)), b.close())
		}
		switch {
		case errors.Is(err, exec.ErrNotFound):
		case err != nil:
			errs = append(errs, fmt.Errorf("remove backend %s: %w", name, err))
		default:
			gone = append(gone, name)
		}
	}
	return gone, errors.Join(errs...)
}
