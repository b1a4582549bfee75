package pipeline

// Table 32, SCTP associations, on the userspace datapath alone. Its connection
// tracking leaves out the ports of SCTP, so one allowed association would let all
// others between its two addresses pass. So SCTP is not tracked there. A packet that policy has allowed
// leaves two flows behind when it goes out, one for the next packets, one for the answers.
//
//	table=30,priority=210,sctp actions=move:OXM_OF_SCTP_SRC[]->OXM_OF_SCTP_SRC[],
//	    move:OXM_OF_SCTP_DST[]->OXM_OF_SCTP_DST[],resubmit(,32),goto_table:31         (and sctp6, as all here)
//	table=32,priority=200,sctp,nw_src=A,nw_dst=B,tp_src=P,tp_dst=Q actions=KNOWN                     (learned)
//	table=32,priority=200,sctp,nw_src=B,nw_dst=A,tp_src=Q,tp_dst=P actions=KNOWN,ANSWER,TO GATEWAY   (learned)
//	table=31,priority=240,sctp,reg0=TO GATEWAY,0x2/0xffff actions=set_field:GWMAC->eth_dst,set_field:GATEWAY->reg1,
//	    set_field:0x10000/0x10000->reg0,goto_table:110                                               (and reg0=0/0xffff)
//	table=45,priority=64993,sctp,reg0=KNOWN actions=goto_table:61
//	table=85,priority=64993,sctp,reg0=KNOWN actions=goto_table:105
//	table=90,priority=213,sctp,reg0=KNOWN actions=goto_table:101
//	table=105,priority=221,sctp,reg0=0x200000/0x200000 actions=set_field:HAIRPIN->ip_src,goto_table:110
//	table=105,priority=220,sctp actions=goto_table:110
//	table=110,priority=230,sctp,in_port=PORT,reg0=0x4010000,not ANSWER actions=learn(...),learn(...),output:NXM_NX_REG1[]
//	table=110,priority=220,sctp,reg0=0x4010000/0x4010000 actions=output:NXM_NX_REG1[]                (and KNOWN)
//
// KNOWN is reg0[23], ANSWER reg0[24]; TO GATEWAY, reg0[25], is only for associations that the gateway port
// began. Known associations are not judged again, as with other protocols. A silent one is forgotten after
// the kernel's timeout for associations. The number of learned ones per port is limited, so that no pod fills
// the switch: policy then judges each packet of the others.
//
// A move of a port onto itself makes the datapath cache the result of a packet for its two ports alone.
// Otherwise the result of a denied packet would, for the milliseconds until the cache is revalidated, also
// apply to the answers of an association that begins.
// association that begins.

import (
	"net/netip"
	"slices"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
)

// AssociationOwner is the owner in the cookies of learned flows.
const AssociationOwner uint16 = 0xf11e

// The bits of reg0 for associations.
const (
	associationKnown     uint32 = 1 << 23
	associationAnswer    uint32 = 1 << 24
	associationToGateway uint32 = 1 << 25
)

// associationIdle is the kernel's nf_conntrack_sctp_timeout_established in
// seconds: seven heartbeats of an association that is idle.
const associationIdle = 210

// The most associations that the packets of one port begin. A pod may begin 19 a second
// for as long as it likes: 4,096 in associationIdle. Their flows take some 16 MB in the
// switch.
const (
	podAssociations  = 4096
	nodeAssociations = 8192
)

const (
	priorityUntracked        uint16 = 220
	priorityUntrackedHairpin uint16 = 221
	priorityLearn            uint16 = 230
	priorityAnswer           uint16 = 240
)

// sctpOf narrows a family's packets to SCTP.
func sctpOf(f model.Family) openflow.Match { return family(f).Protocol(model.SCTP) }

func associationsBase(n Node) []openflow.Flow {
	if !n.Userspace {
		return nil
	}
	var flows []openflow.Flow
	add := func(table uint8, priority uint16, m openflow.Match, actions ...openflow.Action) {
		flows = append(flows, openflow.Flow{Table: table, Priority: priority, Match: m, Actions: actions})
	}
	for _, f := range model.Families() {
		sctp := sctpOf(f)
		known := sctp.Bits(openflow.Reg0, associationKnown, associationKnown)
		add(TableConntrack, priorityHigh, sctp,
			openflow.Copy(openflow.SCTPSrc, openflow.SCTPSrc), openflow.Copy(openflow.SCTPDst, openflow.SCTPDst),
			openflow.Resubmit(TableAssociations), openflow.GotoTable(TableConntrackState))
		for _, source := range []uint32{sourcePod, sourceTunnel} {
			add(TableConntrackState, priorityAnswer,
				sctp.Bits(openflow.Reg0, associationToGateway|source, associationToGateway|sourceMask),
				slices.Concat([]openflow.Action{openflow.SetMAC(openflow.EthDst, n.GatewayMAC)}, setOutput(n.GatewayPort), jump(TableOutput))...)
		}
		add(TableAdminEgress, priorityAdminOwnNode+1, known, openflow.GotoTable(TableEgressMetrics))
		add(TableAdminIngress, priorityAdminOwnNode+1, known, openflow.GotoTable(TableCommit))
		add(TableIngress, priorityJudgeAgain+2, known, openflow.GotoTable(TableIngressMetrics))
		add(TableCommit, priorityUntracked, sctp, openflow.GotoTable(TableOutput))
		add(TableCommit, priorityUntrackedHairpin, sctp.Bits(openflow.Reg0, hairpin, hairpin),
			openflow.SetAddr(sourceField(Hairpin(f)), Hairpin(f)), openflow.GotoTable(TableOutput))
		for _, passes := range []uint32{judged, associationKnown} {
			add(TableOutput, priorityUntracked, sctp.Bits(openflow.Reg0, outputKnown|passes, outputKnown|passes), openflow.OutputRegister(openflow.Reg1))
		}
	}
	flows = append(flows, learning(n.GatewayPort, nodeAssociations, associationToGateway)...)
	return append(flows, learning(n.TunnelPort, nodeAssociations, 0)...)
}

func associationsEndpoint(n Node, a *model.Attachment) []openflow.Flow {
	if !n.Userspace {
		return nil
	}
	return learning(a.OFPort, podAssociations, 0)
}

// learning makes the flows by which packets that came in by a port and now go out
// make their association known; answers of it get more bits.
func learning(port uint32, limit uint32, answers uint32) []openflow.Flow {
	var flows []openflow.Flow
	for _, f := range model.Families() {
		flows = append(flows, openflow.Flow{
			Table: TableOutput, Priority: priorityLearn,
			Match:   sctpOf(f).InPort(port).Bits(openflow.Reg0, outputKnown|judged, outputKnown|judged|associationAnswer),
			Actions: append(learnAssociation(f, port, limit, answers), openflow.OutputRegister(openflow.Reg1)),
		})
	}
	return flows
}

// learnAssociation makes the association of a packet known, and its answers.
func learnAssociation(f model.Family, port, limit, answers uint32) []openflow.Action {
	src, dst := openflow.IPv4Src, openflow.IPv4Dst
	if f == model.IPv6 {
		src, dst = openflow.IPv6Src, openflow.IPv6Dst
	}
	here := []openflow.Field{src, dst, openflow.SCTPSrc, openflow.SCTPDst}
	there := []openflow.Field{dst, src, openflow.SCTPDst, openflow.SCTPSrc}
	learned := func(from []openflow.Field, bits uint32) openflow.Action {
		spec := openflow.LearnSpec{
			Table: TableAssociations, Priority: priorityNormal, IdleTimeout: associationIdle, Limit: limit,
			Cookie: associationCookie(port, bits&associationAnswer != 0), Match: sctpOf(f),
		}
		for i, field := range here {
			spec.Copies = append(spec.Copies, openflow.FieldCopy{Field: field, From: from[i]})
		}
		for _, bit := range []uint32{associationKnown, associationAnswer, associationToGateway} {
			if bits&bit != 0 {
				spec.Sets = append(spec.Sets, openflow.RegisterBits{Register: openflow.Reg0, Value: bit, Mask: bit})
			}
		}
		return openflow.Learn(spec)
	}
	return []openflow.Action{
		learned(here, associationKnown),
		learned(there, associationKnown|associationAnswer|answers),
	}
}

// associationCookie separates the learned flows of each port, and those of answers: their limits are counted
// by cookie.
func associationCookie(port uint32, answer bool) uint64 {
	cookie := uint64(AssociationOwner)<<48 | uint64(port)
	if answer {
		cookie |= 1 << 32
	}
	return cookie
}

// ForgetAssociations are the changes that make the switch forget the associations from
// and to an address.
func ForgetAssociations(a netip.Addr) []openflow.FlowMod {
	var changes []openflow.FlowMod
	for _, m := range []openflow.Match{from(single(a)), to(single(a))} {
		changes = append(changes, openflow.FlowMod{
			Command: openflow.DeleteMatching, Cookie: uint64(AssociationOwner) << 48,
			Flow: openflow.Flow{Table: TableAssociations, Match: m}, Key: "associations of " + a.String(),
		})
	}
	return changes
}
