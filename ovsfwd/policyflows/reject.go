package policyflows

import "github.com/felixlike/felixlike/ovsfwd/openflow"

// A rule that rejects sends what it denies to the agent, up to the rate of a meter, and drops it. The agent
// answers:
//
//	table=101,priority=200,reg0=0x100000/0x100000,reg3=0x5 actions=controller(max_len=142,id=26554,meter_id=26554)
//
// Without the agent nobody listens with this id, and the packet is only dropped. A switch without meters
// drops only, too.
const (
	// RejectMeter bounds the rate of these packets to AnswersPerSecond.
	RejectMeter uint32 = 26554
	// RejectID is the controller id of these packets.
	RejectID uint16 = 26554
	// AnswersPerSecond bounds the answers of a node.
	AnswersPerSecond = 500
)

// RejectActions are those of a flow whose packets are to be answered.
func RejectActions() []openflow.Action {
	return []openflow.Action{openflow.MeteredController(RejectID, ReportLength, RejectMeter)}
}

// Rejects reports whether packets of rules that reject are to be answered.
func (s *Store) Rejects() bool { return s.renderer.answers && len(s.renderer.rejecting) > 0 }
