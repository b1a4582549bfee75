package pipeline

// Tables 5 (uplink) and 111 (translated), SNAT by the switch: Node.SNAT. UPLINK and LOCAL are ports of the bridge that lead
// to the uplink and to the host: patches to the bridge with the uplink (physical.go). Packets of pods to the outside leave by
// UPLINK with the node's address, and a port of a range; answers come back to the pod past the host. All other packets from
// UPLINK go to LOCAL, and the host's packets to UPLINK.
//
//	table=0,priority=210,udp,in_port=UPLINK,tp_dst=6081 actions=LOCAL                      (and 4789, GRE)
//	table=0,priority=210,udp,in_port=LOCAL,tp_dst=6081 actions=output:UPLINK               (and 4789, GRE)
//	table=0,priority=200,ip,in_port=UPLINK actions=set_field:0x4/0xffff->reg0,goto_table:5
//	table=0,priority=200,ip,in_port=LOCAL,nw_src=NODE actions=set_field:0x5/0xffff->reg0,goto_table:5
//	table=0,priority=190,in_port=UPLINK actions=LOCAL
//	table=0,priority=190,in_port=LOCAL actions=output:UPLINK
//	table=5,priority=200,ip,reg0=0x4/0xffff actions=goto_table:30
//	table=5,priority=200,ip,reg0=0x5/0xffff actions=ct(commit,table=111,zone=65521,nat(src=NODE))
//	table=30,priority=215,ip,reg0=0x4/0xffff actions=ct(table=31,zone=65521,nat)
//	table=31,priority=245,ct_state=+inv+trk,ct_mark=0x40,ip,reg0=0x4/0xffff actions=drop
//	table=31,priority=244,ct_state=-rpl+trk,ct_mark=0x40,ip,reg0=0x4/0x8ffff actions=drop
//	table=31,priority=243,ct_state=+rpl+trk,ct_mark=0x40,ip,reg0=0x4/0x8ffff actions=
//	    set_field:0x80000/0x80000->reg0,ct(table=31,zone=65520)
//	table=31,priority=242,ct_state=-new+trk,ip,reg0=0x4/0x8ffff actions=LOCAL              (and +inv)
//	table=31,priority=210,ct_state=-new+trk,ct_mark=0x40,ip,reg0=0x4/0xffff actions=set_field:aa:bb:cc:dd:ee:ff->eth_dst,goto_table:40
//	table=31,priority=205,ip,reg0=0x80004/0x8ffff actions=drop
//	table=31,priority=200,ip,reg0=0x4/0xffff actions=LOCAL
//	table=70,priority=200,ip,reg0=0x2/0xffff,nw_dst=NODE actions=goto_table:80
//	table=70,priority=193,ip,reg0=0x2/0xffff,nw_dst=224.0.0.0/3 actions=drop
//	table=70,priority=193,ip,reg0=0x2/0xffff,dl_dst=01:00:00:00:00:00/01:00:00:00:00:00 actions=drop
//	table=70,priority=193,ct_mark=0x40,ip,reg0=0x2/0xffff actions=as for priority 190
//	table=70,priority=192,ip,reg0=0x2/0xffff,nw_dst=EXCEPTION actions=set_field:GWMAC->eth_dst,goto_table:80
//	table=70,priority=192,ip,reg0=0x2/0xffff,nw_src=POD WITH AN EGRESS actions=the same
//	table=70,priority=190,ct_state=+new+trk,ip,reg0=0x2/0xffff actions=set_field:0x20000/0x20000->reg0,goto_table:80
//	table=70,priority=189,ct_mark=0/0x20,ct_label=0/ALLOWED,ip,reg0=0x2/0xffff actions=the same
//	table=80,priority=210,tcp,reg0=0x20000/0x20000 actions=set_field:UPLINK->reg1,set_field:0x10000/0x10000->reg0,goto_table:105  (and udp)
//	table=80,priority=205,ip,reg0=0x20000/0x20000 actions=set_field:0/0x20000->reg0,set_field:GWMAC->eth_dst,resubmit(,80)
//	table=105,priority=207,ct_state=-new,tcp,tcp_flags=+syn-ack,reg0=0x20000/0x420000 actions=COMMIT
//	table=105,priority=207,ct_state=-new,ct_label=0/ALLOWED,ip,reg0=0x20000/0x420000 actions=COMMIT
//	table=105,priority=200,ct_state=+new+trk,ip,reg0=0x20000/0x20000 actions=COMMIT
//	table=110,priority=212,ct_label=0/ALLOWED,ip,reg0=0x4030000/0x4430000 actions=
//	    ct(commit,zone=65520,exec(set_field:ALLOWED/ALLOWED->ct_label)),TRANSLATE
//	table=110,priority=213,ct_label=0/ALLOWED,ip,reg0=0x44030000/0x44430000 actions=
//	    ct(commit,zone=65520,exec(set_field:ALLOWED+MOVED/ALLOWED+MOVED->ct_label)),TRANSLATE        (see table 35)
//	table=110,priority=202,ip,reg0=0x30000/0x30000 actions=TRANSLATE
//	table=111,priority=200,ip,reg0=0x20000/0x20000,nw_src=NODE actions=
//	    set_field:NODE'S MAC->eth_src,set_field:ROUTER'S->eth_dst,dec_ttl,output:UPLINK
//	table=111,priority=200,ip,reg0=0x5/0xffff actions=output:UPLINK
//	table=111,priority=0 actions=drop
//
// COMMIT is ct(commit,table=110,zone=65520,exec(set_field:0x40->ct_mark)), TRANSLATE
// ct(commit,table=111,zone=65521,nat(src=NODE:FIRST-LAST),exec(set_field:0x40->ct_mark)).
//
// The reference translates in zone 65520. There an egress rule with ports has committed the connection before
// table 105, and a connection that is committed gets no translation any more: the packet would leave with
// the pod's source. And a packet that is judged again, because its connection is not allowed, would have
// the node's address, which no rule of its pod matches. So translation has a zone of its own, behind all
// tables of policy: these see the pod's address and port in both directions.
//
// The host's connections from NODE are in that zone too, and keep their ports where no pod's connection to
// the same address and port has them. So an answer belongs to one connection. The host needs no entry to
// get packets: it gets all that are no answer to a pod.
//
// A packet that got no translation, as when all ports are taken, still has the pod's address. Table 111 drops
// it. IPv6 is not translated here.
//
// Only TCP and UDP have ports by which the switch makes connections unique: it has no other id for an echo request. Packets of all other protocols
// go to the host, which masquerades them (table 80, priority 205).
//
// A pod's connections from before the change go on to the host, which has their translation. So do new connections of pods that an
// Egress selects; those that are translated stay so. While the next hop is not known, table 111 drops what is translated.

import (
	"net"
	"net/netip"
	"slices"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
)

// SNAT says how the switch translates the sources of pods' IPv4 packets to the outside.
type SNAT struct {
	// Uplink and Host are the ports that lead to the node's uplink, and to the host.
	Uplink, Host uint32
	// Address is the node's IPv4 address, one of Node.HostAddresses; Bridge is the host's interface with it.
	Address netip.Addr
	Bridge  string
	// First and Last are the range of translated ports.
	First, Last uint16
	// MAC is that of Bridge, Router that of the next hop; nil if it is not known.
	MAC, Router net.HardwareAddr
	// Exceptions are destinations that pods reach by the gateway port, with their own addresses.
	Exceptions []netip.Prefix
	// Egresses are the pods of this node that an Egress selects: the host decides about their source.
	Egresses []netip.Addr
}

// SNATZone is the connection tracking zone of translated connections, and of the host's.
const SNATZone = 65521

// SNATMark is the mark of translated connections, in both zones.
const SNATMark uint32 = 0x40

// More bits and values of reg0.
const (
	sourceUplink uint32 = 4
	sourceLocal  uint32 = 5
	translate    uint32 = 1 << 17
)

const (
	priorityUplinkInvalid      uint16 = 245
	priorityUplinkForged       uint16 = 244
	priorityUplinkAnswer       uint16 = 243
	priorityUplinkHost         uint16 = 242
	priorityUplinkLookup       uint16 = 215
	priorityTranslated         uint16 = 212
	priorityMovedTranslated    uint16 = 213
	priorityLedTranslateNew    uint16 = 208
	priorityLedMovedTranslated uint16 = 218
	priorityTranslateAgain     uint16 = 207
	priorityUnanswered         uint16 = 205
	priorityTranslateLate      uint16 = 202
	priorityNotOutside         uint16 = 193
	priorityTranslateMore      uint16 = 193
	priorityException          uint16 = 192
	priorityByHost             uint16 = 205
	priorityTranslateKnown     uint16 = 189
)

// flowList collects flows.
type flowList []openflow.Flow

func (l *flowList) add(table uint8, priority uint16, m openflow.Match, actions ...openflow.Action) {
	*l = append(*l, openflow.Flow{Table: table, Priority: priority, Match: m, Actions: actions})
}

func snatBase(n Node) []openflow.Flow {
	if n.SNAT == nil {
		return nil
	}
	return slices.Concat(snatClassifier(n.SNAT), snatAnswers(n.SNAT), snatForwarding(n), snatOutput(n))
}

func snatClassifier(s *SNAT) []openflow.Flow {
	var l flowList
	for _, way := range []struct {
		from uint32
		to   openflow.Action
	}{{s.Uplink, openflow.Output(s.Host)}, {s.Host, openflow.Output(s.Uplink)}} {
		ip := openflow.IPv4().InPort(way.from)
		for _, port := range model.TunnelPorts() {
			l.add(TableClassifier, priorityHigh, ip.Protocol(model.UDP).Port(openflow.UDPDst, port, 0xffff), way.to)
		}
		l.add(TableClassifier, priorityHigh, ip.Protocol(model.GRE), way.to)
		l.add(TableClassifier, priorityLow, openflow.Any().InPort(way.from), way.to)
	}
	source := func(v uint32) []openflow.Action {
		return []openflow.Action{openflow.SetBits(openflow.Reg0, v, sourceMask), openflow.GotoTable(TableUplink)}
	}
	l.add(TableClassifier, priorityNormal, openflow.IPv4().InPort(s.Uplink), source(sourceUplink)...)
	l.add(TableClassifier, priorityNormal, from(single(s.Address)).InPort(s.Host), source(sourceLocal)...)
	l.add(TableUplink, priorityNormal, openflow.IPv4().Bits(openflow.Reg0, sourceUplink, sourceMask), openflow.GotoTable(TableConntrack))
	l.add(TableUplink, priorityNormal, openflow.IPv4().Bits(openflow.Reg0, sourceLocal, sourceMask), openflow.CT(openflow.CTSpec{
		Commit: true, Zone: SNATZone, Table: TableTranslated, Source: openflow.NATSource{Address: s.Address.Unmap()},
	}))
	return l
}

// snatAnswers makes the flows for packets from the uplink. An answer to a pod goes through table 31 twice:
// with its state in SNATZone, then, translated back and with the bit macRewrite, with that in Zone.
func snatAnswers(s *SNAT) []openflow.Flow {
	var l flowList
	uplink := openflow.IPv4().Bits(openflow.Reg0, sourceUplink, sourceMask)
	l.add(TableConntrack, priorityUplinkLookup, uplink, openflow.CT(openflow.CTSpec{Zone: SNATZone, NAT: true, Table: TableConntrackState}))

	first := openflow.IPv4().Bits(openflow.Reg0, sourceUplink, sourceMask|macRewrite)
	marked := first.CTMark(SNATMark, exactMark)
	local := openflow.Output(s.Host)
	l.add(TableConntrackState, priorityUplinkInvalid, uplink.CTMark(SNATMark, exactMark).CTState(openflow.CTInv|openflow.CTTrk, 0))
	l.add(TableConntrackState, priorityUplinkForged, marked.CTState(openflow.CTTrk, openflow.CTRpl))
	l.add(TableConntrackState, priorityUplinkAnswer, marked.CTState(openflow.CTTrk|openflow.CTRpl, 0),
		openflow.SetBits(openflow.Reg0, macRewrite, macRewrite), openflow.CT(openflow.CTSpec{Zone: Zone, Table: TableConntrackState}))
	l.add(TableConntrackState, priorityUplinkHost, first.CTState(openflow.CTTrk, openflow.CTNew), local)
	l.add(TableConntrackState, priorityUplinkHost, first.CTState(openflow.CTInv|openflow.CTTrk, 0), local)
	l.add(TableConntrackState, priorityNormal, uplink, local)

	l.add(TableConntrackState, priorityHigh, uplink.CTState(openflow.CTTrk, openflow.CTNew).CTMark(SNATMark, exactMark),
		openflow.SetMAC(openflow.EthDst, VirtualMAC()), openflow.GotoTable(TableDNAT))
	l.add(TableConntrackState, priorityUnanswered, openflow.IPv4().Bits(openflow.Reg0, sourceUplink|macRewrite, sourceMask|macRewrite))
	return l
}

// snatForwarding makes the flows that choose the packets to be translated.
func snatForwarding(n Node) []openflow.Flow {
	var l flowList
	pod := func(m openflow.Match) openflow.Match { return m.Bits(openflow.Reg0, sourcePod, sourceMask) }
	l.add(TableL3Forwarding, priorityNormal, pod(to(single(n.SNAT.Address))), openflow.GotoTable(TableL2Forwarding))
	for _, p := range n.SNAT.Exceptions {
		l.add(TableL3Forwarding, priorityException, pod(to(p)), openflow.SetMAC(openflow.EthDst, n.GatewayMAC), openflow.GotoTable(TableL2Forwarding))
	}
	for _, a := range n.SNAT.Egresses {
		l.add(TableL3Forwarding, priorityException, pod(from(single(a))), openflow.SetMAC(openflow.EthDst, n.GatewayMAC), openflow.GotoTable(TableL2Forwarding))
	}
	// Multicast, reserved addresses and broadcast.
	l.add(TableL3Forwarding, priorityNotOutside, pod(to(netip.MustParsePrefix("224.0.0.0/3"))))
	group := net.HardwareAddr{1, 0, 0, 0, 0, 0}
	l.add(TableL3Forwarding, priorityNotOutside, pod(openflow.IPv4().MaskedMAC(openflow.EthDst, group, group)))
	chosen := []openflow.Action{openflow.SetBits(openflow.Reg0, translate, translate), openflow.GotoTable(TableL2Forwarding)}
	l.add(TableL3Forwarding, priorityLow, pod(openflow.IPv4().CTState(openflow.CTNew|openflow.CTTrk, 0)), chosen...)
	l.add(TableL3Forwarding, priorityTranslateMore, pod(openflow.IPv4().CTMark(SNATMark, exactMark)), chosen...)
	l.add(TableL3Forwarding, priorityTranslateKnown, pod(notAllowed(openflow.IPv4()).CTMark(0, GatewayMark)), chosen...)
	for _, protocol := range []model.Protocol{model.TCP, model.UDP} {
		l.add(TableL2Forwarding, priorityHigh, openflow.IPv4().Protocol(protocol).Bits(openflow.Reg0, translate, translate),
			append(setOutput(n.SNAT.Uplink), openflow.GotoTable(TableCommit))...)
	}
	l.add(TableL2Forwarding, priorityByHost, openflow.IPv4().Bits(openflow.Reg0, translate, translate),
		openflow.SetBits(openflow.Reg0, 0, translate), openflow.SetMAC(openflow.EthDst, n.GatewayMAC), openflow.Resubmit(TableL2Forwarding))
	return l
}

// snatOutput makes the flows that commit, translate and send the packets chosen.
func snatOutput(n Node) []openflow.Flow {
	var l flowList
	s := n.SNAT
	begun := commit(openflow.SetCTMark(SNATMark))
	ip := openflow.IPv4()
	for _, again := range []openflow.Match{asks(ip), notAllowed(ip)} {
		l.add(TableCommit, priorityTranslateAgain, again.CTState(0, openflow.CTNew).Bits(openflow.Reg0, translate, translate|neverAllow), begun)
	}
	l.add(TableCommit, priorityNormal, ip.CTState(openflow.CTNew|openflow.CTTrk, 0).Bits(openflow.Reg0, translate, translate), begun)

	translated := openflow.CT(openflow.CTSpec{
		Commit: true, Zone: SNATZone, Table: TableTranslated,
		Source: openflow.NATSource{Address: s.Address.Unmap(), First: s.First, Last: s.Last},
		Exec:   []openflow.Action{openflow.SetCTMark(SNATMark)},
	})
	known := outputKnown | translate
	l.add(TableOutput, priorityTranslated, notAllowed(ip).Bits(openflow.Reg0, known|judged, known|judged|neverAllow), allowConnection(), translated)
	l.add(TableOutput, priorityMovedTranslated, notAllowed(ip).Bits(openflow.Reg0, known|judged|moved, known|judged|moved|neverAllow), allowWith(movedLabel()), translated)
	if n.Services {
		led := ip.Bits(openflow.Reg4, serviceLed, serviceLed)
		l.add(TableCommit, priorityLedTranslateNew, led.CTState(openflow.CTNew|openflow.CTTrk, 0).Bits(openflow.Reg0, translate, translate), openflow.GotoTable(TableOutput))
		for _, way := range []struct {
			priority uint16
			bits     uint32
			labels   []openflow.Label
		}{{priorityLedTranslated, 0, []openflow.Label{serviceLabel()}}, {priorityLedMovedTranslated, moved, []openflow.Label{serviceLabel(), movedLabel()}}} {
			bits := known | judged | way.bits
			l.add(TableOutput, way.priority, notAllowed(led).Bits(openflow.Reg0, bits, bits|neverAllow), allowMarked(SNATMark, way.labels...), translated)
		}
	}
	l.add(TableOutput, priorityTranslateLate, ip.Bits(openflow.Reg0, known, known), translated)

	if s.Router != nil {
		l.add(TableTranslated, priorityNormal, from(single(s.Address)).Bits(openflow.Reg0, translate, translate),
			openflow.SetMAC(openflow.EthSrc, s.MAC), openflow.SetMAC(openflow.EthDst, s.Router), openflow.DecTTL(), openflow.Output(s.Uplink))
	}
	l.add(TableTranslated, priorityNormal, ip.Bits(openflow.Reg0, sourceLocal, sourceMask), openflow.Output(s.Uplink))
	l.add(TableTranslated, priorityDefault, openflow.Any())
	return l
}
