package pipeline

// Table 31, unknown connections, only while the enforcement point changes (BeginsInHost, BeginsInSwitch). Both backends are programmed then,
// and each packet has to be judged by the one that knows its connection. A packet of a connection that the zone does not know goes to the
// host. One that comes from the host was judged there. Neither passes the tables of policy, nor begins a connection in the zone.
//
//	table=31,priority=240,tcp,tcp_flags=+syn-ack,reg0=0/0x5,reg4=0/LED actions=set_field:0x400000/0x400000->reg4,TO HOST      (BeginsInHost; and tcp6, as all here)
//	table=31,priority=240,tcp,tcp_flags=+syn-ack,reg0=0x1/0xffff,reg4=0/LED actions=set_field:0x400000/0x400000->reg4,goto_table:70
//	table=31,priority=240,tcp,tcp_flags=+syn-ack,reg4=0/0x800000 actions=set_field:0x800000/0x800000->reg4,resubmit(,31)    (BeginsInSwitch)
//	table=31,priority=234,UNKNOWN,ip,reg0=0/0x5,reg4=0/0x800000+LED actions=set_field:0x400000/0x400000->reg4,TO HOST
//	table=31,priority=234,UNKNOWN,ip,reg0=0x1/0xffff,reg4=0/0x800000+LED actions=set_field:0x400000/0x400000->reg4,goto_table:70
//	table=85,priority=65000,reg4=0x400000/0x400000 actions=goto_table:110                                      (and tables 90 and 105)
//	table=34,priority=0 actions=resubmit(,30)                                            packets that were looked up before (table033_offload.go)
//	table=110,priority=250,reg0=0x10000/0x10000,reg4=0x400000/0x400000 actions=output:NXM_NX_REG1[]
//
// UNKNOWN are three states: +new, +inv (also of a known connection: the host judges it as well), and -new of a connection without the label ALLOWED.
//
// A packet with an endpoint that the bridge chose (LED, see table 41) stays: the host does not know its connection. The bridge chooses no
// endpoints in these modes. Connections to Services begin in the host.
//
// From one mode to the next one, cached flows of both may be in use at once. In each pair a TCP connection works that begins by one and goes on by
// the other:
//
//   - Steer and BeginsInHost: connections begin in the host. Before, the zone got a copy of the host's, or the host one of the zone's.
//   - BeginsInHost and BeginsInSwitch: what the zone gets to know stays in the switch, the rest stays in the host.
//   - BeginsInSwitch and Full: the zone knows all that began since. On the way to Full, it also got a copy of the host's others. On the way to Steer,
//     there are no others yet.
//
// Other protocols have no packet that tells which end begins. From BeginsInSwitch to Full, the answer to a datagram can meet a zone that does not
// know it, and is judged as a connection of its own. SCTP on the userspace datapath is not tracked, and stays in the switch until the end.

import "github.com/felixlike/felixlike/ovsfwd/openflow"

// Bits of reg4.
const (
	// hostJudges: the packet is judged by the host. beginsHere: it asks for a connection, and the switch judges it.
	hostJudges uint32 = 1 << 22
	beginsHere uint32 = 1 << 23
)

const (
	// priorityUnknownState is below the flows for connections with another port and for those that the switch sees one half of.
	priorityUnknownState  uint16 = 234
	priorityUnknownBegins uint16 = 240
	priorityPastPolicy    uint16 = 65000
	priorityHostJudged    uint16 = 250
)

// passes reports whether the enforcement point changes.
func (m Mode) passes() bool { return m == BeginsInHost || m == BeginsInSwitch }

// notFromHost narrows a match to packets of pods (source 2) and from the tunnel (0): all other sources have bit 0 or 2.
func notFromHost(m openflow.Match) openflow.Match {
	return m.Bits(openflow.Reg0, 0, sourceGW|sourceUplink)
}

func unknownBase(n Node) []openflow.Flow {
	if !n.Mode.passes() {
		return nil
	}
	var l flowList
	past := openflow.SetBits(openflow.Reg4, hostJudges, hostJudges)
	byHost := func(priority uint16, m openflow.Match) {
		l.add(TableConntrackState, priority, notFromHost(m), append([]openflow.Action{past}, toHost(n)...)...)
		l.add(TableConntrackState, priority, m.Bits(openflow.Reg0, sourceGW, sourceMask), past, openflow.GotoTable(TableL3Forwarding))
	}
	for _, ip := range ipFamilies() {
		if n.Mode == BeginsInHost {
			byHost(priorityUnknownBegins, asks(ip).Bits(openflow.Reg4, 0, serviceLed))
		} else {
			l.add(TableConntrackState, priorityUnknownBegins, asks(ip).Bits(openflow.Reg4, 0, beginsHere),
				openflow.SetBits(openflow.Reg4, beginsHere, beginsHere), openflow.Resubmit(TableConntrackState))
		}
		for _, unknown := range []openflow.Match{
			ip.CTState(openflow.CTNew|openflow.CTTrk, 0), ip.CTState(openflow.CTInv|openflow.CTTrk, 0), notAllowed(ip.CTState(openflow.CTTrk, openflow.CTNew)),
		} {
			byHost(priorityUnknownState, unknown.Bits(openflow.Reg4, 0, beginsHere|serviceLed))
		}
	}
	l.add(TableHostState, priorityDefault, openflow.Any(), openflow.Resubmit(TableConntrack))
	judged := openflow.Any().Bits(openflow.Reg4, hostJudges, hostJudges)
	for _, table := range []uint8{TableAdminIngress, TableIngress, TableCommit} {
		l.add(table, priorityPastPolicy, judged, openflow.GotoTable(TableOutput))
	}
	l.add(TableOutput, priorityHostJudged, judged.Bits(openflow.Reg0, outputKnown, outputKnown), openflow.OutputRegister(openflow.Reg1))
	return l
}
