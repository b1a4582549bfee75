package uplink

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/vishvananda/netlink"

	"github.com/felixlike/felixlike/internal/ethtool"
	"github.com/felixlike/felixlike/internal/sysctl"
)

// The alias of a bridge's local port says what it has taken, and how that was before:
// whoever has to give it back may know nothing else.
const (
	// aliasOf begins it; the name of the uplink follows.
	aliasOf = "felixlike: stands for "
	// filtering and a value follow if the uplink's reverse-path filter was strict.
	filtering = " with rp_filter "
	// withoutGRO ends it if the uplink merged segments before.
	withoutGRO = " without gro"
)

// The values of rp_filter.
const (
	strict = "1"
	loose  = "2"
)

// taken is what the alias says.
type taken struct {
	name string
	// filter was the uplink's own setting, if that was changed.
	filter string
	merged bool
}

func (t taken) alias() string {
	alias := aliasOf + t.name
	if t.filter != "" {
		alias += filtering + t.filter
	}
	if t.merged {
		alias += withoutGRO
	}
	return alias
}

// noted reads an alias; the name is empty if it is another one.
func noted(alias string) (t taken) {
	text, ok := strings.CutPrefix(alias, aliasOf)
	if !ok {
		return t
	}
	text, t.merged = strings.CutSuffix(text, withoutGRO)
	t.name, t.filter, _ = strings.Cut(text, filtering)
	return t
}

// note says on the bridge's local port whose addresses it takes, and has the
// uplink merge no segments: packets that are larger than the uplink's MTU do not
// fit the switch. And it has the uplink take packets although all routes lead to the
// bridge: what the host still takes by the uplink (shield.go) would be lost.
func (m *mover) note() error {
	from := m.from.Attrs().Name
	merges, err := ethtool.Get(from, ethtool.GRO)
	if err != nil {
		return err
	}
	filter, err := strictFilter(from)
	if err != nil {
		return err
	}
	have, now := noted(m.to.Attrs().Alias), taken{from, filter, merges}
	if have.name == from {
		// What an earlier call has changed was so before.
		now.filter, now.merged = cmp.Or(filter, have.filter), merges || have.merged
	}
	if now != have {
		if err := netlink.LinkSetAlias(m.to, now.alias()); err != nil {
			return fmt.Errorf("note on %s that it stands for %s: %w", m.to.Attrs().Name, from, err)
		}
	}
	if filter != "" {
		err = sysctl.Write(filterKey(from), loose)
	}
	if merges {
		err = errors.Join(err, ethtool.Set(from, ethtool.GRO, false))
	}
	return err
}

func filterKey(name string) string { return "net/ipv4/conf/" + name + "/rp_filter" }

// strictFilter returns an interface's own setting of a reverse-path filter that is
// strict, and nothing of another one. The kernel takes the higher one of that and the
// setting of all.
func strictFilter(name string) (string, error) {
	own, err := sysctl.Read(filterKey(name))
	if err != nil {
		return "", err
	}
	all, err := sysctl.Read(filterKey("all"))
	if err != nil || max(own, all) != strict {
		return "", err
	}
	return own, nil
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
	return noted(link.Attrs().Alias).name, nil
}

// asBefore has the uplink merge segments and filter as it did. A filter that is not as
// note has set it is somebody else's.
func (m *mover) asBefore() error {
	was, name := noted(m.from.Attrs().Alias), m.to.Attrs().Name
	var err error
	if was.filter != "" {
		var now string
		if now, err = sysctl.Read(filterKey(name)); now == loose {
			err = sysctl.Write(filterKey(name), was.filter)
		}
	}
	if was.merged {
		err = errors.Join(err, ethtool.Set(name, ethtool.GRO, true))
	}
	return err
}
