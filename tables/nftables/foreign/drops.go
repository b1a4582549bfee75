package foreign

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/internal/nfnetlink"
)

// Chain is a chain that drops the packet.
type Chain struct{ Family, Table, Name string }

// Accepting returns the command that lets packets with the mark to the port pass the chain.
func (c Chain) Accepting(p Packet) string {
	return fmt.Sprintf("nft insert rule %s %s %s udp dport %d meta mark and %#x == %#[5]x accept", c.Family, c.Table, c.Name, p.Port, p.Mark)
}

// String returns the name of the chain with its table.
func (c Chain) String() string {
	return fmt.Sprintf("chain %s of table %s %s", c.Name, c.Family, c.Table)
}

// Drops returns the base chains at INPUT that drop the packet for certain. It leaves out tables whose names begin
// with own, and those of iptables. netns is the descriptor of a network namespace; zero is the process's own.
func Drops(netns int, own string, p Packet) (found []Chain, err error) {
	c, err := nfnetlink.Dial(netns)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	for _, f := range []family{{unix.NFPROTO_INET, "inet"}, p.family()} {
		bases, err := f.bases(c, own)
		if err != nil {
			return nil, err
		}
		for _, b := range bases {
			if b.hook != unix.NF_INET_LOCAL_IN || !p.IPTables && f.number != unix.NFPROTO_INET && b.ofIPTables() {
				continue
			}
			r := newRuleset(c, f, b.table)
			v := b.walk(r, p)
			if r.err != nil {
				return nil, r.err
			}
			if v&^acts == drops {
				found = append(found, Chain{Family: f.name, Table: b.table, Name: b.name})
			}
		}
	}
	return found, nil
}

// base is a base chain of another program.
type base struct {
	table, name, kind string
	hook              uint32
	policy            outcomes
}

// ofIPTables reports whether the chain is one that iptables makes, which only families of IPv4 and IPv6 have.
func (b base) ofIPTables() bool {
	return slices.Contains([]string{"raw", "mangle", "filter", "nat", "security"}, b.table) &&
		slices.Contains([]string{"PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"}, b.name)
}

// walk returns the possible ends of a packet.
func (b base) walk(r *ruleset, p facts) outcomes {
	v := r.walk(p, b.name, 0)
	if v&leaves != 0 {
		v = v&^leaves | b.policy
	}
	return v
}

// bases returns the base chains of tables whose names do not begin with own.
func (f family) bases(c *nfnetlink.Conn, own string) ([]base, error) {
	var all []base
	err := dump(c, f, unix.NFT_MSG_GETCHAIN, nil, func(attributes []byte) {
		b := base{policy: accepts, hook: unix.NF_INET_NUMHOOKS}
		for kind, v := range nfnetlink.Attributes(attributes) {
			switch kind {
			case unix.NFTA_CHAIN_TABLE:
				b.table = nfnetlink.Text(v)
			case unix.NFTA_CHAIN_NAME:
				b.name = nfnetlink.Text(v)
			case unix.NFTA_CHAIN_TYPE:
				b.kind = nfnetlink.Text(v)
			case unix.NFTA_CHAIN_POLICY:
				if number(v) == verdictDrop {
					b.policy = drops
				}
			case unix.NFTA_CHAIN_HOOK:
				b.hook = number(attribute(v, unix.NFTA_HOOK_HOOKNUM))
			}
		}
		if b.hook != unix.NF_INET_NUMHOOKS && !strings.HasPrefix(b.table, own) {
			all = append(all, b)
		}
	})
	if noTables(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the chains of family %s: %w", f.name, err)
	}
	return all, nil
}
