package dump

import (
	"fmt"
	"strings"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
)

// Dialect is the language in which a table was listed, which is also the one
// that it is written in.
type Dialect uint8

// The two dialects. A table that iptables-nft keeps in nftables is of either,
// by the tool that listed it.
const (
	NFT Dialect = iota + 1
	IPTables
)

// String returns "nft" or "iptables".
func (d Dialect) String() string {
	switch d {
	case NFT:
		return "nft"
	case IPTables:
		return "iptables"
	}
	return fmt.Sprintf("dialect(%d)", uint8(d))
}

// MarshalText writes the dialect's name.
func (d Dialect) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// Table is one table of netfilter.
type Table struct {
	Dialect Dialect `json:"dialect"`
	// Family is nft's word: "inet", "ip", "ip6", or a family that felixlike does not
	// use. Tables of iptables are "ip" or "ip6".
	Family string `json:"family"`
	Name   string `json:"name"`
	// Chains are in the order of the listing.
	Chains []*Chain `json:"chains,omitempty"`
	// Sets are those of nftables, verdict maps among them.
	Sets []*Set `json:"sets,omitempty"`
	// Foreign are objects of other kinds (flowtables, counters, ...), as text.
	Foreign []string `json:"foreign,omitempty"`
}

// Chain returns the chain of that name, or nil.
func (t *Table) Chain(name string) *Chain {
	for _, c := range t.Chains {
		if c.Name == name {
			return c
		}
	}
	return nil
}

// Set returns the table's own set or verdict map of that name, or nil.
func (t *Table) Set(name string) *Set { return setNamed(t.Sets, name) }

// IPFamily returns the family of the table's packets, or zero for both or none.
func (t *Table) IPFamily() model.Family {
	switch t.Family {
	case "ip":
		return model.IPv4
	case "ip6":
		return model.IPv6
	}
	return 0
}

// Chain is a list of rules, and a base chain if Hook is not nil.
type Chain struct {
	Name string `json:"name"`
	Hook *Hook  `json:"hook,omitempty"`
	// Policy is the verdict at the end of a base chain: "accept" or "drop".
	Policy string `json:"policy,omitempty"`
	Rules  []Rule `json:"rules,omitempty"`
}

// Hook is the hook of a base chain. The kernel's chains of iptables have that of
// their table: mangle FORWARD is "filter", "forward", -150.
type Hook struct {
	// Type is "filter", "nat" or "route", Point "forward", "input", ...
	Type     string `json:"type"`
	Point    string `json:"point"`
	Priority int32  `json:"priority"`
	// Device is that of an ingress or egress chain.
	Device string `json:"device,omitempty"`
}

// Rule is one rule. It is either typed (Matches and Action) or Foreign.
type Rule struct {
	// Rule has matches and action. Comment is the rule's own comment without the hash; the
	// kernel may have cut it. Sets and chains have their kernel names.
	tables.Rule
	// Hash is the one in the comment, "" if the rule is not ours.
	Hash string
	// Foreign is the text of a rule that has a form which is not ours, without its
	// counter and its comment; Matches and Action are then empty.
	Foreign string
	// Counted reports whether the rule has a counter.
	Counted        bool
	Packets, Bytes uint64
	// Line is the rule's line in the listing, from 1; 0 if it was in JSON.
	Line int
}

// Ours reports whether the rule has felixlike's mark.
func (r *Rule) Ours() bool { return r.Hash != "" }

// setComment splits our comment.
func (r *Rule) setComment(text string) {
	if r.Hash = tables.HashInComment(text); r.Hash != "" {
		text = strings.TrimPrefix(text[len(tables.CommentPrefix)+len(r.Hash):], " ")
	}
	r.Comment = text
}
