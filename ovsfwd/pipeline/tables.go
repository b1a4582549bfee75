package pipeline

import (
	"slices"

	"github.com/felixlike/felixlike/model"
)

// The tables.
const (
	TableClassifier uint8 = 0
	// TableUplink and TableTranslated are for SNAT by the switch.
	TableUplink         uint8 = 5
	TableSpoofGuard     uint8 = 10
	TableARPResponder   uint8 = 20
	TableConntrack      uint8 = 30
	TableConntrackState uint8 = 31
	// TableAssociations has the learned flows and no others.
	TableAssociations uint8 = 32
	// TableHostConntrack and TableHostState are for established connections past the host.
	TableHostConntrack uint8 = 33
	TableHostState     uint8 = 34
	// TableMoved is for connections that get another source port.
	TableMoved uint8 = 35
	TableDNAT  uint8 = 40
	// TableSelect and TableTranslate are for connections to Services, TableAffinity has learned flows of their clients alone.
	TableSelect         uint8 = 41
	TableTranslate      uint8 = 42
	TableAffinity       uint8 = 43
	TableAdminEgress    uint8 = 45
	TableEgress         uint8 = 50
	TableEgressDefault  uint8 = 60
	TableEgressMetrics  uint8 = 61
	TableL3Forwarding   uint8 = 70
	TableOutside        uint8 = 71
	TableTTL            uint8 = 72
	TableL2Forwarding   uint8 = 80
	TableAdminIngress   uint8 = 85
	TableIngress        uint8 = 90
	TableIngressDefault uint8 = 100
	TableIngressMetrics uint8 = 101
	TableCommit         uint8 = 105
	TableOutput         uint8 = 110
	TableTranslated     uint8 = 111
	// TableNowhere is one that no flow leads to, for a flow of TouchOwner.
	TableNowhere uint8 = 253
)

// Prefixes returns, by table, the fields whose prefixes the switch has to track, sorted. If a table matches another address field,
// the switch compares the whole address of a packet, and each outside peer gets cached flows of its own.
// Open vSwitch before 3.5 tracks nw_src and nw_dst by default, and at most three fields. So tables with destinations of pods
// track ipv6_dst, and those with sources of peers ipv6_src. TableDNAT has both: of its four fields ipv6_dst is left out, since
// pods have more clients than servers outside.
func Prefixes() map[int][]string {
	all := map[int][]string{}
	for _, table := range []uint8{TableSpoofGuard, TableARPResponder, TableConntrack, TableAdminEgress, TableEgress, TableEgressDefault, TableEgressMetrics, TableL3Forwarding} {
		all[int(table)] = []string{"ipv6_dst", "nw_dst", "nw_src"}
	}
	for _, table := range []uint8{
		TableConntrackState, TableDNAT, TableAdminIngress, TableIngress, TableIngressDefault, TableIngressMetrics,
	} {
		all[int(table)] = []string{"ipv6_src", "nw_dst", "nw_src"}
	}
	return all
}

// Table describes a table of the pipeline for people.
type Table struct {
	Number uint8
	// Name is its purpose.
	Name string
	// Label is a shorter name, for lines with little room.
	Label string
	// Judges is the direction of the policies that the table judges, zero if it judges
	// none.
	Judges model.Direction
}

// Tables lists the tables of the pipeline, in the order of their numbers.
func Tables() []Table {
	const neither model.Direction = 0
	all := []Table{
		{TableClassifier, "classifier", "", neither},
		{TableUplink, "uplink", "", neither},
		{TableSpoofGuard, "spoofguard", "", neither},
		{TableARPResponder, "ARP responder", "ARP", neither},
		{TableConntrack, "connection tracking, or to the gateway", "conntrack", neither},
		{TableConntrackState, "state of the connection", "state", neither},
		{TableAssociations, "SCTP associations", "", neither},
		{TableHostConntrack, "connections of the host", "host's connections", neither},
		{TableHostState, "established past the host", "past the host", neither},
		{TableMoved, "moved ports", "", neither},
		{TableDNAT, "services", "Services, own node", neither},
		{TableSelect, "endpoints of Services", "endpoint", neither},
		{TableTranslate, "to the endpoint", "", neither},
		{TableAffinity, "clients of Services", "", neither},
		{TableAdminEgress, "admin tier, egress", "", model.Egress},
		{TableEgress, "NetworkPolicies, egress", "", model.Egress},
		{TableEgressDefault, "isolation and baseline tier, egress", "isolation, egress", model.Egress},
		{TableEgressMetrics, "counters, egress", "", model.Egress},
		{TableL3Forwarding, "L3 forwarding", "", neither},
		{TableOutside, "to the outside", "", neither},
		{TableTTL, "time to live", "TTL", neither},
		{TableL2Forwarding, "L2 forwarding", "", neither},
		{TableAdminIngress, "admin tier, ingress", "", model.Ingress},
		{TableIngress, "NetworkPolicies, ingress", "", model.Ingress},
		{TableIngressDefault, "isolation and baseline tier, ingress", "isolation, ingress", model.Ingress},
		{TableIngressMetrics, "counters, ingress", "", model.Ingress},
		{TableCommit, "new connections", "commit", neither},
		{TableOutput, "output", "", neither},
		{TableTranslated, "translated", "", neither},
	}
	for i := range all {
		if all[i].Label == "" {
			all[i].Label = all[i].Name
		}
	}
	return all
}

// TableOf returns the table of that number, and whether it is one of the pipeline.
func TableOf(number uint8) (Table, bool) {
	all := Tables()
	i := slices.IndexFunc(all, func(t Table) bool { return t.Number == number })
	if i < 0 {
		return Table{Number: number}, false
	}
	return all[i], true
}
