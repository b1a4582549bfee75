package pipeline

// Table 110, output: to the port in reg1, if an earlier table has set it.
//
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
