package pipeline

// Table 35, moved ports: a pod may use one source port for a connection through a Service and for one directly to its endpoint. After the
// proxy has translated the first one, both have the same addresses and ports. The second one gets another port.
//
//	table=31,priority=238,ct_state=+rpl+trk,ct_label=MOVED/MOVED,ip,reg0=0/0x80000000 actions=
//	    set_field:0x80000000/0x80000000->reg0,resubmit(,31)                              (and ipv6, as all here)
//	table=31,priority=237,ct_state=-new+est-rpl+trk,ct_mark=0/0x20,tcp,tcp_flags=+syn-ack,reg0=0x1/0x3000ffff,nw_src=PODS actions=
//	    set_field:0x20000000/0x20000000->reg0,ct_clear,resubmit(,31)                     (and +inv; and udp, any)
//	table=31,priority=239,tcp,reg0=0x20000000/0x30000000,nw_src=IP actions=set_field:0x50000000/0x50000000->reg0,
//	    ct(commit,zone=65522,nat(src=IP:61440-65535),exec(set_field:0x80->ct_mark)),ct(table=31,zone=65520)  (and udp)
//	table=31,priority=238,ip,reg0=0x20000000/0x30000000 actions=drop
//	table=31,priority=236,ct_state=-new+est-rpl+trk,ct_mark=0/0x20,tcp,tcp_flags=-syn,reg0=0x1/0x3000ffff,nw_src=PODS actions=
//	    set_field:0x10000000/0x10000000->reg0,ct(table=35,zone=65522,nat)                (and +inv)
//	table=31,priority=236,ct_state=+new+trk,tcp,tcp_flags=-syn,reg0=0x1/0x3000ffff,nw_src=PODS actions=the same
//	table=31,priority=236 and 237: all of these with ct_mark=0x20/0x20 and reg0=0x2/0x3000ffff
//	table=35,priority=220,ip,reg0=0x80010000/0x80010000 actions=output:NXM_NX_REG1[]
//	table=35,priority=210,ct_mark=0x80,ip actions=set_field:0x40000000/0x40000000->reg0,resubmit(,30)
//	table=35,priority=0 actions=resubmit(,30)
//	table=110,priority=211,ct_label=0/ALLOWED,ip,reg0=0x44010000/0x44410000 actions=
//	    ct(commit,zone=65520,exec(set_field:ALLOWED+MOVED/ALLOWED+MOVED->ct_label)),output:NXM_NX_REG1[]
//	table=110,priority=203,ip,reg0=0x80010000/0x80010000 actions=ct(table=35,zone=65522,nat)
//
// Two connections collide if a pod's packet of the original direction belongs to a connection of the gateway port (mark 0x20), or the
// other way round. ct(commit,nat) in the zone of policy cannot tell them apart: there both have the same original direction. So the
// packets of the second connection get another source port in a zone of its own, and are looked up again. All tables behind see the
// new port only. Answers get the old port back when they leave, as the label says.
//
// A segment of the second one is mostly out of the windows of the first one, hence invalid there. Only a segment that asks for a connection
// gets an entry in the other zone. Others are looked up again if there is none, and take the way that they took before: an invalid
// one is dropped, and a connection from before this table goes on.
//
// The first connection of TCP may end before the second one. So a segment that begins a connection without asking for one is looked up
// in the zone too. (Datagrams take the old port again then.) Other packets of connections that do not collide pass no table more than before.
//
// No packet collides while the enforcement point changes (BeginsInHost, BeginsInSwitch): a client's request on its way from the host may
// have the ports of its former connection, whose end the zone has not seen.

import (
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
)

// MovedZone is the connection tracking zone of connections with another source port.
const MovedZone = 65522

// movedMark is the mark of its connections.
const movedMark uint32 = 0x80

// movedLabel is the bit of the label in Zone of a connection with another source port.
func movedLabel() openflow.Label { return openflow.Label{Hi: 2} }

// The ports are above those that Linux gives to connections by default (32768 to 60999).
const firstMovedPort, lastMovedPort uint16 = 61440, 65535

// More bits of reg0.
const (
	// movedAsked: the packet was looked up in MovedZone. movedCollides: it begins a connection with the ports of another one.
	movedAsked    uint32 = 1 << 28
	movedCollides uint32 = 1 << 29
	// moved: the packet has another port. movedBack: it is an answer, and gets the old port back.
	moved     uint32 = 1 << 30
	movedBack uint32 = 1 << 31
)

const (
	priorityMove         uint16 = 239
	priorityMovedBack    uint16 = 238
	priorityCollides     uint16 = 237
	priorityMovedKnown   uint16 = 236
	priorityMovedOutput  uint16 = 220
	priorityMovedAllowed uint16 = 211
	priorityMovedAnswer  uint16 = 203
)

func movedBase(n Node) []openflow.Flow {
	var l flowList
	lookup := openflow.CT(openflow.CTSpec{Zone: MovedZone, NAT: true, Table: TableMoved})
	again := openflow.Resubmit(TableConntrack)
	for _, ip := range ipFamilies() {
		l.add(TableConntrackState, priorityMovedBack, ip.CTState(openflow.CTRpl|openflow.CTTrk, 0).CTLabel(movedLabel(), movedLabel()).Bits(openflow.Reg0, 0, movedBack),
			openflow.SetBits(openflow.Reg0, movedBack, movedBack), openflow.Resubmit(TableConntrackState))
		l.add(TableConntrackState, priorityMovedBack, ip.Bits(openflow.Reg0, movedCollides, movedCollides|movedAsked))
		l.add(TableMoved, priorityHigh, ip.CTMark(movedMark, exactMark), openflow.SetBits(openflow.Reg0, moved, moved), again)
		both := openflow.Label{Hi: AllowedLabel().Hi | movedLabel().Hi}
		l.add(TableOutput, priorityMovedAllowed, notAllowed(ip).Bits(openflow.Reg0, outputKnown|judged|moved, outputKnown|judged|moved|neverAllow),
			openflow.CT(openflow.CTSpec{Commit: true, Zone: Zone, Table: openflow.NoTable, Exec: []openflow.Action{openflow.SetCTLabelBits(both, both)}}),
			openflow.OutputRegister(openflow.Reg1))
		l.add(TableOutput, priorityMovedAnswer, ip.Bits(openflow.Reg0, outputKnown|movedBack, outputKnown|movedBack), lookup)
	}
	// No packet with an invalid state can be committed (OFPBAC_MATCH_INCONSISTENT), so the state goes first.
	collides := []openflow.Action{openflow.SetBits(openflow.Reg0, movedCollides, movedCollides), openflow.CTClear(), openflow.Resubmit(TableConntrackState)}
	for _, p := range n.PodCIDRs {
		for _, m := range byAllWays(n, from(p).Protocol(model.TCP)) {
			asked := m.known()
			if m.unlabelled {
				asked = append(asked, m.CTState(openflow.CTNew|openflow.CTTrk, 0))
			}
			for _, known := range asked {
				l.add(TableConntrackState, priorityMovedKnown, known.NoSYN(), openflow.SetBits(openflow.Reg0, movedAsked, movedAsked), lookup)
			}
			if n.Mode != Full {
				continue
			}
			for _, known := range m.known() {
				l.add(TableConntrackState, priorityCollides, asks(known), collides...)
			}
		}
		if n.Mode != Full {
			continue
		}
		for _, m := range byAllWays(n, from(p).Protocol(model.UDP)) {
			l.add(TableConntrackState, priorityCollides, m.known()[0], collides...)
		}
	}
	return append(l, movedOn()...)
}

// movedOn makes the flows for packets that were looked up and have the port of no other connection, and for answers with the old port.
func movedOn() []openflow.Flow {
	l := flowList{{Table: TableMoved, Priority: priorityDefault, Match: openflow.Any(), Actions: []openflow.Action{openflow.Resubmit(TableConntrack)}}}
	for _, ip := range ipFamilies() {
		l.add(TableMoved, priorityMovedOutput, ip.Bits(openflow.Reg0, outputKnown|movedBack, outputKnown|movedBack), openflow.OutputRegister(openflow.Reg1))
	}
	return l
}

// movedEndpoint makes the flows for packets of a pod that begin a connection with the ports of another one. The userspace datapath lets a packet
// go on behind conntrack six times, of which rules that commit need four: so there is no look-up first. The entry of a known connection stays.
func movedEndpoint(a *model.Attachment) []openflow.Flow {
	var l flowList
	for _, addr := range a.Addresses {
		move := []openflow.Action{openflow.SetBits(openflow.Reg0, movedAsked|moved, movedAsked|moved), openflow.CT(openflow.CTSpec{
			Commit: true, Zone: MovedZone, Table: openflow.NoTable, Exec: []openflow.Action{openflow.SetCTMark(movedMark)},
			Source: openflow.NATSource{Address: addr.Unmap(), First: firstMovedPort, Last: lastMovedPort},
		}), openflow.CT(openflow.CTSpec{Zone: Zone, Table: TableConntrackState})}
		for _, protocol := range []model.Protocol{model.TCP, model.UDP} {
			m := from(single(addr.Unmap())).Protocol(protocol).Bits(openflow.Reg0, movedCollides, movedCollides|movedAsked)
			l.add(TableConntrackState, priorityMove, m, move...)
		}
	}
	return l
}

// oneWay are packets by one way, and the mark of the connections that began by the other one.
type oneWay struct {
	openflow.Match
	mark uint32
	// unlabelled: the way is not told by the label of a connection.
	unlabelled bool
}

// byBothWays narrows a match to packets from the gateway port, and to those from a pod.
func byBothWays(m openflow.Match) []oneWay {
	by := func(source uint32) openflow.Match {
		return m.Bits(openflow.Reg0, source, sourceMask|movedAsked|movedCollides)
	}
	return []oneWay{{by(sourceGW), 0, true}, {by(sourcePod), GatewayMark, true}}
}

// byAllWays is byBothWays. With Services in the bridge it adds two more collisions of packets from a pod: one directly to an endpoint with a connection through a
// Service, and one through a Service with a direct connection.
func byAllWays(n Node, m openflow.Match) []oneWay {
	all := byBothWays(m)
	if !n.Services {
		return all
	}
	pod := m.Bits(openflow.Reg0, sourcePod, sourceMask|movedAsked|movedCollides)
	both := openflow.Label{Hi: AllowedLabel().Hi | serviceLabel().Hi}
	return append(all,
		oneWay{pod.Bits(openflow.Reg4, 0, serviceLed).CTLabel(both, both), 0, false},
		oneWay{pod.Bits(openflow.Reg4, serviceLed, serviceLed).CTLabel(AllowedLabel(), both), 0, false},
	)
}

// known narrows the match to packets with the ports of a connection that began by the other way: those that fit it, and those that do not.
func (w oneWay) known() []openflow.Match {
	return []openflow.Match{
		w.CTState(openflow.CTEst|openflow.CTTrk, openflow.CTNew|openflow.CTRpl).CTMark(w.mark, GatewayMark),
		w.CTState(openflow.CTInv|openflow.CTTrk, 0).CTMark(w.mark, GatewayMark),
	}
}
