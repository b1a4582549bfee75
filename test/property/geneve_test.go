package property

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"

	"github.com/felixlike/felixlike/model"
)

// The outer headers of a frame in a tunnel: Ethernet, IPv4, UDP, Geneve (RFC 8926).
const (
	genevePort   = 6081
	geneveHeader = 8
	outerLen     = etherLen + 20 + 8 + geneveHeader
)

// fromPeer wraps a frame as a peer does; if none is named, as any peer.
func (b *bridge) fromPeer(peer string, inner []byte) []byte {
	if peer == "" {
		for peer = range b.bridge.nodes {
			if peer != b.node {
				break
			}
		}
	}
	header := binary.BigEndian.AppendUint16(nil, 50000)
	header = binary.BigEndian.AppendUint16(header, genevePort)
	header = binary.BigEndian.AppendUint16(header, uint16(8+geneveHeader+len(inner)))
	header = append(header, 0, 0) // no checksum
	header = append(header, 0, 0, 0x65, 0x58, 0, 0, 0, 0)
	outer := ipHeader(b.bridge.nodes[peer], b.bridge.config.LocalIP, model.UDP, 0, len(header)+len(inner))
	return ethernet(b.bridge.config.UplinkMAC, peerMAC(), slices.Concat(outer, header, inner))
}

// seenAt is a frame that has come out of a port.
type seenAt struct {
	port  string
	frame []byte
	// to is the far end of the tunnel that it left by.
	to netip.Addr
}

// unwrap takes a frame out of its tunnel, and returns the id of the packet in it,
// or 0 for a foreign one.
func (s *seenAt) unwrap() uint16 {
	if s.port == wireSide {
		if len(s.frame) < outerLen || binary.BigEndian.Uint16(s.frame[12:]) != etherIPv4 || binary.BigEndian.Uint16(s.frame[36:]) != genevePort {
			return 0
		}
		s.to = netip.AddrFrom4([4]byte(s.frame[30:34]))
		s.frame = s.frame[outerLen:]
	}
	for _, hops := range []byte{hopLimit, hopLimit - 1} {
		if id := identity(s.frame, etherLen, hops); id != 0 {
			return id
		}
	}
	return 0
}

// rightWay checks that a probe has come out where it should.
func (b *bridge) rightWay(p probe, s seenAt) error {
	want := hostSide
	switch p.out.side {
	case localPod:
		pod, err := b.podAt(p.out.address)
		if err != nil {
			return err
		}
		want = pod.Name
	case peerNode:
		want = wireSide
	}
	if s.port != want || want == wireSide && s.to != b.bridge.nodes[p.out.node] {
		return fmt.Errorf("%s: packet %d from %s to %s came out of port %s (tunnel to %v), not of %s", b.node, p.id, p.in.address, p.out.address, s.port, s.to, want)
	}
	return nil
}
