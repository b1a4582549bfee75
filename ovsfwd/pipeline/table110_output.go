package pipeline

// Table 110, output: to the port in reg1, if an earlier table has set it. In the
// full pipeline a connection becomes allowed here, by a packet of whoever opened
// it.
//
//	table=110,priority=210,ct_label=0/ALLOWED,ip,reg0=0x10000/0x410000 actions=ct(commit,zone=65520,exec(set_field:ALLOWED/ALLOWED->ct_label)),output:NXM_NX_REG1[]    (full; and ipv6)
//	table=110,priority=200,ip,reg0=0x10000/0x10000 actions=output:NXM_NX_REG1[]    (and ipv6)
//	table=110,priority=0 actions=drop

import "github.com/felixlike/felixlike/ovsfwd/openflow"

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
			Match: notAllowed(m).Bits(openflow.Reg0, outputKnown, outputKnown|neverAllow),
			Actions: []openflow.Action{
				openflow.CT(openflow.CTSpec{
					Commit: true, Zone: Zone, Table: openflow.NoTable,
					Exec: []openflow.Action{openflow.SetCTLabelBits(AllowedLabel(), AllowedLabel())},
				}),
				openflow.OutputRegister(openflow.Reg1),
			},
		})
	}
	return flows
}
