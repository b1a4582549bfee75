package pipeline

// Tables 90 (NetworkPolicy), 100 (isolation, baseline) and 101 (counters),
// ingress, without any policy. Rules match the output port.
//
//	table=90,priority=211,ct_state=-new+est,ct_label=0/ALLOWED,ip actions=ct_clear,resubmit(,90)    (and +rel; and ipv6, as all here)
//	table=90,priority=210,ct_state=-new+est,ip actions=goto_table:101         (and +rel)
//	table=90,priority=210,ip,nw_src=GWIP actions=goto_table:105
//	table=90,priority=210,ip,reg0=0x1/0xffff,nw_src=OWN actions=goto_table:105
//	table=90,priority=0 actions=goto_table:100
//	table=100,priority=0 actions=goto_table:105
//	table=101,priority=0 actions=goto_table:105
//
// The pod's own node is identified by its addresses: by the gateway port only the host can send from them. A
// packet that it forwards never has one of them as its source, because the host's rules drop forged packets
// and keep the client's address where kube-proxy would masquerade. The reference's packet mark is no help:
// marks do not cross a tap device, and every program on the host can set one.

import (
	"slices"

	"github.com/felixlike/felixlike/ovsfwd/openflow"
)

const priorityJudgeAgain uint16 = priorityHigh + 1

func ingressBase(n Node) []openflow.Flow {
	flows := []openflow.Flow{
		next(TableIngress, TableIngressDefault),
		next(TableIngressDefault, TableCommit),
		next(TableIngressMetrics, TableCommit),
	}
	for _, a := range n.Own() {
		m := from(single(a))
		if !slices.Contains(n.Gateways, a) {
			m = m.Bits(openflow.Reg0, sourceGW, sourceMask)
		}
		flows = append(flows, openflow.Flow{Table: TableIngress, Priority: priorityHigh, Match: m, Actions: jump(TableCommit)})
	}
	flows = append(flows, judgeAgain(TableIngress, priorityJudgeAgain)...)
	return append(flows, established(TableIngress, priorityHigh, TableIngressMetrics)...)
}
