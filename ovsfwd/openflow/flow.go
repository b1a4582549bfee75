package openflow

import (
	"fmt"
	"strings"
)

// Flow is one entry of a flow table. No actions means drop.
type Flow struct {
	Table    uint8
	Priority uint16
	Match    Match
	Actions  []Action
}

// String returns the flow in ovs-ofctl notation, as in
// "table=110,priority=0 actions=drop". Equal flows have equal strings.
func (f Flow) String() string {
	s := fmt.Sprintf("table=%d,priority=%d", f.Table, f.Priority)
	if m := f.Match.String(); m != "" {
		s += "," + m
	}
	return s + " actions=" + f.actions()
}

func (f Flow) actions() string {
	if len(f.Actions) == 0 {
		return "drop"
	}
	words := make([]string, len(f.Actions))
	for i, a := range f.Actions {
		words[i] = a.String()
	}
	return strings.Join(words, ",")
}

// Command is the operation of a FlowMod.
type Command uint8

const (
	// Add installs the flow, or replaces the one of equal table, priority and
	// match.
	Add Command = iota + 1
	// DeleteCookie removes the flows of the table that have the cookie; the
	// rest of the flow is not looked at.
	DeleteCookie
	// DeleteMatching removes the flows of the table that match no packet that the
	// flow does not match, if their owner is the one in the cookie.
	DeleteMatching
	// EnsureGroup adds the group, or replaces the one with its number.
	EnsureGroup
	// DeleteGroup removes the group with that number, if there is one, and the flows that use it.
	DeleteGroup
)

// FlowMod is one change of a bundle.
type FlowMod struct {
	Command Command
	Flow    Flow
	Cookie  uint64
	// HardTimeout is the seconds after which the switch removes the added flow, zero: never.
	HardTimeout uint16
	// Group is the one of EnsureGroup and DeleteGroup, which have no flow.
	Group HashGroup
	// Key is the group of flows that the flow belongs to, for messages.
	Key string
}

// String returns the change in words, with the flow in ovs-ofctl notation.
func (m FlowMod) String() string {
	switch m.Command {
	case Add:
		return "add " + m.Flow.String()
	case DeleteCookie:
		return fmt.Sprintf("delete cookie=%#x/-1,table=%d", m.Cookie, m.Flow.Table)
	case DeleteMatching:
		return fmt.Sprintf("delete cookie=%#x/%#x,table=%d,%s", m.Cookie, ownerBits, m.Flow.Table, m.Flow.Match)
	case EnsureGroup:
		return fmt.Sprintf("add group %d", m.Group.ID)
	case DeleteGroup:
		return fmt.Sprintf("delete group %d", m.Group.ID)
	}
	return fmt.Sprintf("command(%d)", m.Command)
}
