package multitenant

import (
	"net"
	"net/netip"

	"github.com/felixlike/felixlike/ovsfwd/openflow"
)

// The tables.
const (
	tableDispatch uint8 = 0
	tablePeers    uint8 = 10
	tableSenders  uint8 = 20
	tableFromPods uint8 = 21
	tableFromHost uint8 = 25
	tableRoutes   uint8 = 30
	tableARPPods  uint8 = 40
	tableARPPeers uint8 = 50
	tableServices uint8 = 60
	tablePods     uint8 = 70
	tableNumbers  uint8 = 80
	tableTunnel   uint8 = 90
	tableOutside  uint8 = 100
	tableFirewall uint8 = 101
)

// The registers.
const (
	sender   = openflow.Reg0
	receiver = openflow.Reg1
	outPort  = openflow.Reg2
	checked  = openflow.Reg3
)

// The bits of checked: a guard has checked the sender, or the packet has the MAC address of its destination.
const (
	bitChecked   uint32 = 1
	bitAddressed uint32 = 2
)

// registerBits is the width of a register.
const registerBits = 32

// The priorities of the guards that mark a sender as checked, and of the flows that drop all others.
const (
	priorityGlobal    uint16 = 140
	priorityNoNumber  uint16 = 130
	priorityCheck     uint16 = 120
	priorityUnchecked uint16 = 110
)

// priorityAddress is above all flows of the tables that address sets MAC addresses in.
const priorityAddress uint16 = 400

// pod is a pod with all that its flows need.
type pod struct {
	port    uint32
	mac     net.HardwareAddr
	address netip.Addr
	number  uint32
}

func flow(table uint8, priority uint16, m openflow.Match, actions ...openflow.Action) openflow.Flow {
	return openflow.Flow{Table: table, Priority: priority, Match: m, Actions: actions}
}

func drop(table uint8) openflow.Flow { return flow(table, 0, openflow.Any()) }

func jump(table uint8) openflow.Action { return openflow.GotoTable(table) }

func from(p netip.Prefix) openflow.Match { return openflow.IPv4().Prefix(openflow.IPv4Src, p) }

func to(p netip.Prefix) openflow.Match { return openflow.IPv4().Prefix(openflow.IPv4Dst, p) }

// asks matches ARP for an address of a prefix.
func asks(p netip.Prefix) openflow.Match { return openflow.ARP().Prefix(openflow.ARPTpa, p) }

func single(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

// check marks the packets of a match as checked, and looks the table up again: the rows of the reference then apply to them.
func check(table uint8, m openflow.Match) openflow.Flow {
	return flow(table, priorityCheck, m.Bits(checked, 0, bitChecked), openflow.SetBits(checked, bitChecked, bitChecked), openflow.Resubmit(table))
}

// address sets the MAC address of the destination, and looks the table up again: senders know their gateway's alone.
func address(table uint8, m openflow.Match, mac net.HardwareAddr) openflow.Flow {
	return flow(table, priorityAddress, m.Bits(checked, 0, bitAddressed),
		openflow.SetMAC(openflow.EthDst, mac), openflow.SetBits(checked, bitAddressed, bitAddressed), openflow.Resubmit(table))
}

// unchecked drops the packets that no check has marked.
func unchecked(table uint8) openflow.Flow {
	return flow(table, priorityUnchecked, openflow.Any().Bits(checked, 0, bitChecked))
}

// deliver gives a packet to the port of a receiver with a number, if table 80 lets it pass.
func deliver(number, port uint32) []openflow.Action {
	return []openflow.Action{openflow.SetRegister(receiver, number), openflow.SetRegister(outPort, port), jump(tableNumbers)}
}

// encapsulate sends a packet to a node, with the sender's number.
func encapsulate(n Node, outer netip.Addr) []openflow.Action {
	return []openflow.Action{
		openflow.CopyLow(sender, openflow.TunID, registerBits), openflow.SetAddr(openflow.TunDst, outer), openflow.Output(n.TunnelPort),
	}
}
