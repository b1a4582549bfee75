package pipeline

import (
	"math"
	"time"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
)

// Before connections to Services move to the host, packets wait of those that the bridge leads to an endpoint by way of the host: the host has an
// entry to the endpoint, and gets one to the Service instead. When an agent starts, its bridge also begins no connections to Services, and the host
// does. (In the modes between host and switch, it begins none anyway.)
//
//	table=31,priority=225,ct_state=+new+trk,tcp,tcp_flags=-syn actions=drop    (and tcp6)
//	table=41,priority=65535 actions=TO HOST
//	table=110,priority=220,ip,reg0=1/0xffff,reg4=BACK/BACK actions=drop        (and ipv6)
//	table=110,priority=219,ip,reg1=GATEWAY,reg4=LED/LED actions=drop           (and ipv6)
//
// A segment from the middle of a stream that nobody knows is of a connection that is not copied yet. Its sender repeats it.

const (
	priorityMidstream  uint16 = 225
	priorityClosedBack uint16 = 220
	priorityClosedLed  uint16 = 219
)

// ClosedFor is the time after which the switch takes these flows for those of a process that was killed. A step of a change may be tried for so long.
const ClosedFor = 3 * time.Minute

const closedCookie = TouchOwner<<48 | 1

// CloseServices are the changes by which the bridge begins no connections to Services, until OpenServices or for ClosedFor.
func CloseServices(n Node) []openflow.FlowMod {
	var l flowList
	l.add(TableSelect, math.MaxUint16, openflow.Any(), servicesToHost(n)...)
	for _, ip := range ipFamilies() {
		l.add(TableConntrackState, priorityMidstream, ip.Protocol(model.TCP).NoSYN().CTState(openflow.CTNew|openflow.CTTrk, 0))
		l.add(TableOutput, priorityClosedBack, ip.Bits(openflow.Reg0, sourceGW, sourceMask).Bits(openflow.Reg4, serviceBack, serviceBack))
		l.add(TableOutput, priorityClosedLed, ip.Bits(openflow.Reg1, n.GatewayPort, exactMark).Bits(openflow.Reg4, serviceLed, serviceLed))
	}
	changes := make([]openflow.FlowMod, len(l))
	for i, f := range l {
		changes[i] = openflow.FlowMod{Command: openflow.Add, Flow: f, Cookie: closedCookie, HardTimeout: uint16(ClosedFor / time.Second), Key: "no new connections to Services in the bridge"}
	}
	return changes
}

// OpenServices are the changes that undo CloseServices. Without Node.Services they also remove the groups, and what the bridge remembers of clients: the
// flows that use them must be gone.
func OpenServices(n Node) []openflow.FlowMod {
	var changes []openflow.FlowMod
	for _, table := range []uint8{TableConntrackState, TableSelect, TableOutput} {
		changes = append(changes, openflow.FlowMod{Command: openflow.DeleteCookie, Flow: openflow.Flow{Table: table}, Cookie: closedCookie, Key: "connections to Services in the bridge"})
	}
	if n.Services {
		return changes
	}
	changes = append(changes, openflow.FlowMod{
		Command: openflow.DeleteMatching, Flow: openflow.Flow{Table: TableAffinity, Match: openflow.Any()}, Cookie: uint64(AffinityOwner) << 48, Key: "clients of Services",
	})
	for _, g := range ServiceGroups() {
		changes = append(changes, openflow.FlowMod{Command: openflow.DeleteGroup, Group: g})
	}
	return changes
}
