package uplink

import (
	"errors"
	"fmt"
	"strings"

	"github.com/vishvananda/netlink"

	"github.com/felixlike/felixlike/internal/ethtool"
)

// The alias of a bridge's local port says what it has taken: whoever has to give
// it back may know nothing else.
const (
	// aliasOf begins it; the name of the uplink follows.
	aliasOf = "felixlike: stands for "
	// withoutGRO ends it if the uplink merged segments before.
	withoutGRO = " without gro"
)

// note says on the bridge's local port whose addresses it takes, and has the
// uplink merge no segments: packets that are larger than the uplink's MTU do not
// fit the switch.
func (m *mover) note() error {
	from, alias := m.from.Attrs().Name, aliasOf+m.from.Attrs().Name
	merges, err := ethtool.Get(from, ethtool.GRO)
	if err != nil {
		return err
	}
	if merges {
		alias += withoutGRO
	}
	if have := m.to.Attrs().Alias; have != alias && (merges || have != alias+withoutGRO) {
		if err := netlink.LinkSetAlias(m.to, alias); err != nil {
			return fmt.Errorf("note on %s that it stands for %s: %w", m.to.Attrs().Name, from, err)
		}
	}
	if !merges {
		return nil
	}
	return ethtool.Set(from, ethtool.GRO, false)
}

// StandsFor returns the interface whose addresses the bridge's local port has
// taken; none if there is no such port, or it has taken nothing.
func StandsFor(bridge string) (string, error) {
	link, err := netlink.LinkByName(bridge)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("bridge port %s: %w", bridge, err)
	}
	name, noted := strings.CutPrefix(link.Attrs().Alias, aliasOf)
	if !noted {
		return "", nil
	}
	return strings.TrimSuffix(name, withoutGRO), nil
}

// unmerged has the uplink merge segments again, if it did.
func (m *mover) unmerged() error {
	if !strings.HasSuffix(m.from.Attrs().Alias, withoutGRO) {
		return nil
	}
	return ethtool.Set(m.to.Attrs().Name, ethtool.GRO, true)
}
