package model

import "net/netip"

// SNATPorts are the ports of this node that the switch gives translated connections (setting snat), those of the
// reference.
func SNATPorts() PortRange { return PortRange{First: 10000, Last: 20000} }

// Outside is an address that nobody has (RFC 5737): packets to it take the default route.
func Outside() netip.Addr { return netip.AddrFrom4([4]byte{192, 0, 2, 1}) }
