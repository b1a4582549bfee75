package pipeline

// Table 105, commit: stores new connections, those that the gateway port began
// with their mark.
//
//	table=105,priority=210,ip,reg0=0x200000/0x200000 actions=ct_clear,set_field:HAIRPIN->ip_src,
//	    ct(commit,table=110,zone=65520,exec(set_field:0x20->ct_mark))                        (and ipv6, as all here)
//	table=105,priority=206,ct_state=-new,tcp,tcp_flags=+syn-ack,reg0=0x1/0x40ffff actions=ct(commit,table=110,zone=65520,exec(set_field:0x20->ct_mark))
//	table=105,priority=205,ct_state=-new,tcp,tcp_flags=+syn-ack,reg0=0/0x400000 actions=ct(commit,table=110,zone=65520,exec(set_field:0->ct_mark))
//	table=105,priority=204,ct_state=-new,ct_label=0/ALLOWED,ip,reg0=0x1/0x40ffff actions=ct(commit,table=110,zone=65520,exec(set_field:0x20->ct_mark))
//	table=105,priority=200,ct_state=+new+trk,ip,reg0=0x1/0xffff actions=ct(commit,table=110,zone=65520,exec(set_field:0x20->ct_mark))
//	table=105,priority=190,ct_state=+new+trk,ip actions=ct(commit,table=110,zone=65520)
//	table=105,priority=0 actions=goto_table:110
//
// The flows for -new are for a connection that is asked for from the ports of an old
// one, which the gateway port may have begun, or not, and for one that an egress rule
// committed, without the mark, when ingress policy still denied it.

import (
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
)

const (
	// priorityCommitLate is for connections that were committed elsewhere.
	priorityCommitLate  uint16 = 204
	priorityCommitAgain uint16 = 205
	priorityBegunAgain  uint16 = 206
)

func commitBase() []openflow.Flow {
	flows := []openflow.Flow{next(TableCommit, TableOutput)}
	begun := commit(openflow.SetCTMark(GatewayMark))
	for _, ip := range ipFamilies() {
		fresh := ip.CTState(openflow.CTNew|openflow.CTTrk, 0)
		again := asks(ip).CTState(0, openflow.CTNew)
		flows = append(flows,
			openflow.Flow{
				Table: TableCommit, Priority: priorityBegunAgain, Match: again.Bits(openflow.Reg0, sourceGW, sourceMask|neverAllow),
				Actions: []openflow.Action{begun},
			},
			openflow.Flow{
				Table: TableCommit, Priority: priorityCommitAgain, Match: again.Bits(openflow.Reg0, 0, neverAllow),
				Actions: []openflow.Action{commit(openflow.SetCTMark(0))},
			},
			openflow.Flow{
				Table: TableCommit, Priority: priorityCommitLate,
				Match:   notAllowed(ip.CTState(0, openflow.CTNew)).Bits(openflow.Reg0, sourceGW, sourceMask|neverAllow),
				Actions: []openflow.Action{begun},
			},
			openflow.Flow{
				Table: TableCommit, Priority: priorityNormal, Match: fresh.Bits(openflow.Reg0, sourceGW, sourceMask),
				Actions: []openflow.Action{begun},
			},
			openflow.Flow{Table: TableCommit, Priority: priorityLow, Match: fresh, Actions: []openflow.Action{commit()}},
		)
	}
	return append(flows, hairpinBase()...)
}

// hairpinBase makes the flows that put the address back which stands for a pod
// that reaches itself. The state belongs to the other address, or to none.
func hairpinBase() []openflow.Flow {
	var flows []openflow.Flow
	for _, f := range model.Families() {
		stand := Hairpin(f)
		flows = append(flows, openflow.Flow{
			Table: TableCommit, Priority: priorityHigh,
			Match: family(f).Bits(openflow.Reg0, hairpin, hairpin),
			Actions: []openflow.Action{
				openflow.CTClear(),
				openflow.SetAddr(sourceField(stand), stand),
				commit(openflow.SetCTMark(GatewayMark)),
			},
		})
	}
	return flows
}

// commit stores the packet's connection and goes on to the output.
func commit(exec ...openflow.Action) openflow.Action {
	return openflow.CT(openflow.CTSpec{Commit: true, Zone: Zone, Table: TableOutput, Exec: exec})
}
