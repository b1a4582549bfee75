package backend

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"

	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
	"github.com/felixlike/felixlike/tables/iptables"
)

// New returns the configured backend. It reads the kernel only to detect the variant of
// iptables in use, if the configuration does not name one.
func New(ctx context.Context, c Config) (Backend, error) {
	switch c.Name {
	case config.NFTables:
		return newNFTables(c, inScratch), nil
	case config.IPTablesLegacy:
		c.Variant = iptables.Legacy
		return newIPTables(c, inScratch), nil
	case config.IPTablesNFT:
		c.Variant = iptables.NFT
		return newIPTables(c, inScratch), nil
	case config.IPTables:
		why := "iptables variant " + c.Variant.String() + ": set in the configuration"
		if c.Variant == iptables.Auto {
			var err error
			if c.Variant, why, err = iptables.Detect(ctx, c.NetNS); err != nil {
				return nil, err
			}
		}
		b := newIPTables(c, inScratch)
		b.why = why
		return b, nil
	case config.OpenFlow:
		if c.Multitenant() {
			return newMultitenant(c), nil
		}
		return newOpenFlow(c, inScratch), nil
	}
	return nil, fmt.Errorf("%q is not one of %s", c.Name, strings.Join(config.BackendNames(), ", "))
}

// stays returns the backend that Remove must keep when it removes the named one. Both
// variants of iptables use the same sets, so the sets go with the second variant.
func stays(name, keep string) string {
	if name == config.IPTablesLegacy && !usesSets(keep) {
		return config.IPTablesNFT
	}
	return keep
}

// Remove removes all objects of backends in this network namespace and in the config's
// switch, except for the backend that the config names ("" for none). It returns the names
// of the removed backends. It skips a backend without an error if its tools are not
// installed: without them, it cannot find its objects.
func Remove(ctx context.Context, keep Config) (gone []string, err error) {
	var errs []error
	for _, name := range config.BackendsInForce() {
		if name == keep.Name {
			continue
		}
		switch err := removeBackend(ctx, keep, name); {
		case errors.Is(err, exec.ErrNotFound):
		case err != nil:
			errs = append(errs, fmt.Errorf("remove backend %s: %w", name, err))
		default:
			gone = append(gone, name)
		}
	}
	return gone, errors.Join(errs...)
}

func removeBackend(ctx context.Context, keep Config, name string) error {
	b, err := New(ctx, keep.ForOther(name))
	if err != nil {
		return err
	}
	return errors.Join(b.Remove(ctx, stays(name, keep.Name)), b.Close())
}

// LeftElsewhere returns the names of the backends with another enforcement point than place
// that have objects here.
func LeftElsewhere(ctx context.Context, c Config, place Place) (names []string, err error) {
	var errs []error
	for _, name := range config.BackendsInForce() {
		b, err := New(ctx, c.ForOther(name))
		if err != nil {
			return nil, err
		}
		var found bool
		if b.Place() != place {
			found, err = b.Left(ctx)
		}
		if err = errors.Join(err, b.Close()); err != nil && !errors.Is(err, exec.ErrNotFound) {
			errs = append(errs, fmt.Errorf("backend %s: %w", name, err))
		}
		if found {
			names = append(names, name)
		}
	}
	return names, errors.Join(errs...)
}

// LeadsTo returns the enforcement point that the bridge's forwarding flows lead packets to. Without a switch, and without flows, it is InKernel.
func LeadsTo(ctx context.Context, s Switch) (Place, error) {
	conn, err := openflow.Dial(ctx, s.ManagementSocket())
	if NoSwitch(err) {
		return InKernel, nil
	}
	if err != nil {
		return InKernel, err
	}
	defer conn.Close()
	return leadsTo(ctx, conn)
}

func leadsTo(ctx context.Context, conn *openflow.Conn) (Place, error) {
	forwarding, err := conn.Dump(ctx, pipeline.Owner)
	if slices.ContainsFunc(forwarding, func(f openflow.Installed) bool { return pipeline.LeadsToPolicy(f.Table) }) {
		return InSwitch, err
	}
	return InKernel, err
}

// NewNFTables returns the backend in one private nftables table, for the node
// of that name. With masquerade, pods are hidden behind the node's address on
// the way out of the cluster.
func NewNFTables(node string, masquerade bool) Backend {
	return newNFTables(Config{Node: node, Masquerade: masquerade}, inScratch)
}

// NewIPTables returns the backend in iptables of the variant, with the
// kernel's ipsets, for the node of that name. With masquerade, pods are hidden
// behind the node's address on the way out of the cluster.
func NewIPTables(node string, masquerade bool, variant iptables.Variant) Backend {
	return newIPTables(Config{Node: node, Masquerade: masquerade, Variant: variant}, inScratch)
}
