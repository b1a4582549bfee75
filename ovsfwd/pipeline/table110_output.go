package pipeline

// Table 110, output: to the port in reg1, if an earlier table has set it. In the full pipeline a packet of
// the connection's originator makes the connection allowed here.
//
//	table=110,priority=240,ip,reg0=0x10000/0x4010000 actions=set_field:0x4000000/0x4000000->reg0,resubmit(,110)    (of policy; and ipv6)
//	table=110,priority=210,ct_label=0/ALLOWED,ip,reg0=0x4010000/0x4410000 actions=ct(commit,zone=65520,exec(set_field:ALLOWED/ALLOWED->ct_label)),output:NXM_NX_REG1[]    (full; and ipv6)
//	table=110,priority=205,ct_label=0/ALLOWED,ip,reg0=0x10000/0x4010000 actions=drop                               (full; and ipv6)
//	table=110,priority=205,tcp,tcp_flags=+syn-ack,reg0=0x10000/0x4010000 actions=drop                              (full; and tcp6)
//	table=110,priority=200,ip,reg0=0x10000/0x10000 actions=output:NXM_NX_REG1[]    (and ipv6)
//	table=110,priority=0 actions=drop
//
// The first flow goes with the flows of policy, by any removal. Without it allowed connections go on, and no
// other packet leaves: no packet passes because the denying flow is missing.

import "github.com/felixlike/felixlike/ovsfwd/openflow"

const (
	// priorityJudged stands above all that looks at the bit.
	priorityJudged uint16 = 240
	// priorityUnjudged stands above the flow that outputs all packets.
	priorityUnjudged uint16 = 205
)

// Judged makes the flows that mark packets as judged by policy. They are installed together with policy.
func Judged() []openflow.Flow {
	var flows []openflow.Flow
	for _, m := range ipFamilies() {
		flows = append(flows, openflow.Flow{
			Table: TableOutput, Priority: priorityJudged,
			Match:   m.Bits(openflow.Reg0, outputKnown, outputKnown|judged),
			Actions: []openflow.Action{openflow.SetBits(openflow.Reg0, judged, judged), openflow.Resubmit(TableOutput)},
		})
	}
	return flows
}

func outputBase() []openflow.Flow {
	flows := []openflow.Flow{drop(TableOutput)}
	for _, m := range ipFamilies() {
		flows = append(flows, openflow.Flow{
			Table: TableOutput, Priority: priorityNormal,
			Match:   m.Bits(openflow.Reg0, outputKnown, outputKnown),
			Actions: []openflow.Action{openflow.OutputRegister(openflow.Reg1)},
		})
	}
	return flows
}

func outputFull() []openflow.Flow {
	var flows []openflow.Flow
	for _, m := range ipFamilies() {
		flows = append(flows, openflow.Flow{
			Table: TableOutput, Priority: priorityHigh,
			Match:   notAllowed(m).Bits(openflow.Reg0, outputKnown|judged, outputKnown|judged|neverAllow),
			Actions: []openflow.Action{allowConnection(), openflow.OutputRegister(openflow.Reg1)},
		}, openflow.Flow{
			Table: TableOutput, Priority: priorityUnjudged,
			Match: notAllowed(m).Bits(openflow.Reg0, outputKnown, outputKnown|judged),
		}, openflow.Flow{
			Table: TableOutput, Priority: priorityUnjudged,
			Match: asks(m).Bits(openflow.Reg0, outputKnown, outputKnown|judged),
		})
	}
	return flows
}

// allowConnection makes the packet's connection allowed.
func allowConnection() openflow.Action {
	return openflow.CT(openflow.CTSpec{
		Commit: true, Zone: Zone, Table: openflow.NoTable,
		Exec: []openflow.Action{openflow.SetCTLabelBits(AllowedLabel(), AllowedLabel())},
	})
}

// OpenWithoutPolicy are the changes that let everything out of a switch without
// flows of policy, for a node that is to have none.
func OpenWithoutPolicy() []openflow.FlowMod {
	var changes []openflow.FlowMod
	for _, ip := range ipFamilies() {
		for _, m := range []openflow.Match{notAllowed(ip), asks(ip)} {
			changes = append(changes, openflow.FlowMod{
				Command: openflow.DeleteMatching, Cookie: uint64(Owner) << 48, Key: "output without policy",
				Flow: openflow.Flow{Table: TableOutput, Match: m.Bits(openflow.Reg0, outputKnown, outputKnown|judged)},
			})
		}
	}
	return changes
}
