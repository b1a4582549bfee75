package iptables

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/internal/nfnetlink"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/tables/nftables/kernel"
)

// readHidden reads our chains and the rules that lead to them in the hidden tables, by netlink. It reads the comments of rules and their
// targets, not their texts.
func (t *tools) readHidden(f model.Family, s *saved) (err error) {
	c, err := nfnetlink.Dial(t.netns)
	if err != nil {
		return fmt.Errorf("connect to nftables: %w", err)
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	err = dumpHidden(c, unix.NFT_MSG_GETCHAIN, nfFamily(f), func(b []byte) {
		table := s.hiddenTable(nfnetlink.Text(nested(b, unix.NFTA_CHAIN_TABLE)))
		if name, ours := strings.CutPrefix(nfnetlink.Text(nested(b, unix.NFTA_CHAIN_NAME)), Prefix); ours && table != nil {
			table.chains[name] = &savedChain{}
		}
	})
	if err != nil {
		return fmt.Errorf("list the chains: %w", err)
	}
	err = dumpHidden(c, unix.NFT_MSG_GETRULE, nfFamily(f), func(b []byte) {
		if table := s.hiddenTable(nfnetlink.Text(nested(b, unix.NFTA_RULE_TABLE))); table != nil {
			table.hiddenRule(nfnetlink.Text(nested(b, unix.NFTA_RULE_CHAIN)), b)
		}
	})
	if err != nil {
		return fmt.Errorf("list the rules: %w", err)
	}
	for _, k := range s.hidden {
		s.tables[k].pin()
	}
	return nil
}

// hiddenTable returns the table of that name if it is hidden, or nil.
func (s *saved) hiddenTable(name string) *savedTable {
	for _, k := range s.hidden {
		if k.String() == name {
			return &s.tables[k]
		}
	}
	return nil
}

// hiddenRule takes a rule, as nf_tables lists it.
func (t *savedTable) hiddenRule(chain string, attributes []byte) {
	target, comments := partsOf(attributes)
	hash := ""
	for _, c := range comments {
		if hash == "" {
			hash = tables.HashInComment(c)
		}
	}
	if ours, ok := strings.CutPrefix(chain, Prefix); ok {
		if c := t.chains[ours]; c != nil {
			c.rules = append(c.rules, savedRule{hash: hash, hidden: true})
		}
		return
	}
	leads, e := strings.HasPrefix(target, Prefix), t.entered(chain)
	if !leads || hash == "" {
		if leads {
			t.strange = append(t.strange, strangeRule{chain, "-j " + target})
		}
		e.mixed = true
		return
	}
	text := ""
	for _, c := range comments {
		text += "-m comment --comment " + quote(c) + " "
	}
	e.texts, e.handles = append(e.texts, text+"-j "+target), append(e.handles, nfnetlink.Uint64(nested(attributes, unix.NFTA_RULE_HANDLE)))
	if !e.mixed {
		e.first++
	}
}

// partsOf returns the chain that a rule of nf_tables leads to, and its comments: those of the match of xtables, and that of nf_tables.
func partsOf(attributes []byte) (target string, comments []string) {
	for _, e := range nfnetlink.Attributes(nested(attributes, unix.NFTA_RULE_EXPRESSIONS)) {
		switch nfnetlink.Text(nested(e, unix.NFTA_EXPR_NAME)) {
		case "immediate":
			chain := nested(e, unix.NFTA_EXPR_DATA, unix.NFTA_IMMEDIATE_DATA, unix.NFTA_DATA_VERDICT, unix.NFTA_VERDICT_CHAIN)
			target = nfnetlink.Text(chain)
		case "match":
			if nfnetlink.Text(nested(e, unix.NFTA_EXPR_DATA, unix.NFTA_MATCH_NAME)) == "comment" {
				text, _, _ := strings.Cut(string(nested(e, unix.NFTA_EXPR_DATA, unix.NFTA_MATCH_INFO)), "\x00")
				comments = append(comments, text)
			}
		}
	}
	if comment := kernel.CommentIn(nested(attributes, unix.NFTA_RULE_USERDATA)); comment != nil {
		comments = append(comments, nfnetlink.Text(comment))
	}
	return target, comments
}

func nfFamily(f model.Family) byte {
	if f == model.IPv6 {
		return unix.NFPROTO_IPV6
	}
	return unix.NFPROTO_IPV4
}

// nftName returns the name of a family as nft has it.
func nftName(f model.Family) string {
	if f == model.IPv6 {
		return "ip6"
	}
	return "ip"
}

// unreadable says that the place's table is hidden.
func (p place) unreadable() string {
	return fmt.Sprintf("iptables-nft cannot show table %s of IPv%s: another program has written a rule to it with nft. Our rules in it are compared by their "+
		"comments only. Delete that rule, or let its program use a table of its own (nft list table %s %[1]s)", p.table(), p.family(), nftName(p.family()))
}
