package iptables

import (
	"fmt"
	"slices"
	"strings"

	nft "github.com/google/nftables"
	"github.com/google/nftables/expr"

	"github.com/felixlike/felixlike/model"
)

// removeHidden deletes all chains with our prefix in the tables of the nft variant, with the rules that lead to them, by netlink. It is for
// tables that iptables cannot show, because another program has written to them with nft. It is one transaction, and touches no other rule.
func removeHidden(netns int, f model.Family) error {
	var options []nft.ConnOption
	if netns != 0 {
		options = append(options, nft.WithNetNSFd(netns))
	}
	c, err := nft.New(options...)
	if err != nil {
		return fmt.Errorf("connect to nftables: %w", err)
	}
	family := nft.TableFamilyIPv4
	if f == model.IPv6 {
		family = nft.TableFamilyIPv6
	}
	chains, err := c.ListChainsOfTableFamily(family)
	if err != nil {
		return fmt.Errorf("list the chains: %w", err)
	}
	var ours []*nft.Chain
	for _, chain := range chains {
		if _, known := parseKernelTable(chain.Table.Name); !known {
			continue
		}
		if strings.HasPrefix(chain.Name, Prefix) {
			ours = append(ours, chain)
			continue
		}
		all, err := c.GetRules(chain.Table, chain)
		if err != nil {
			return fmt.Errorf("read chain %s of table %s: %w", chain.Name, chain.Table.Name, err)
		}
		for _, r := range all {
			if slices.ContainsFunc(r.Exprs, leadsToOurs) {
				if err := c.DelRule(r); err != nil {
					return fmt.Errorf("delete a rule of chain %s of table %s: %w", chain.Name, chain.Table.Name, err)
				}
			}
		}
	}
	for _, chain := range ours {
		c.FlushChain(chain)
	}
	for _, chain := range ours {
		c.DelChain(chain)
	}
	if err := c.Flush(); err != nil {
		return fmt.Errorf("delete the chains by netlink: %w", err)
	}
	return nil
}

// leadsToOurs reports whether an expression is a jump to a chain of ours.
func leadsToOurs(e expr.Any) bool {
	v, ok := e.(*expr.Verdict)
	return ok && strings.HasPrefix(v.Chain, Prefix)
}
