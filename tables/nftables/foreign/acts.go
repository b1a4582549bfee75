package foreign

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/internal/nfnetlink"
)

// Act is what a base chain of another program may do with a packet.
type Act struct {
	Chain
	// What says what the chain may do: the first expression with an effect, "drop", or the name of a target of iptables.
	What string
}

// String returns what the chain may do, for people.
func (a Act) String() string { return fmt.Sprintf("%s: %s", a.Chain, a.What) }

// Acts returns the base chains on the way of forwarded packets that may do something with packets of established
// connections which come and leave by an interface: drop, change, log, queue or mark them, or only count them. They
// are those of PREROUTING, FORWARD and POSTROUTING, but for those that translate addresses: these see the first packet
// of a connection only. The packets are of TCP, UDP or SCTP; those of TCP have neither SYN nor RST. Chains of
// iptables that the nft variant made are among them. It leaves out tables whose names begin with own, and in tables of
// iptables chains whose names begin with ownChains: at FORWARD they accept, and do nothing elsewhere. netns is as in
// Drops.
func Acts(netns int, own, ownChains string, by Interface) (found []Act, err error) {
	c, err := nfnetlink.Dial(netns)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	for _, f := range []family{{unix.NFPROTO_INET, "inet"}, {unix.NFPROTO_IPV4, "ip"}, {unix.NFPROTO_IPV6, "ip6"}} {
		bases, err := f.bases(c, own)
		if err != nil {
			return nil, err
		}
		for _, b := range bases {
			if b.kind == "nat" || !slices.Contains([]uint32{unix.NF_INET_PRE_ROUTING, unix.NF_INET_FORWARD, unix.NF_INET_POST_ROUTING}, b.hook) {
				continue
			}
			r := newRuleset(c, f, b.table)
			if f.number != unix.NFPROTO_INET && b.ofIPTables() {
				r.own = ownChains
			}
			what := r.actsOf(b, by)
			if r.err != nil {
				return nil, r.err
			}
			if what != "" {
				found = append(found, Act{Chain{Family: f.name, Table: b.table, Name: b.name}, what})
			}
		}
	}
	return found, nil
}

// actsOf returns what a base chain may do with packets of any protocol, or "".
func (r *ruleset) actsOf(b base, by Interface) string {
	r.ownEnds = leaves
	if b.hook == unix.NF_INET_FORWARD {
		r.ownEnds = accepts
	}
	for _, p := range r.family.passing(by) {
		r.does, r.marked = "", false
		switch end := b.walk(r, p); {
		case end&acts != 0:
			return r.does
		case end&drops != 0:
			return "drop"
		}
	}
	return ""
}

// isOwn reports whether a chain is one of ours in a table of iptables.
func (r *ruleset) isOwn(chain string) bool { return r.own != "" && strings.HasPrefix(chain, r.own) }

// passing returns a packet of each protocol in each IP version that a family sees.
func (f family) passing(by Interface) []facts {
	versions := []byte{f.number}
	if f.number == unix.NFPROTO_INET {
		versions = []byte{unix.NFPROTO_IPV4, unix.NFPROTO_IPV6}
	}
	var all []facts
	for _, v := range versions {
		for _, protocol := range []byte{unix.IPPROTO_TCP, unix.IPPROTO_UDP, unix.IPPROTO_SCTP} {
			all = append(all, passing{by: by, version: v, protocol: protocol})
		}
	}
	return all
}

// passing is a packet of an established connection that comes by an interface and leaves by it.
type passing struct {
	by                Interface
	version, protocol byte
}

func (p passing) meta(key uint32) []octet {
	index := unknown(4)
	if p.by.Index != 0 {
		index = known(native(uint32(p.by.Index)))
	}
	switch key {
	case unix.NFT_META_NFPROTO:
		return known([]byte{p.version})
	case unix.NFT_META_L4PROTO:
		return known([]byte{p.protocol})
	case unix.NFT_META_PROTOCOL:
		return etherType(p.version == unix.NFPROTO_IPV6)
	case unix.NFT_META_PKTTYPE:
		return known([]byte{unix.PACKET_HOST})
	case unix.NFT_META_IIF, unix.NFT_META_OIF:
		return index
	case unix.NFT_META_IIFNAME, unix.NFT_META_OIFNAME:
		return known(interfaceName(p.by.Name))
	}
	return unknown(registerSize)
}

func (passing) connection(key uint32) []octet {
	if key == unix.NFT_CT_STATE {
		return known(native(stateEstablished))
	}
	return unknown(registerSize)
}

// Bits of the flags of TCP, and their place in its header.
const (
	flagsAt  = 13
	tcpSYN   = 0x02
	tcpRST   = 0x04
	noAsking = tcpSYN | tcpRST
)

func (p passing) header(base uint32) []octet {
	switch {
	case base == unix.NFT_PAYLOAD_NETWORK_HEADER && p.version == unix.NFPROTO_IPV4:
		h := unknown(10)
		h[9] = octet{p.protocol, allBits}
		return h
	case base == unix.NFT_PAYLOAD_TRANSPORT_HEADER && p.protocol == unix.IPPROTO_TCP:
		h := unknown(flagsAt + 1)
		h[flagsAt] = octet{known: noAsking}
		return h
	}
	return nil
}

// route: the way back to the sender of each packet is the interface.
func (p passing) route(result, flags uint32) []octet {
	switch {
	case flags&unix.NFTA_FIB_F_SADDR == 0 || flags&unix.NFTA_FIB_F_DADDR != 0:
	case flags&unix.NFTA_FIB_F_PRESENT != 0:
		return known([]byte{1, 0, 0, 0})
	case result == unix.NFT_FIB_RESULT_OIF:
		return p.meta(unix.NFT_META_OIF)
	case result == unix.NFT_FIB_RESULT_OIFNAME:
		return p.meta(unix.NFT_META_OIFNAME)
	}
	return unknown(registerSize)
}

// match is a match of iptables in a rule of the nft variant.
type match struct {
	name     string
	revision uint32
	info     []byte
}

func matchOf(data []byte) match {
	return match{
		name: nfnetlink.Text(attribute(data, unix.NFTA_MATCH_NAME)), revision: number(attribute(data, unix.NFTA_MATCH_REV)),
		info: attribute(data, unix.NFTA_MATCH_INFO),
	}
}

// answer says whether a packet matches.
func (x match) answer(m *machine) answer {
	switch x.name {
	case "comment":
		return yes
	case "conntrack":
		return x.conntrack(m)
	case "tcp":
		return x.tcp(m)
	}
	return maybe
}

// conntrack answers for --ctstate (struct xt_conntrack_mtinfo1 to 3 of linux/netfilter/xt_conntrack.h).
func (x match) conntrack(m *machine) answer {
	const matched, inverted, states, end, byState = 146, 148, 150, 152, 1
	if x.revision < 1 || x.revision > 3 || len(x.info) < end {
		return maybe
	}
	short := func(at int) uint16 { return nativeShort(x.info[at:]) }
	mask := short(states)
	if x.revision == 1 {
		mask = uint16(x.info[states])
	}
	state := m.connection(unix.NFT_CT_STATE)
	if short(matched) != byState || state[0].known != allBits {
		return maybe
	}
	// Both number the states alike.
	return answerOf((mask&uint16(state[0].value) != 0) != (short(inverted)&byState != 0))
}

// tcp answers for --tcp-flags (struct xt_tcp of linux/netfilter/xt_tcpudp.h): no if a flag is asked for that the packet
// lacks.
func (x match) tcp(m *machine) answer {
	const mask, wanted, inverted, end, byFlags = 9, 10, 11, 12, 4
	if len(x.info) < end || x.info[inverted]&byFlags != 0 {
		return maybe
	}
	h := m.header(unix.NFT_PAYLOAD_TRANSPORT_HEADER)
	if len(h) <= flagsAt {
		return maybe
	}
	if flags := h[flagsAt]; (flags.value^x.info[wanted])&flags.known&x.info[mask] != 0 {
		return no
	}
	return maybe
}
