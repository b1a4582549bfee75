// Package everykind makes frames and packets of every kind that a raw socket can send: all EtherTypes, VLAN tags and LLC,
// all protocols of IP, all types of ICMP of both families. Each has a number that is found again on arrival. A test of a firewall that
// tries only the protocols that its rules name does not see the packets that go past them.
//
// It sends nothing and knows nothing of policy.
package everykind

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
)

// magic begins the number of a frame or packet.
const magic = "#every#"

// Mark returns the bytes that carry a number.
func Mark(number uint32) []byte { return binary.BigEndian.AppendUint32([]byte(magic), number) }

// Number returns the number of a frame or packet, anywhere in its bytes.
func Number(b []byte) (uint32, bool) {
	at := bytes.Index(b, []byte(magic))
	if at < 0 || len(b) < at+len(magic)+4 {
		return 0, false
	}
	return binary.BigEndian.Uint32(b[at+len(magic):]), true
}

// Frame is a whole frame of Ethernet.
type Frame struct {
	Name  string
	Bytes []byte
	// Tags is the number of VLAN tags, Type the EtherType behind them; below 1,536 it is the length of an LLC frame.
	Tags int
	Type uint16
}

// EtherTypes of what a bridge with netfilter judges, and ARP.
const (
	IPv4 = 0x0800
	ARP  = 0x0806
	IPv6 = 0x86dd
)

// Content returns an IP packet that carries a number, with its EtherType. It is in every frame, so that a receiver that takes the
// frame for IP finds it.
type Content func(number uint32) (kind uint16, packet []byte)

// EtherTypes returns a frame of each EtherType and of each length of LLC, with the numbers from 1 on.
func EtherTypes(src, dst net.HardwareAddr, content Content) (all []Frame) {
	for kind := range uint16(0xffff) {
		if kind != 0 && !isTag(kind) {
			all = append(all, frame(src, dst, nil, kind, nil, uint32(len(all)+1), content))
		}
	}
	return all
}

// Tagged returns frames with none to three tags, of both kinds, of VLAN 0 and another one, around IP, ARP, LLC, SNAP, PPPoE and MPLS, with the
// numbers from 1 on.
func Tagged(src, dst net.HardwareAddr, content Content) (all []Frame) {
	for _, tags := range tagStacks() {
		for _, in := range []struct {
			kind   uint16 // 0: that of the content
			before []byte
		}{
			{0, nil},
			{ARP, nil},
			{200, []byte{0x42, 0x42, 0x03}},
			{200, []byte{0xaa, 0xaa, 0x03, 0, 0, 0, 8, 0}},
			{0x8864, []byte{0x11, 0, 0, 1, 0, 100, 0, 0x21}},
			{0x8847, []byte{0, 0, 0x11, 0x40}},
		} {
			all = append(all, frame(src, dst, tags, in.kind, in.before, uint32(len(all)+1), content))
		}
	}
	return all
}

// Frames returns EtherTypes and Tagged.
func Frames(src, dst net.HardwareAddr, content Content) []Frame {
	all := EtherTypes(src, dst, content)
	behind := func(number uint32) (uint16, []byte) { return content(number + uint32(len(all))) }
	return append(all, Tagged(src, dst, behind)...)
}

func frame(src, dst net.HardwareAddr, tags []byte, kind uint16, before []byte, number uint32, content Content) Frame {
	own, packet := content(number)
	if kind == 0 {
		kind = own
	}
	b := append(append(append([]byte{}, dst...), src...), tags...)
	b = binary.BigEndian.AppendUint16(b, kind)
	return Frame{
		Name:  fmt.Sprintf("EtherType 0x%04x behind the tags %x, with %x before the packet", kind, tags, before),
		Bytes: append(append(b, before...), packet...), Tags: len(tags) / 4, Type: kind,
	}
}

// isTag reports whether an EtherType is that of a VLAN tag for the kernel.
func isTag(kind uint16) bool { return kind == 0x8100 || kind == 0x88a8 }

// tagStacks returns all stacks of none to three tags, of both kinds, of VLAN 0 and another one.
func tagStacks() [][]byte {
	stacks, level := [][]byte{nil}, [][]byte{nil}
	for range 3 {
		var next [][]byte
		for _, outer := range level {
			for _, kind := range []uint16{0x8100, 0x88a8} {
				for _, vlan := range []uint16{0, 5} {
					tag := binary.BigEndian.AppendUint16(append([]byte{}, outer...), kind)
					next = append(next, binary.BigEndian.AppendUint16(tag, vlan))
				}
			}
		}
		stacks, level = append(stacks, next...), next
	}
	return stacks
}
