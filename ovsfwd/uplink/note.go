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

// The alias of a bridge's local port records the uplink with the moved addresses, and its old
// settings. The program that moves the addresses back may have no other record.
const (
	// aliasOf begins the alias; the name of the uplink follows.
	aliasOf = "felixlike: stands for "
	// filtering and the old value follow if the uplink's reverse-path filter was strict.
	filtering = " with rp_filter "
	// withoutGRO ends the alias if the uplink merged segments before.
	withoutGRO = " without gro"
)

// The values of rp_filter.
const (
	strict = "1"
	loose  = "2"
)

// taken is the content of the alias.
type taken struct {
	name string
	// filter is the uplink's old rp_filter, if note changed it.
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

// noted parses an alias; the name is empty for an alias of another program.
func noted(alias string) (t taken) {
	text, ok := strings.CutPrefix(alias, aliasOf)
	if !ok {
		return t
	}
	text, t.merged = strings.CutSuffix(text, withoutGRO)
	t.name, t.filter, _ = strings.Cut(text, filtering)
	return t
}

// note records the uplink in the alias of the bridge's local port. It turns off GRO of the
// uplink, because the switch cannot forward packets that are larger than the uplink's MTU. It
// makes a strict rp_filter loose: all routes lead to the bridge, and a strict filter would
// drop the packets that the host still takes by the uplink (shield.go).
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
		// Keep the old settings that an earlier call recorded.
		now.filter, now.merged = cmp.Or(filter, have.filter), merges || have.merged
	}
	if now != have {
		if err := netlink.LinkSetAlias(m.to, now.alias()); err != nil {
			return fmt.Errorf("record on %s that it has the addresses of %s: %w", m.to.Attrs().Name, from, err)
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

// strictFilter returns the interface's own rp_filter if its reverse-path filter is strict, else
// "". The kernel uses the maximum of the interface's setting and that of "all".
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

// StandsFor returns the uplink with the addresses that moved to the bridge's local port. It
// returns "" if there is no such port, or if it has no uplink's addresses.
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

// asBefore restores the uplink's GRO and rp_filter. It leaves an rp_filter alone that has
// another value than note set: another program has set it.
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
