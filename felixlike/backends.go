package felixlike

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/ovsfwd/ovsdb"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
	"github.com/felixlike/felixlike/tables/iptables"
)

// Choice says which backend is wanted, and for whom.
type Choice struct {
	// Name is one of config.BackendNames; Variant the one that IPTables stands for.
	Name    string
	Variant iptables.Variant
	// Node is the node's name. With Masquerade, pods are hidden behind the node's
	// address on the way out of the cluster.
	Node       string
	Masquerade bool
	// NetNS is the descriptor of the network namespace to program; the
	// caller's if zero.
	NetNS int
	// Switch is where the bridge is; only OpenFlow asks.
	Switch Switch
	// CommonFrom replaces managers.CommonFrom and its like if it is not zero.
	CommonFrom int
}

// Switch says where a bridge is, and what the node's pipeline has to know.
type Switch struct {
	// RunDir holds the sockets of Open vSwitch.
	RunDir, Bridge string
	// Node has the bridge's ports and settings; addresses come with the model.
	Node pipeline.Node
}

// management is where the bridge speaks OpenFlow.
func (s Switch) management() string { return filepath.Join(s.RunDir, s.Bridge+".mgmt") }

// datapath is the type of the bridge's datapath.
func (s Switch) datapath() string {
	if s.Node.Userspace {
		return ovsdb.DatapathNetdev
	}
	return ovsdb.DatapathSystem
}

// NewBackend returns the backend of that choice. It touches the kernel only to
// look which variant of iptables is in use, if that is left to it.
func NewBackend(ctx context.Context, c Choice) (Backend, error) {
	switch c.Name {
	case config.NFTables:
		return newNFTables(c), nil
	case config.IPTablesLegacy:
		c.Variant = iptables.Legacy
		return newIPTables(c), nil
	case config.IPTablesNFT:
		c.Variant = iptables.NFT
		return newIPTables(c), nil
	case config.IPTables:
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
	case config.OpenFlow:
		return newOpenFlow(c), nil
	}
	return Backend{}, fmt.Errorf("%q is not one of %s", c.Name, strings.Join(config.BackendNames(), ", "))
}

// forOther returns the choice of a backend of another kind for the same node.
func (c Choice) forOther(name string) Choice {
	c.Name = name
	return c
}

// stays returns the backend that still uses what the named one does: sets go with
// the last of those that use them.
func stays(name, keep string) string {
	if name == config.IPTablesLegacy && !usesSets(keep) {
		return config.IPTablesNFT
	}
	return keep
}

// RemoveBackends removes all that backends own in this network namespace and
// in the switch of the choice, but for the one that it names (or "" for none), and
// returns the names of those of which nothing is left. A backend whose tools are
// not there cannot have left anything that they could tell of: it is not named,
// and no error.
func RemoveBackends(ctx context.Context, keep Choice) (gone []string, err error) {
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

func removeBackend(ctx context.Context, keep Choice, name string) error {
	b, err := NewBackend(ctx, keep.forOther(name))
	if err != nil {
		return err
	}
	return errors.Join(b.Remove(ctx, stays(name, keep.Name)), b.close())
}

// leftElsewhere reports whether a backend that judges in another place than the
// one of the choice has left anything.
func leftElsewhere(ctx context.Context, c Choice, place Place) (bool, error) {
	var errs []error
	for _, name := range config.BackendsInForce() {
		b, err := NewBackend(ctx, c.forOther(name))
		if err != nil {
			return false, err
		}
		var found bool
		if b.Place != place {
			found, err = b.Left(ctx)
		}
		if err = errors.Join(err, b.close()); err != nil && !errors.Is(err, exec.ErrNotFound) {
			errs = append(errs, fmt.Errorf("backend %s: %w", name, err))
		}
		if found {
			return true, nil
		}
	}
	return false, errors.Join(errs...)
}
