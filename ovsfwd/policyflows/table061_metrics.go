package policyflows

// Tables 61 (egress) and 101 (ingress) count for each rule the connections that
// it began and the packets after the first of each, or what it denied, and drop
// that. A rule's packets are known by its id in reg5 (ingress: reg6), which the
// deciding table has just set, and later in the connection's label.
//
//	table=61,priority=200,ct_state=+new,reg5=0x2 actions=goto_table:70
//	table=61,priority=200,ct_state=-new+est,ct_label=0x200000000/0xffffffff00000000 actions=goto_table:70
//	table=61,priority=200,reg0=0x100000/0x100000,reg3=0x5 actions=drop
//	table=61,priority=200,reg0=0x100000/0x100000,reg3=0x6 actions=controller(max_len=142,id=26554,meter_id=26554)    (rejects)
//	table=61,priority=190,reg0=0x100000/0x100000 actions=drop
//
// If the id of a rule is not its hash, because another rule had that, the first of its flows
// begins with a note: 112 bits of hash of the rule, by which it gets the id again after a
// restart (Store.Adopt). A rule that passes on then has such a flow for the note alone.
//
//	table=61,priority=200,ct_state=+new,reg5=0x3 actions=note:HASH,goto_table:70
//
// In table 101: reg6, ct_label=0x2/0xffffffff, goto_table:105. The last flow is
// for denied packets that no rule counts.

import (
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
)

// deniedFlows drop the packets that a rule denies, counted or not.
func deniedFlows(deny []openflow.Action) []openflow.Flow {
	var flows []openflow.Flow
	for _, table := range []uint8{pipeline.TableEgressMetrics, pipeline.TableIngressMetrics} {
		flows = append(flows, openflow.Flow{
			Table: table, Priority: priorityDenied, Match: openflow.Any().Bits(openflow.Reg0, pipeline.Denied, pipeline.Denied), Actions: deny,
		})
	}
	return flows
}

// counterFlows renders the flows that count a rule. deny holds their actions for packets
// that the rule denies.
func counterFlows(r *rule, deny []openflow.Action) []openflow.Flow {
	table, next := r.layer.metrics(), pipeline.TableL3Forwarding
	if r.layer.direction() == model.Ingress {
		next = pipeline.TableCommit
	}
	count := func(m openflow.Match, actions ...openflow.Action) openflow.Flow {
		return openflow.Flow{Table: table, Priority: priorityCount, Match: m, Actions: actions}
	}
	exact := ^uint32(0)
	var note []openflow.Action
	if r.displaced {
		note = []openflow.Action{openflow.Note(r.note())}
	}
	denied := openflow.Any().Bits(openflow.Reg0, pipeline.Denied, pipeline.Denied).Bits(openflow.Reg3, r.id, exact)
	switch r.spec.Action {
	case model.Allow:
		return []openflow.Flow{
			count(openflow.Any().CTState(openflow.CTNew, 0).Bits(r.layer.allowed(), r.id, exact), append(note, openflow.GotoTable(next))...),
			count(openflow.Any().CTState(openflow.CTEst, openflow.CTNew).CTLabel(r.layer.label(r.id), r.layer.label(exact)), openflow.GotoTable(next)),
		}
	case model.Deny, model.Reject:
		return []openflow.Flow{count(denied, append(note, deny...)...)}
	}
	if r.displaced {
		// No packet matches: a rule that passes on denies nothing.
		return []openflow.Flow{count(denied, note...)}
	}
	return nil
}
