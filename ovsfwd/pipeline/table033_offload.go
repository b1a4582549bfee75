package pipeline

// Tables 33 and 34, offload: packets of established connections that netfilter has allowed
// skip the host. All other packets go to the host as without offload.
//
//	table=30,priority=205,ip,nw_dst=IP actions=goto_table:33                                   (and ipv6, as all here)
//	table=30,priority=205,ip,reg0=0x2/0xffff,nw_dst=PEER'S PODS actions=goto_table:33
//	table=33,priority=220,ip,nw_frag=yes actions=TO HOST
//	table=33,priority=210,tcp,tcp_flags=+syn actions=TO HOST
//	table=33,priority=210,tcp,tcp_flags=+rst actions=TO HOST
//	table=33,priority=200,tcp actions=ct(table=34)                                             (and udp, sctp)
//	table=33,priority=0 actions=TO HOST
//	table=34,priority=220,ct_state=-new+est-rel-inv+trk,ct_mark=SETTLED/SETTLED,ip,nw_ttl=1 actions=TO HOST
//	table=34,priority=210,ct_state=-new+est-rel-inv+trk,ct_mark=UNTRANSLATED/UNTRANSLATED,ip actions=
//	    set_field:0x8000000/0x8000000->reg0,goto_table:70
//	table=34,priority=200,ct_state=-new+est-rel-inv+trk,ct_mark=SETTLED/SETTLED,ip actions=
//	    set_field:0x8000000/0x8000000->reg0,ct(table=70,nat)
//	table=34,priority=0 actions=TO HOST
//	table=70,priority=220,ct_state=+inv+trk,ip,reg0=0x8000000/0x8000000 actions=drop
//	table=70,priority=210,ip,reg0=0x8000000/0x8000000,nw_dst=IP actions=set_field:GWMAC->eth_src,set_field:MAC->eth_dst,goto_table:72
//	table=70,priority=100,ip,reg0=0x8000000/0x8000000 actions=drop
//
// TO HOST is set_field:GWMAC->eth_dst,set_field:GATEWAY->reg1,set_field:0x10000/0x10000->reg0,goto_table:110.
// IP and MAC are those of a local pod. SETTLED is rules.MarkAllowed and rules.MarkSettled, UNTRANSLATED these two and
// rules.MarkUntranslated. The host sets them and takes the first back; no flow of the bridge does. A pod cannot set them.
//
// On the kernel's datapath, zone 0 is the host's own connection tracking. The bridge's lookup
// keeps its TCP state and timeouts up to date. From then on the kernel accepts segments of
// the connection outside the TCP window (net/openvswitch/conntrack.c calls
// nf_ct_set_tcp_be_liberal for an established connection). The host drops the state that comes
// with a packet through the gateway port, and looks it up again.
//
// The first lookup does not translate. So a packet that goes to the host is as its sender wrote
// it. Most connections are not translated, and the host has marked them so (rules.MarkUntranslated): their packets need
// no other lookup. For the rest, the second one finds the connection in the packet, and does not track it again (Linux,
// net/openvswitch/conntrack.c, skb_nfct_cached). After an upcall it looks the connection up again. It
// translates packets from a pod behind a Service to the Service's client. Packets from the client
// to the Service's address go to the host, because the bridge does not know whether the endpoint
// is a pod.
//
// The host gets what it alone does right: fragments, which the lookup would reassemble; the last
// hop, which it answers; a segment that asks for a connection, which it judges; the answer to it, because rules of other
// programs that change options of TCP, such as the segment size, have to see both; ICMP, because
// translation of an error would change its quotation too. And RST: the first lookup of an RST
// that refuses a connection deletes the connection (nf_conntrack_proto_tcp.c). After an upcall the
// second lookup would find the packet invalid, and not translate it. Table 70 drops such a packet of any kind.
//
// Table 34 matches the time to live, not table 33: Open vSwitch then makes cached flows for each time to
// live for packets of allowed connections only, and table 72 does that anyway.
//
// Packets from the tunnel to a peer's pods go to the host, because Open vSwitch does not send a
// packet out of the port that it came by. After translation, a destination that is no pod is
// dropped: no rule of kube-proxy leads there.

import (
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
	"github.com/felixlike/felixlike/rules"
)

const (
	// priorityOffload is below that of packets from the gateway port, above that of the rest.
	priorityOffload uint16 = 205
	// priorityHostOnly is for packets of any protocol.
	priorityHostOnly uint16 = 220
	// priorityBroken is above those of packets to pods.
	priorityBroken uint16 = 220

	// marksSettled are those of connections that skip the host, marksDirect of those that are not translated either.
	marksSettled = rules.MarkAllowed | rules.MarkSettled
	marksDirect  = marksSettled | rules.MarkUntranslated
)

// offloadProtocols are the protocols whose packets are looked up.
func offloadProtocols() []model.Protocol {
	return []model.Protocol{model.TCP, model.UDP, model.SCTP}
}

func offloadBase(n Node) []openflow.Flow {
	if !n.Switches() {
		return nil
	}
	var flows []openflow.Flow
	add := func(table uint8, priority uint16, m openflow.Match, actions []openflow.Action) {
		flows = append(flows, openflow.Flow{Table: table, Priority: priority, Match: m, Actions: actions})
	}
	skip := []openflow.Action{openflow.SetBits(openflow.Reg0, switched, switched)}
	for _, ip := range ipFamilies() {
		add(TableHostConntrack, priorityHostOnly, ip.Fragment(), toHost(n))
		add(TableHostConntrack, priorityHigh, ip.Protocol(model.TCP).Opening(), toHost(n))
		add(TableHostConntrack, priorityHigh, ip.Protocol(model.TCP).RST(), toHost(n))
		for _, p := range offloadProtocols() {
			add(TableHostConntrack, priorityNormal, ip.Protocol(p), []openflow.Action{openflow.CT(openflow.CTSpec{Table: TableHostState})})
		}
		established := ip.CTState(openflow.CTEst|openflow.CTTrk, openflow.CTNew|openflow.CTRel|openflow.CTInv)
		add(TableHostState, priorityHostOnly, established.CTMark(marksSettled, marksSettled).TTL(1), toHost(n))
		add(TableHostState, priorityHigh, established.CTMark(marksDirect, marksDirect), append(skip[:1:1], openflow.GotoTable(TableL3Forwarding)))
		add(TableHostState, priorityNormal, established.CTMark(marksSettled, marksSettled), append(skip[:1:1], openflow.CT(openflow.CTSpec{NAT: true, Table: TableL3Forwarding})))
		skips := ip.Bits(openflow.Reg0, switched, switched)
		add(TableL3Forwarding, priorityBroken, skips.CTState(openflow.CTInv|openflow.CTTrk, 0), nil)
		add(TableL3Forwarding, priorityOutside, skips, nil)
	}
	add(TableHostConntrack, priorityDefault, openflow.Any(), toHost(n))
	add(TableHostState, priorityDefault, openflow.Any(), toHost(n))
	return flows
}

func offloadEndpoint(n Node, a *model.Attachment) []openflow.Flow {
	if !n.Switches() {
		return nil
	}
	var flows []openflow.Flow
	for _, addr := range a.Addresses {
		m := to(single(addr))
		flows = append(flows,
			openflow.Flow{Table: TableConntrack, Priority: priorityOffload, Match: m, Actions: jump(TableHostConntrack)},
			openflow.Flow{
				Table: TableL3Forwarding, Priority: priorityHigh, Match: m.Bits(openflow.Reg0, switched, switched),
				Actions: []openflow.Action{
					openflow.SetMAC(openflow.EthSrc, n.GatewayMAC),
					openflow.SetMAC(openflow.EthDst, a.MAC),
					openflow.GotoTable(TableTTL),
				},
			})
	}
	return flows
}

// offloadPeer makes the flows for packets of pods to a peer's pods, and to the peer's gateway addresses, which
// its pod prefixes contain. Packets to the peer's other addresses go to the host: another node's object may claim one.
func offloadPeer(n Node, p *model.Node) []openflow.Flow {
	if !n.Switches() {
		return nil
	}
	var flows []openflow.Flow
	for _, prefix := range p.PodCIDRs {
		flows = append(flows, openflow.Flow{
			Table: TableConntrack, Priority: priorityOffload,
			Match:   to(prefix).Bits(openflow.Reg0, sourcePod, sourceMask),
			Actions: jump(TableHostConntrack),
		})
	}
	return flows
}
