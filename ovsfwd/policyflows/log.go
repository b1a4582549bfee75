package policyflows

import (
	"strings"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
)

// A rule with Log sends each packet that it decides to the agent, up to the rate of a meter that
// all these rules share, and then decides as without:
//
//	table=90,priority=190,conj_id=6,ip actions=set_field:0x6->reg6,
//	    controller(max_len=142,id=26553,meter_id=26553),ct(commit,table=101,...)
//
// Unlike the action meter, this one drops no packet.
const (
	// LogMeter bounds the rate of these packets.
	LogMeter uint32 = 26553
	// LogID is the controller id of these packets.
	LogID uint16 = 26553
)

// LogActions send a packet to the agent.
func LogActions() []openflow.Action {
	return []openflow.Action{openflow.MeteredController(LogID, ReportLength, LogMeter)}
}

// AboutLog reports whether why a flow was refused may be that it logs.
func AboutLog(reason string) bool { return strings.Contains(reason, LogActions()[0].String()) }

// Log turns the reports of rules with Log on or off. The switch has to have the meter
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
