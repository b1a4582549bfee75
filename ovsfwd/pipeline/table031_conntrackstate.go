package pipeline

// Table 31, conntrack state: drops packets that fit no connection, sends answers of connections that the
// gateway port began back to it, and takes the state from packets of connections that are not allowed, so
// that no flow for established ones matches them.
//
//	table=31,priority=235,ct_state=+inv+trk,ip,reg0=0x1/0xffff,nw_src=OWN actions=goto_table:40
//	table=31,priority=235,ct_state=+inv+trk,ip,reg0=0x80000/0x80000,nw_dst=OWN actions=goto_table:40
//	table=31,priority=230,ct_state=+inv+trk,ct_mark=0x20,ip actions=drop                     (and ipv6, as all here)
//	table=31,priority=221,ct_state=-new+rel+trk,ct_label=0/ALLOWED,ip actions=set_field:0x400000/0x400000->reg0,ct_clear,goto_table:40
//	table=31,priority=222,ct_state=-new+est-rpl+trk,tcp,tcp_flags=+syn-ack actions=ct_clear,goto_table:40
//	table=31,priority=222,ct_state=-new+est+rpl+trk,tcp,tcp_flags=+syn-ack actions=set_field:0x400000/0x400000->reg0,ct_clear,goto_table:40
//	table=31,priority=220,ct_state=-new+est-rpl+trk,ct_label=0/ALLOWED,ip actions=ct_clear,goto_table:40
//	table=31,priority=220,ct_state=-new+est+rpl+trk,ct_label=0/ALLOWED,ip actions=set_field:0x400000/0x400000->reg0,ct_clear,goto_table:40
//	table=31,priority=210,ct_state=-new+trk,ct_mark=0x20,ip,reg0=0x1/0xffff actions=goto_table:40
//	table=31,priority=200,ct_state=-new+trk,ct_mark=0x20,ip actions=set_field:GWMAC->eth_dst,goto_table:40
//	table=31,priority=200,ct_state=+inv+trk,ip actions=drop
//	table=31,priority=0 actions=goto_table:40
//
// The reference takes committed for allowed. But an egress rule commits before ingress policy has judged. If
// the denied pod then answers by the same ports, the connection is established both ways (TestGuards).
//
// A segment that asks for a connection is judged, also if its ports are known: it begins another connection.
// Connection tracking may take it for the old one, if a reset of the server ended that, or if its end was not
// seen.
//
// A peer node that uses a NodePort of this one comes by the underlay, and is answered through the tunnel, as
// pods answer it: the switches at both ends see but one half of the connection. OWN are this node's own
// addresses. Packets from and to them are never judged.

import (
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
)

const (
	priorityNotAllowed uint16 = 220
	priorityRelated    uint16 = 221
	priorityAsks       uint16 = 222
	priorityInvalid    uint16 = 230
	priorityHalf       uint16 = 235
)

func conntrackStateBase(n Node) []openflow.Flow {
	flows := []openflow.Flow{{
		Table: TableConntrackState, Priority: priorityDefault, Match: openflow.Any(), Actions: jump(TableDNAT),
	}}
	add := func(priority uint16, m openflow.Match, actions ...openflow.Action) {
		flows = append(flows, openflow.Flow{Table: TableConntrackState, Priority: priority, Match: m, Actions: actions})
	}
	never := openflow.SetBits(openflow.Reg0, neverAllow, neverAllow)
	next := openflow.GotoTable(TableDNAT)
	for _, ip := range ipFamilies() {
		invalid := ip.CTState(openflow.CTInv|openflow.CTTrk, 0)
		// An invalid packet of a known connection has the connection's mark.
		add(priorityInvalid, invalid.CTMark(GatewayMark, exactMark))
		add(priorityNormal, invalid)

		add(priorityRelated, notAllowed(ip.CTState(openflow.CTRel|openflow.CTTrk, openflow.CTNew)),
			never, openflow.CTClear(), next)
		known := func(m openflow.Match) openflow.Match {
			return m.CTState(openflow.CTEst|openflow.CTTrk, openflow.CTNew|openflow.CTRpl)
		}
		answered := func(m openflow.Match) openflow.Match {
			return m.CTState(openflow.CTEst|openflow.CTRpl|openflow.CTTrk, openflow.CTNew)
		}
		add(priorityAsks, known(asks(ip)), openflow.CTClear(), next)
		add(priorityAsks, answered(asks(ip)), never, openflow.CTClear(), next)
		add(priorityNotAllowed, notAllowed(known(ip)), openflow.CTClear(), next)
		add(priorityNotAllowed, notAllowed(answered(ip)), never, openflow.CTClear(), next)

		begun := ip.CTState(openflow.CTTrk, openflow.CTNew).CTMark(GatewayMark, exactMark)
		add(priorityHigh, begun.Bits(openflow.Reg0, sourceGW, sourceMask), next)
		add(priorityNormal, begun, openflow.SetMAC(openflow.EthDst, n.GatewayMAC), next)
	}
	half := openflow.CTInv | openflow.CTTrk
	for _, a := range n.Own() {
		add(priorityHalf, from(single(a)).CTState(half, 0).Bits(openflow.Reg0, sourceGW, sourceMask), next)
		add(priorityHalf, to(single(a)).CTState(half, 0).Bits(openflow.Reg0, macRewrite, macRewrite), next)
	}
	return flows
}

const exactMark uint32 = 0xffffffff

// asks narrows a match to segments that ask for a TCP connection.
func asks(m openflow.Match) openflow.Match { return m.Protocol(model.TCP).SYN() }

// notAllowed narrows a match to connections that are not allowed.
func notAllowed(m openflow.Match) openflow.Match {
	return m.CTLabel(openflow.Label{}, AllowedLabel())
}
