package pipeline

import (
	"slices"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
)

// Types of ICMP (RFC 792): the answer to an echo, which a pod or the host waits for, and the host's own echo.
const (
	icmpEchoReply uint8 = 0
	icmpEcho      uint8 = 8
)

// icmpErrors are the types of ICMP that are about another packet.
func icmpErrors() []uint8 { return []uint8{3, 4, 11, 12} }

// Physical renders the flows of the bridge with the uplink, for SNAT by the switch. UP and HOST are its ends of
// the patches, and have the numbers that SNAT has of the other ends. PORTS is the range of translated ports, with masks.
//
//	table=0,priority=200,in_port=UP actions=output:UPLINK
//	table=0,priority=200,in_port=HOST actions=LOCAL
//	table=0,priority=190,tcp,in_port=UPLINK,nw_dst=NODE,tp_dst=PORTS actions=output:UP          (and udp, sctp)
//	table=0,priority=190,icmp,in_port=UPLINK,nw_dst=NODE,icmp_type=0 actions=output:UP          (and 3, 4, 11, 12)
//	table=0,priority=190,ip,in_port=UPLINK,nw_dst=NODE,nw_frag=yes actions=output:UP
//	table=0,priority=190,tcp,in_port=LOCAL,nw_src=NODE,tp_src=PORTS actions=output:HOST         (and udp, sctp)
//	table=0,priority=190,icmp,in_port=LOCAL,nw_src=NODE,icmp_type=8 actions=output:HOST
//	table=0,priority=190,ip,in_port=LOCAL,nw_src=NODE,nw_frag=yes actions=output:HOST
//
// All other packets follow the bridge's own flow, NORMAL. So the host keeps its other connections while the integration bridge
// has no flows, and the range is all that it shares with pods. Of fragments only the first has ports: all go to the
// integration bridge, which puts them together.
func Physical(s *SNAT, uplink uint32) []openflow.Flow {
	var l flowList
	l.add(TableClassifier, priorityNormal, openflow.Any().InPort(s.Uplink), openflow.Output(uplink))
	l.add(TableClassifier, priorityNormal, openflow.Any().InPort(s.Host), openflow.Output(openflow.LocalPort))
	fromUplink, toPatch := to(single(s.Address)).InPort(uplink), openflow.Output(s.Uplink)
	fromHost, toHostPatch := from(single(s.Address)).InPort(openflow.LocalPort), openflow.Output(s.Host)
	for _, p := range []model.Protocol{model.TCP, model.UDP, model.SCTP} {
		src, dst := openflow.SourcePort(p), openflow.DestinationPort(p)
		for _, m := range openflow.Masks(s.First, s.Last) {
			l.add(TableClassifier, priorityLow, fromUplink.Protocol(p).Port(dst, m.Value, m.Mask), toPatch)
			l.add(TableClassifier, priorityLow, fromHost.Protocol(p).Port(src, m.Value, m.Mask), toHostPatch)
		}
	}
	for _, kind := range slices.Concat([]uint8{icmpEchoReply}, icmpErrors()) {
		l.add(TableClassifier, priorityLow, fromUplink.Protocol(model.ICMP).ICMPMessage(kind), toPatch)
	}
	l.add(TableClassifier, priorityLow, fromHost.Protocol(model.ICMP).ICMPMessage(icmpEcho), toHostPatch)
	l.add(TableClassifier, priorityLow, fromUplink.Fragment(), toPatch)
	l.add(TableClassifier, priorityLow, fromHost.Fragment(), toHostPatch)
	return l
}
