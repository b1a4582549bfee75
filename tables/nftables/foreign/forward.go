package foreign

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/internal/nfnetlink"
)

// DropsForwarded returns the base chains at FORWARD that drop, for certain, all packets of pods on one of their ways: from the interface of
// pods to it, to the interface to the outside, which may be unknown, or answers from there. With routed, new connections also come from other nodes that way. Chains of
// iptables that the nft variant made are among them. The other parameters are as in Acts.
func DropsForwarded(netns int, own, ownChains string, pods, outside Interface, routed bool) (found []Chain, err error) {
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
			if b.hook != unix.NF_INET_FORWARD {
				continue
			}
			r := newRuleset(c, f, b.table)
			if f.number != unix.NFPROTO_INET && b.ofIPTables() {
				r.own, r.ownEnds = ownChains, accepts
			}
			dropping := false
			for _, p := range f.forwarded(pods, outside, routed) {
				r.marked = false
				dropping = dropping || b.walk(r, p)&^acts == drops
			}
			if r.err != nil {
				return nil, r.err
			}
			if dropping {
				found = append(found, Chain{Family: f.name, Table: b.table, Name: b.name})
			}
		}
	}
	return found, nil
}

// forwarded returns a packet of TCP on each way of pods' packets in each IP version that a family sees.
func (f family) forwarded(pods, outside Interface, routed bool) []facts {
	ways := []forwarded{
		{in: pods, out: pods, state: stateNew}, {in: pods, out: outside, state: stateNew}, {in: outside, out: pods, state: stateEstablished},
	}
	if routed {
		ways = append(ways, forwarded{in: outside, out: pods, state: stateNew})
	}
	versions := []byte{f.number}
	if f.number == unix.NFPROTO_INET {
		versions = []byte{unix.NFPROTO_IPV4, unix.NFPROTO_IPV6}
	}
	var all []facts
	for _, v := range versions {
		for _, w := range ways {
			w.passing = passing{version: v, protocol: unix.IPPROTO_TCP}
			all = append(all, w)
		}
	}
	return all
}

// forwarded is a packet between two interfaces; one without a name is not known.
type forwarded struct {
	passing
	in, out Interface
	state   uint32
}

func (p forwarded) meta(key uint32) []octet {
	side := p.in
	switch key {
	case unix.NFT_META_OIF, unix.NFT_META_OIFNAME:
		side = p.out
		fallthrough
	case unix.NFT_META_IIF, unix.NFT_META_IIFNAME:
		switch {
		case side.Name == "":
			return unknown(registerSize)
		case key == unix.NFT_META_IIFNAME || key == unix.NFT_META_OIFNAME:
			return known(interfaceName(side.Name))
		case side.Index != 0:
			return known(native(uint32(side.Index)))
		}
		return unknown(registerSize)
	}
	return p.passing.meta(key)
}

func (p forwarded) connection(key uint32) []octet {
	if key == unix.NFT_CT_STATE {
		return known(native(p.state))
	}
	return unknown(registerSize)
}

// header: nothing is known of the flags, which those of a first segment and of later ones are.
func (p forwarded) header(base uint32) []octet {
	if base == unix.NFT_PAYLOAD_TRANSPORT_HEADER {
		return nil
	}
	return p.passing.header(base)
}

func (forwarded) route(_, _ uint32) []octet { return unknown(registerSize) }
