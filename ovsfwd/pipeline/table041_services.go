package pipeline

// Tables 41 (select), 42 (translate) and 43 (affinity), Services: connections of pods to cluster IPs get their endpoint here, without the
// host. Only with Node.Services. Connections begin here in mode Full only (priority 201 of table 40).
//
//	table=30,priority=205,ip,reg0=0x2/0xffff,nw_dst=SERVICES actions=set_field:LED/LED->reg4,ct(zone=65523,nat),ct(table=31,zone=65520)
//	    (and ipv6, as all here)
//	table=31,priority=247,ip,reg4=LED+CHOSEN/LED+CHOSEN,nw_dst=SERVICES actions=drop
//	table=31,priority=246,ip,reg4=LED/LED,nw_dst=SERVICES actions=set_field:0/LED->reg4,resubmit(,31)
//	table=31,priority=241,ct_state=+rpl+trk,ct_label=SERVICE/SERVICE,ip,reg4=0/BACK actions=set_field:BACK/BACK->reg4,resubmit(,31)
//	table=31,priority=237,ct_state=-new+est-rpl+trk,ct_mark=0/0x20,ct_label=SERVICE/SERVICE,tcp,tcp_flags=+syn-ack,reg0=0x2/0x3000ffff,reg4=0/LED,nw_src=PODS
//	    actions=as in table 35 (and those of priority 236; and with ct_label=ALLOWED/ALLOWED+SERVICE, reg4=LED/LED)
//	table=31,priority=223,ct_state=-new+est-rpl+trk,ip,reg0=0x2/0xffff,reg4=0/LED,nw_dst=SERVICES actions=TO HOST
//	table=40,priority=202,ip,reg0=0x2/0xffff,nw_frag=yes,nw_dst=SERVICES actions=TO HOST
//	table=40,priority=201,ct_state=-est,ct_label=0/ALLOWED,tcp,reg0=0x2/0xffff,nw_dst=SERVICES actions=goto_table:41    (and udp)
//	table=41,priority=210,tcp,nw_src=EP,nw_dst=VIP,tp_dst=PORT actions=TO HOST              (an endpoint that may be a pod of this node)
//	table=41,priority=200,tcp,nw_dst=VIP,tp_dst=PORT actions=group:256                      (of 2, 4, 8 or 16 endpoints: group:16)
//	table=41,priority=200,tcp,nw_dst=VIP,tp_dst=PORT actions=goto_table:42                  (of one endpoint)
//	table=41,priority=200,tcp,nw_dst=VIP,tp_dst=PORT actions=set_field:SECONDS->reg10,resubmit(,43),goto_table:42    (with affinity)
//	table=41,priority=0 actions=TO HOST
//	table=42,priority=210,tcp,reg9=ID,nw_dst=VIP,tp_dst=PORT actions=TRANSLATE              (with affinity)
//	table=42,priority=205,tcp,reg8=0/0x100,nw_dst=VIP,tp_dst=PORT actions=
//	    move:NXM_OF_TCP_SRC[]->NXM_OF_TCP_SRC[],group:256                                   (with affinity, of more endpoints than one)
//	table=42,priority=200,tcp,reg8=0x140/0x1c0,nw_dst=VIP,tp_dst=PORT actions=TRANSLATE     (with affinity: learn(table=43,...),TRANSLATE)
//	table=42,priority=0 actions=TO HOST
//	table=43,priority=200,tcp,reg10=SECONDS,nw_src=CLIENT,nw_dst=VIP,tp_dst=PORT actions=load:ID->NXM_NX_REG9[]    (learned)
//	table=105,priority=208,ct_state=+new+trk,ip,reg0=0x20000/0x20000,reg4=LED/LED actions=goto_table:110    (with SNAT by the switch)
//	table=105,priority=195,ct_state=+new+trk,ip,reg4=LED/LED actions=goto_table:110
//	table=110,priority=215,ct_label=0/ALLOWED,ip,reg0=0x4010000/0x4410000,reg4=LED/LED actions=
//	    ct(commit,zone=65520,exec(set_field:ALLOWED+SERVICE/ALLOWED+SERVICE->ct_label)),output:NXM_NX_REG1[]    (and 216: as 211; 217, 218: as 212, 213,
//	    and set_field:0x40->ct_mark: not in table 105, since the userspace datapath lets a packet go on behind conntrack six times)
//	table=110,priority=204,ip,reg0=0x80010000/0x80010000,reg4=BACK/BACK actions=ct(zone=65522,nat),ct(zone=65523,nat),output:NXM_NX_REG1[]
//	table=110,priority=203,ip,reg0=0x10000/0x10000,reg4=BACK/BACK actions=ct(zone=65523,nat),output:NXM_NX_REG1[]
//	group 256: 256 buckets, each set_field:0x100+NUMBER/0x1ff->reg8,resubmit(,42)
//
// TO HOST is set_field:GATEWAY->reg1,set_field:0x10000/0x10000->reg0,goto_table:105, TRANSLATE is set_field:LED+CHOSEN/LED+CHOSEN->reg4,
// set_field:0->reg8,set_field:0->reg9,set_field:0->reg10,ct(commit,zone=65523,nat(dst=EP:PORT)),ct(table=31,zone=65520). LED is reg4[19], CHOSEN reg4[20], BACK reg4[21], SERVICE ct_label[66].
// A Service has the address VIP and the port PORT. EP is an endpoint, ID its number.
//
// Translation has a zone of its own, in front of policy. So policy sees a connection to the endpoint like any other, commits it and
// allows it as such, and nothing is translated twice when a packet is judged again. A packet of a known connection goes through both
// zones in one step. An answer finds its way by the label, and gets the Service's address back when it leaves.
//
// The bridge begins only connections that the host does not have already: what it knows with the cluster IP as the destination is the
// host's, from before a change of the backend. So is a segment that asks for it again: the answer to the first one was lost, and another endpoint would
// reset the connection. It leaves to the host: cluster IPs without endpoints here, and those of Services with more than
// MaxEndpoints; clients that are endpoints of the same Service, since a packet cannot leave by the port that it came by; fragments, of which only
// the first one has ports; all other protocols and addresses. The host has all Services, so a missing flow leads there.
//
// A packet that has an endpoint and still the cluster IP is not translated, because it does not fit its connection or no port is free. Table 31 drops
// it, or it would be led here again.
//
// The hash of the datapath has 256 values for a group. A group of 16 buckets makes fewer cached flows. All Services share the groups, and have
// the parts of the values in table 42. So shares differ by one in 256/N.
//
// A learned flow goes when no connection of the client has used it for SECONDS: packets of known connections do not come here. It matches SECONDS, so it ends
// with another timeout of the Service. The move of a port onto itself has the next connection look for a learned flow, see table 32. It has the number of an endpoint that is gone until the client gets another one.

import (
	"encoding/binary"
	"hash/fnv"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
)

// ServiceZone is the connection tracking zone of connections to Services.
const ServiceZone = 65523

// AffinityOwner is the owner in the cookies of learned flows that remember clients of Services.
const AffinityOwner uint16 = 0xf11b

// MaxEndpoints is the number of endpoints of a Service up to which their shares differ by an eighth at most.
const MaxEndpoints = 32

// MaxAffinity is the longest time without a new connection for which the bridge remembers a client: the timeout of a flow has 16 bits.
const MaxAffinity = 65535 * time.Second

// maxClients bounds the learned flows.
const maxClients = 262144

// The bits of reg4.
const (
	// serviceLed: the packet is to a Service, and has the endpoint's address. serviceChosen: it has got the endpoint just now.
	serviceLed    uint32 = 1 << 19
	serviceChosen uint32 = 1 << 20
	// serviceBack: the packet is an answer, and gets the Service's address back.
	serviceBack uint32 = 1 << 21
)

// serviceLabel is the bit of the label in Zone of a connection through a Service.
func serviceLabel() openflow.Label { return openflow.Label{Hi: 4} }

// ServiceLabel is the bit of a connection's label that says that it came here through a Service: ServiceZone has the address that the client used.
func ServiceLabel() openflow.Label { return serviceLabel() }

// TranslatedLabels are the bits of a connection's label that say that the bridge translates it: ServiceLabel, and that of another source port (table 35).
func TranslatedLabels() openflow.Label {
	return openflow.Label{Hi: serviceLabel().Hi | movedLabel().Hi}
}

// The values of reg8: a slot, and that there is one.
const (
	slotChosen uint32 = 1 << 8
	slotMask          = slotChosen | (slotChosen - 1)
)

const (
	priorityNotTranslated  uint16 = 247
	priorityNotLed         uint16 = 246
	priorityServiceBack    uint16 = 241
	priorityHostsService   uint16 = 223
	priorityServiceCT      uint16 = 205
	priorityFragment       uint16 = 202
	priorityBegins         uint16 = 201
	priorityLedNew         uint16 = 195
	priorityLedTranslated  uint16 = 217
	priorityLedMoved       uint16 = 216
	priorityLedAllowed     uint16 = 215
	priorityMovedBackLed   uint16 = 204
	priorityServiceAnswers uint16 = 203
	priorityUnremembered   uint16 = 205
)

// ServiceGroups are the groups of the bridge that choose endpoints: one with few and one with all values of the hash.
func ServiceGroups() []openflow.HashGroup {
	return []openflow.HashGroup{slotsOf(fewSlots), slotsOf(allSlots)}
}

const (
	fewSlots = 16
	allSlots = 256
	// groupNumbers is above the numbers that people give.
	groupNumbers uint32 = uint32(Owner) << 16
)

// slotsOf returns the group of n slots. Nobody changes its buckets, so each is made once.
func slotsOf(n uint32) openflow.HashGroup {
	if n == fewSlots {
		return groupOfFew()
	}
	return groupOfAll()
}

var (
	groupOfFew = sync.OnceValue(func() openflow.HashGroup { return slots(fewSlots) })
	groupOfAll = sync.OnceValue(func() openflow.HashGroup { return slots(allSlots) })
)

// slots makes the group that gives a packet a number below n.
func slots(n uint32) openflow.HashGroup {
	g := openflow.HashGroup{ID: groupNumbers + n}
	for i := range n {
		g.Buckets = append(g.Buckets, []openflow.Action{
			openflow.SetBits(openflow.Reg8, slotChosen|i, slotMask), openflow.Resubmit(TableTranslate),
		})
	}
	return g
}

// slotsFor returns the number of slots for a number of endpoints.
func slotsFor(endpoints int) uint32 {
	if fewSlots%endpoints == 0 {
		return fewSlots
	}
	return allSlots
}

// servicesToHost are the actions of packets to Services that the host leads.
func servicesToHost(n Node) []openflow.Action {
	return slices.Concat(setOutput(n.GatewayPort), jump(TableCommit))
}

// servicesBase makes the flows of Services that are the same whichever there are.
func servicesBase(n Node) []openflow.Flow {
	if !n.Services {
		return nil
	}
	var l flowList
	l.add(TableSelect, priorityDefault, openflow.Any(), servicesToHost(n)...)
	l.add(TableTranslate, priorityDefault, openflow.Any(), servicesToHost(n)...)
	lookup := []openflow.Action{
		openflow.SetBits(openflow.Reg4, serviceLed, serviceLed),
		openflow.CT(openflow.CTSpec{Zone: ServiceZone, NAT: true, Table: openflow.NoTable}),
		openflow.CT(openflow.CTSpec{Zone: Zone, Table: TableConntrackState}),
	}
	for _, p := range n.ServiceCIDRs {
		pod := to(p).Bits(openflow.Reg0, sourcePod, sourceMask)
		l.add(TableConntrack, priorityServiceCT, pod, lookup...)
		l.add(TableConntrackState, priorityNotTranslated, to(p).Bits(openflow.Reg4, serviceLed|serviceChosen, serviceLed|serviceChosen))
		l.add(TableConntrackState, priorityNotLed, to(p).Bits(openflow.Reg4, serviceLed, serviceLed),
			openflow.SetBits(openflow.Reg4, 0, serviceLed), openflow.Resubmit(TableConntrackState))
		l.add(TableConntrackState, priorityHostsService, pod.Bits(openflow.Reg4, 0, serviceLed).CTState(openflow.CTEst|openflow.CTTrk, openflow.CTNew|openflow.CTRpl), servicesToHost(n)...)
		l.add(TableDNAT, priorityFragment, pod.Fragment(), servicesToHost(n)...)
		if n.Mode != Full {
			continue
		}
		for _, protocol := range []model.Protocol{model.TCP, model.UDP} {
			l.add(TableDNAT, priorityBegins, notAllowed(pod.Protocol(protocol)).CTState(0, openflow.CTEst), openflow.GotoTable(TableSelect))
		}
	}
	back := openflow.CT(openflow.CTSpec{Zone: ServiceZone, NAT: true, Table: openflow.NoTable})
	output := openflow.OutputRegister(openflow.Reg1)
	for _, ip := range ipFamilies() {
		l.add(TableConntrackState, priorityServiceBack, ip.CTState(openflow.CTRpl|openflow.CTTrk, 0).CTLabel(serviceLabel(), serviceLabel()).Bits(openflow.Reg4, 0, serviceBack),
			openflow.SetBits(openflow.Reg4, serviceBack, serviceBack), openflow.Resubmit(TableConntrackState))
		l.add(TableCommit, priorityLedNew, ip.CTState(openflow.CTNew|openflow.CTTrk, 0).Bits(openflow.Reg4, serviceLed, serviceLed), openflow.GotoTable(TableOutput))

		led := notAllowed(ip).Bits(openflow.Reg4, serviceLed, serviceLed)
		known := outputKnown | judged
		l.add(TableOutput, priorityLedAllowed, led.Bits(openflow.Reg0, known, known|neverAllow), allowWith(serviceLabel()), output)
		l.add(TableOutput, priorityLedMoved, led.Bits(openflow.Reg0, known|moved, known|moved|neverAllow), allowWith(serviceLabel(), movedLabel()), output)
		answers := ip.Bits(openflow.Reg4, serviceBack, serviceBack)
		l.add(TableOutput, priorityMovedBackLed, answers.Bits(openflow.Reg0, outputKnown|movedBack, outputKnown|movedBack),
			openflow.CT(openflow.CTSpec{Zone: MovedZone, NAT: true, Table: openflow.NoTable}), back, output)
		l.add(TableOutput, priorityServiceAnswers, answers.Bits(openflow.Reg0, outputKnown, outputKnown), back, output)
	}
	return l
}

// allowWith makes the packet's connection allowed, with more bits of the label.
func allowWith(labels ...openflow.Label) openflow.Action { return commitAllowed(labels) }

// allowMarked is allowWith with a mark.
func allowMarked(mark uint32, labels ...openflow.Label) openflow.Action {
	return commitAllowed(labels, openflow.SetCTMark(mark))
}

func commitAllowed(labels []openflow.Label, exec ...openflow.Action) openflow.Action {
	all := AllowedLabel()
	for _, label := range labels {
		all.Hi |= label.Hi
		all.Lo |= label.Lo
	}
	return openflow.CT(openflow.CTSpec{
		Commit: true, Zone: Zone, Table: openflow.NoTable, Exec: append([]openflow.Action{openflow.SetCTLabelBits(all, all)}, exec...),
	})
}

// ServiceFrontend is a cluster IP that pods of this node reach through the bridge.
type ServiceFrontend struct {
	Address  netip.AddrPort
	Protocol model.Protocol
	// Affinity is for how long a client keeps its endpoint after its last new connection, in whole seconds, at most MaxAffinity; zero: not at all.
	Affinity time.Duration
	// Endpoints are distinct, of the family of Address, at least one and at most MaxEndpoints.
	Endpoints []netip.AddrPort
	// Own are the endpoints that pods of this node may have.
	Own []netip.Addr
}

// Service renders the flows of a cluster IP.
func Service(n Node, s ServiceFrontend) []openflow.Flow {
	var l flowList
	match := s.match()
	for _, a := range s.Own {
		l.add(TableSelect, priorityHigh, match.Addr(sourceField(a), a), servicesToHost(n)...)
	}
	count := slotsFor(len(s.Endpoints))
	choose := openflow.Hash(slotsOf(count))
	seconds := uint32(s.Affinity / time.Second)
	switch {
	case seconds > 0:
		l.add(TableSelect, priorityNormal, match, openflow.SetRegister(openflow.Reg10, seconds), openflow.Resubmit(TableAffinity), openflow.GotoTable(TableTranslate))
		if len(s.Endpoints) > 1 {
			l.add(TableTranslate, priorityUnremembered, match.Bits(openflow.Reg8, 0, slotChosen), openflow.Copy(sourcePort(s.Protocol), sourcePort(s.Protocol)), choose)
		}
	case len(s.Endpoints) > 1:
		l.add(TableSelect, priorityNormal, match, choose)
	default:
		l.add(TableSelect, priorityNormal, match, openflow.GotoTable(TableTranslate))
	}
	ids := endpointIDs(s.Endpoints)
	for i, part := range parts(count, len(s.Endpoints)) {
		translate := translation(s.Endpoints[i])
		learned := translate
		if seconds > 0 {
			l.add(TableTranslate, priorityHigh, match.Bits(openflow.Reg9, ids[i], exactMark), translate...)
			learned = append([]openflow.Action{s.remember(seconds, ids[i])}, translate...)
		}
		if len(s.Endpoints) == 1 {
			l.add(TableTranslate, priorityNormal, match, learned...)
			continue
		}
		for _, b := range part {
			l.add(TableTranslate, priorityNormal, match.Bits(openflow.Reg8, slotChosen|b.first, slotChosen|(count-1)&^(b.size-1)), learned...)
		}
	}
	return l
}

func (s ServiceFrontend) match() openflow.Match {
	a := s.Address.Addr().Unmap()
	m := family(model.FamilyOf(a)).Protocol(s.Protocol)
	if isIPv4(a) {
		m = m.Addr(openflow.IPv4Dst, a)
	} else {
		m = m.Addr(openflow.IPv6Dst, a)
	}
	return m.Port(destinationPort(s.Protocol), s.Address.Port(), 0xffff)
}

func destinationPort(p model.Protocol) openflow.Field {
	if p == model.UDP {
		return openflow.UDPDst
	}
	return openflow.TCPDst
}

func sourcePort(p model.Protocol) openflow.Field {
	if p == model.UDP {
		return openflow.UDPSrc
	}
	return openflow.TCPSrc
}

func translation(to netip.AddrPort) []openflow.Action {
	return []openflow.Action{
		openflow.SetBits(openflow.Reg4, serviceLed|serviceChosen, serviceLed|serviceChosen),
		// Registers are in the key of the packet behind conntrack: each value of the hash would get cached flows of its own there.
		openflow.SetRegister(openflow.Reg8, 0), openflow.SetRegister(openflow.Reg9, 0), openflow.SetRegister(openflow.Reg10, 0),
		openflow.CT(openflow.CTSpec{Commit: true, Zone: ServiceZone, Table: openflow.NoTable, Destination: netip.AddrPortFrom(to.Addr().Unmap(), to.Port())}),
		openflow.CT(openflow.CTSpec{Zone: Zone, Table: TableConntrackState}),
	}
}

// remember makes the action that learns the endpoint of a client.
func (s ServiceFrontend) remember(seconds, id uint32) openflow.Action {
	source := sourceField(s.Address.Addr())
	return openflow.Learn(openflow.LearnSpec{
		Table: TableAffinity, Priority: priorityNormal, IdleTimeout: uint16(seconds), Cookie: uint64(AffinityOwner) << 48, Limit: maxClients,
		Match:  s.match().Bits(openflow.Reg10, seconds, exactMark),
		Copies: []openflow.FieldCopy{{Field: source, From: source}},
		Sets:   []openflow.RegisterBits{{Register: openflow.Reg9, Value: id, Mask: exactMark}},
	})
}

// block is a range of slots that begins at a multiple of its size, a power of two.
type block struct{ first, size uint32 }

// parts shares slots among endpoints: the blocks of each. Larger blocks come first, so all begin where they may.
func parts(count uint32, endpoints int) [][]block {
	shares := make([]uint32, endpoints)
	for i := range count {
		shares[int(i)%endpoints]++
	}
	all := make([][]block, endpoints)
	first := uint32(0)
	for size := count; size > 0; size /= 2 {
		for i := range shares {
			if shares[i] >= size {
				all[i] = append(all[i], block{first, size})
				shares[i] -= size
				first += size
			}
		}
	}
	return all
}

// endpointIDs returns numbers of endpoints that stay while others come and go, none of them zero. Of two with one number, the second gets the next.
func endpointIDs(endpoints []netip.AddrPort) []uint32 {
	taken := map[uint32]bool{0: true}
	ids := make([]uint32, len(endpoints))
	for i, e := range endpoints {
		h := fnv.New32a()
		_, _ = h.Write(binary.BigEndian.AppendUint16(e.Addr().Unmap().AsSlice(), e.Port()))
		id := h.Sum32()
		for taken[id] {
			id++
		}
		taken[id] = true
		ids[i] = id
	}
	return ids
}

// FromService reports by reg4 whether the bridge has led the packet to an endpoint.
func FromService(reg4 uint32) bool { return reg4&serviceLed != 0 }
