package foreign

import (
	"errors"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/internal/nfnetlink"
)

// DropsForwarded returns the base chains at FORWARD that drop, for certain, all packets of pods on one of their ways: from the interface of
// pods to it, to the interface to the outside, which may be unknown, or answers from there. With routed, new connections also come from other nodes that way. Chains of
// iptables that the nft variant made are among them. The other parameters are as in Acts.
func DropsForwarded(netns int, own, ownChains string, pods, outside Interface, routed bool) (found []Chain, err error) {
	return dropsForwarded(netns, own, ownChains, func(f family) []facts { return f.forwarded(pods, outside, routed) })
}

// Forwarded is a packet that the node forwards. Interfaces without a name are not known. Ports are those of source and destination, for
// protocols with ports; New says that its connection is.
type Forwarded struct {
	In, Out             Interface
	Source, Destination netip.Addr
	Protocol            uint8
	Ports               [2]uint16
	New                 bool
}

// DropsPacket returns the base chains at FORWARD that drop a packet for certain. The other parameters are as in DropsForwarded.
func DropsPacket(netns int, own, ownChains string, p Forwarded) ([]Chain, error) {
	packet := forwarded{passing: passing{version: unix.NFPROTO_IPV4, protocol: p.Protocol}, in: p.In, out: p.Out, state: stateEstablished}
	if p.Source.Is6() {
		packet.version = unix.NFPROTO_IPV6
	}
	if p.New {
		packet.state = stateNew
	}
	return dropsForwarded(netns, own, ownChains, func(f family) []facts {
		if f.number != unix.NFPROTO_INET && f.number != packet.version {
			return nil
		}
		return []facts{exactly{packet, p}}
	})
}

// exactly is a packet with known addresses and ports.
type exactly struct {
	forwarded
	packet Forwarded
}

func (p exactly) header(base uint32) []octet {
	switch {
	case base == unix.NFT_PAYLOAD_NETWORK_HEADER:
		h := Packet{Source: p.packet.Source, Destination: p.packet.Destination}.network()
		protocol := 9
		if p.version == unix.NFPROTO_IPV6 {
			protocol = 6
		}
		h[protocol] = octet{p.protocol, allBits}
		return h
	case base == unix.NFT_PAYLOAD_TRANSPORT_HEADER && (p.protocol == unix.IPPROTO_TCP || p.protocol == unix.IPPROTO_UDP || p.protocol == unix.IPPROTO_SCTP):
		var h []octet
		for _, port := range p.packet.Ports {
			h = append(h, known([]byte{byte(port >> 8), byte(port)})...)
		}
		return h
	}
	return nil
}

func dropsForwarded(netns int, own, ownChains string, packets func(family) []facts) (found []Chain, err error) {
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
			for _, p := range packets(f) {
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
