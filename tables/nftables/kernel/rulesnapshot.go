package kernel

import (
	"errors"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/internal/nfnetlink"
	"github.com/felixlike/felixlike/tables"
)

// RuleSnapshot is one rule.
type RuleSnapshot struct {
	Handle uint64 `json:"handle"`
	// Hash is the hash in the comment, empty if the rule is not ours; Comment is the rest of the comment.
	Hash    string `json:"hash"`
	Comment string `json:"comment"`
	// Verdict is the rule's verdict, as "accept" or "goto <chain>"; it is empty for other statements (marks,
	// verdict maps, masquerade).
	Verdict string `json:"verdict,omitempty"`
	// Packets and Bytes are the values of its counter.
	Packets uint64 `json:"packets"`
	Bytes   uint64 `json:"bytes"`
}

// ReadChainSnapshot reads the rules of one chain. A chain that is not there has none.
func (c *Conn) ReadChainSnapshot(table, chain string) ([]RuleSnapshot, error) {
	var rules []RuleSnapshot
	err := c.dump(unix.NFT_MSG_GETRULE, named(unix.NFTA_RULE_TABLE, table, unix.NFTA_RULE_CHAIN, chain), func() { rules = nil }, func(b []byte) {
		_, r := decodeRule(b)
		rules = append(rules, r)
	})
	if errors.Is(err, unix.ENOENT) {
		err = nil
	}
	return rules, err
}

// ReadRuleSnapshots reads the rules of the chains into out.
func (c *Conn) ReadRuleSnapshots(table string, chains map[string]*Chain, out map[string][]RuleSnapshot) error {
	clear(out)
	return dumpRules(table, chains, func(filter []netlink.Attribute, chain string) error {
		start := func() {
			if delete(out, chain); chain == "" {
				clear(out)
			}
		}
		return c.dump(unix.NFT_MSG_GETRULE, filter, start, func(b []byte) {
			chain, r := decodeRule(b)
			out[chain] = append(out[chain], r)
		})
	})
}

func decodeRule(b []byte) (chain string, r RuleSnapshot) {
	for kind, v := range nfnetlink.Attributes(b) {
		switch kind {
		case unix.NFTA_RULE_CHAIN:
			chain = nfnetlink.Text(v)
		case unix.NFTA_RULE_HANDLE:
			r.Handle = nfnetlink.Uint64(v)
		case unix.NFTA_RULE_USERDATA:
			r.Comment = string(CommentIn(v))
			if r.Hash = tables.HashInComment(r.Comment); r.Hash != "" {
				r.Comment = r.Comment[min(len(r.Comment), len(tables.CommentPrefix)+len(r.Hash)+1):]
			}
		case unix.NFTA_RULE_EXPRESSIONS:
			for _, e := range nfnetlink.Attributes(v) {
				r.decodeExpression(e)
			}
		}
	}
	return chain, r
}

// decodeExpression takes the counter and the verdict out of the expressions.
func (r *RuleSnapshot) decodeExpression(b []byte) {
	var name string
	for kind, v := range nfnetlink.Attributes(b) {
		switch {
		case kind == unix.NFTA_EXPR_NAME:
			name = nfnetlink.Text(v)
		case kind == unix.NFTA_EXPR_DATA && name == "counter":
			for kind, n := range nfnetlink.Attributes(v) {
				switch kind {
				case unix.NFTA_COUNTER_PACKETS:
					r.Packets = nfnetlink.Uint64(n)
				case unix.NFTA_COUNTER_BYTES:
					r.Bytes = nfnetlink.Uint64(n)
				}
			}
		case kind == unix.NFTA_EXPR_DATA && name == "immediate":
			for kind, data := range nfnetlink.Attributes(v) {
				if kind == unix.NFTA_IMMEDIATE_DATA {
					r.decodeImmediate(data)
				}
			}
		}
	}
}

func (r *RuleSnapshot) decodeImmediate(b []byte) {
	for kind, v := range nfnetlink.Attributes(b) {
		if kind != unix.NFTA_DATA_VERDICT {
			continue
		}
		if a := decodeVerdict(v); a != nil {
			r.Verdict = a.String()
		}
	}
}
