package foreign

import "net/netip"

// Packet is a packet of UDP in IPv4 that comes from the network to this node.
type Packet struct {
	// Source and Destination may be zero, for unknown. Interface is the one by which the packet comes in; it may be empty, for
	// unknown.
	Source, Destination netip.Addr
	Interface           Interface
	// Port is the destination port. Mark is the packet's mark.
	Port uint16
	Mark uint32
	// IPTables includes the tables of iptables.
	IPTables bool
}

// Interface is an interface with its number.
type Interface struct {
	Name  string
	Index int
}
