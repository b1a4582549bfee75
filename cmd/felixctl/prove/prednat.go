package prove

import (
	"github.com/felixlike/felixlike/cmd/felixctl/dump"
	"github.com/felixlike/felixlike/rules"
	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/tables/nftables"
)

// ofHosts reports whether a table has the policies of the node itself.
func ofHosts(t *dump.Table) bool { return judged(t) && t.Name == nftables.HostsTable }

// beforeDNAT reports whether a base chain judges packets by the destination before Services translate it. The proof knows only the one after that: it does
// not walk such a chain.
func beforeDNAT(t *dump.Table, c *dump.Chain) bool {
	return ofHosts(t) && c.Hook != nil && c.Hook.Point == tables.HookPrerouting.String()
}

// preDNAT returns the part of a table with the policies of the node that judges before DNAT, with its sets; nil if there is none.
func preDNAT(t *dump.Table) *dump.Table {
	part := &dump.Table{Dialect: t.Dialect, Family: t.Family, Name: t.Name}
	var add func(c *dump.Chain)
	add = func(c *dump.Chain) {
		if c == nil || part.Chain(c.Name) != nil {
			return
		}
		part.Chains = append(part.Chains, c)
		for _, r := range c.Rules {
			for _, m := range r.Matches {
				for name := range tables.SetsOf(m) {
					if s := t.Set(name); s != nil && part.Set(name) == nil {
						part.Sets = append(part.Sets, s)
					}
				}
			}
			if r.Action != nil {
				add(t.Chain(tables.Target(r.Action)))
			}
		}
	}
	for _, c := range t.Chains {
		if beforeDNAT(t, c) {
			add(c)
		}
	}
	if len(part.Chains) == 0 {
		return nil
	}
	return part
}

// preDNATPlace names that part.
const preDNATPlace = "policies of the node before DNAT (table inet " + nftables.HostsTable + " chain " + rules.ChainHostsPrerouting + ")"
