package policyflows

import (
	"strings"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
)

// A rule with Log sends each packet that it decides to the agent, up to the rate of a meter, and
// then decides as without:
//
//	table=90,priority=190,conj_id=6,ip actions=set_field:0x6->reg6,
//	    controller(max_len=142,id=26553,meter_id=131078),ct(commit,table=101,...)
//
// Unlike the action meter, this one drops no packet. There are logMeters meters. A rule has the one
// that its id leads to, so a flood on one rule takes no lines of most others, and a restart changes no meter.
// Policies with a namespace have half of the meters: their authors can find a rule with any id, but take
// no lines of a policy of the cluster.
const (
	// firstLogMeter stands above those of pods.
	firstLogMeter = lastRateMeter + 1
	logMeters     = 64
	// LogID is the controller id of these packets.
	LogID uint16 = 26553
)

// LogMeters returns the meters of rules with Log.
func LogMeters() []uint32 {
	all := make([]uint32, logMeters)
	for i := range all {
		all[i] = firstLogMeter + uint32(i)
	}
	return all
}

// logMeter returns the meter of the rule.
func (r *rule) logMeter() uint32 {
	meter := firstLogMeter + r.id%(logMeters/2)
	if r.policy.id.Namespace != "" {
		meter += logMeters / 2
	}
	return meter
}

// LogActions send a packet that a rule decides to the agent.
func LogActions(meter uint32) []openflow.Action {
	return []openflow.Action{openflow.MeteredController(LogID, ReportLength, meter)}
}

// AboutLog reports whether why a flow was refused may be that it logs.
func AboutLog(reason string) bool {
	action, _, _ := strings.Cut(LogActions(0)[0].String(), "meter_id=")
	return strings.Contains(reason, action)
}

// Log turns the reports of rules with Log on or off. The switch has to have LogMeters
// before, and for as long.
func (s *Store) Log(on bool) {
	if s.renderer.logged == on {
		return
	}
	s.renderer.logged = on
	for id, r := range s.rules {
		if r.spec.Log {
			s.dirty.rules[id] = struct{}{}
		}
	}
}

// Logged reports whether rules with Log report.
func (s *Store) Logged() bool { return s.renderer.logged }

// LogRule is a rule with Log.
type LogRule struct {
	RuleID
	Rule model.Rule
}

// LogRules returns the rules with Log by their ids, if they report.
func (s *Store) LogRules() map[uint32]LogRule {
	if !s.renderer.logged {
		return nil
	}
	all := map[uint32]LogRule{}
	for id, r := range s.rules {
		if r.spec.Log {
			all[r.id] = LogRule{id, r.spec}
		}
	}
	return all
}

// LoggedID returns the id of the rule that sent a packet to the agent.
func LoggedID(in openflow.PacketIn) uint32 {
	if id := in.Register(3); id != 0 {
		return id // it denies or passes on
	}
	if ReportDirection(in.Table) == model.Egress {
		return in.Register(5)
	}
	return in.Register(6)
}
