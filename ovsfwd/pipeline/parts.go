package pipeline

import (
	"net"
	"net/netip"
	"slices"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
)

// VirtualMAC is the MAC address of every peer's gateway.
func VirtualMAC() net.HardwareAddr {
	return net.HardwareAddr{0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff}
}

// Hairpin is the address that stands for a pod which reaches itself through a
// Service, on its way back from the host. No node and no pod may have it.
func Hairpin(f model.Family) netip.Addr {
	if f == model.IPv4 {
		return netip.AddrFrom4([4]byte{169, 254, 20, 20})
	}
	return netip.AddrFrom16([16]byte{0xfd, 0x66, 0x65, 0x6c, 0x69, 0x78, 15: 0x20})
}

func isIPv4(a netip.Addr) bool { return model.FamilyOf(a) == model.IPv4 }

// ipFamilies are the matches for all packets of each family, IPv4 first.
func ipFamilies() []openflow.Match { return []openflow.Match{openflow.IPv4(), openflow.IPv6()} }

func family(f model.Family) openflow.Match {
	if f == model.IPv4 {
		return openflow.IPv4()
	}
	return openflow.IPv6()
}

// from matches IP packets with a source in a prefix, to those with a destination in one.
func from(p netip.Prefix) openflow.Match {
	if isIPv4(p.Addr()) {
		return openflow.IPv4().Prefix(openflow.IPv4Src, p)
	}
	return openflow.IPv6().Prefix(openflow.IPv6Src, p)
}

func to(p netip.Prefix) openflow.Match {
	if isIPv4(p.Addr()) {
		return openflow.IPv4().Prefix(openflow.IPv4Dst, p)
	}
	return openflow.IPv6().Prefix(openflow.IPv6Dst, p)
}

func single(a netip.Addr) netip.Prefix {
	a = a.Unmap()
	return netip.PrefixFrom(a, a.BitLen())
}

// owned are the prefixes of a peer's addresses, as source and as destination: its pods and its own addresses.
func owned(p *model.Node) []netip.Prefix {
	prefixes := slices.Clone(p.PodCIDRs)
	for _, a := range p.Addresses {
		prefixes = append(prefixes, single(a))
	}
	return prefixes
}

// drop makes a default flow: it drops packets that no other flow of a table matches.
func drop(table uint8) openflow.Flow {
	return openflow.Flow{Table: table, Priority: priorityDefault, Match: openflow.Any()}
}

func jump(table uint8) []openflow.Action { return []openflow.Action{openflow.GotoTable(table)} }

func setOutput(port uint32) []openflow.Action {
	return []openflow.Action{
		openflow.SetRegister(openflow.Reg1, port),
		openflow.SetBits(openflow.Reg0, outputKnown, outputKnown),
	}
}

// toHost sends a packet to the host, to be judged there.
func toHost(n Node) []openflow.Action {
	return slices.Concat(
		[]openflow.Action{openflow.SetMAC(openflow.EthDst, n.GatewayMAC)},
		setOutput(n.GatewayPort),
		jump(TableOutput),
	)
}
