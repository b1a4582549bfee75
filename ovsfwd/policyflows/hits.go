package policyflows

import (
	"context"
	"fmt"
	"slices"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
)

// Hits counts the decisions of a rule since its flows were installed.
type Hits struct {
	RuleID
	// Name is the rule's in its policy.
	Name string
	// Sessions are the connections that it allowed. One that is not answered
	// counts anew with each of its first packets, as an unanswered UDP packet does; a
	// TCP connection from the ports of one that the switch still knows does not count.
	Sessions uint64
	// Packets and Bytes are those of its connections, or those that it denied.
	Packets, Bytes uint64
}

// Counters reads the counters of flows. *openflow.Conn is one.
type Counters interface {
	FlowStats(ctx context.Context, owner uint16, table uint8) ([]openflow.FlowStats, error)
}

// Count reads the counters of the rules of a node. rules must be all rules of the node.
// It needs no Store, and may be called while one is applied.
func Count(ctx context.Context, c Counters, rules []RuleID) ([]Hits, error) {
	byID := make(map[uint32]*Hits, len(rules))
	stats, notes, err := readCounters(ctx, c)
	if err != nil {
		return nil, err
	}
	for id, r := range idsOf(rules, notes) {
		byID[id] = &Hits{RuleID: r}
	}
	return countHits(stats, byID), nil
}

// readCounters reads the flows that count, and the ids of the rules that have a note.
func readCounters(ctx context.Context, c Counters) ([]openflow.FlowStats, map[openflow.NoteText]uint32, error) {
	var all []openflow.FlowStats
	for _, table := range []uint8{pipeline.TableEgressMetrics, pipeline.TableIngressMetrics} {
		stats, err := c.FlowStats(ctx, pipeline.PolicyOwner, table)
		if err != nil {
			return nil, nil, err
		}
		all = append(all, stats...)
	}
	notes := map[openflow.NoteText]uint32{}
	for _, f := range all {
		if f.Note != (openflow.NoteText{}) {
			notes[f.Note], _ = counted(f)
		}
	}
	return all, notes, nil
}

func countHits(stats []openflow.FlowStats, byID map[uint32]*Hits) []Hits {
	for _, f := range stats {
		id, session := counted(f)
		h := byID[id]
		if h == nil {
			continue // of a rule that has gone meanwhile
		}
		h.Packets += f.Packets
		h.Bytes += f.Bytes
		if session {
			h.Sessions += f.Packets
		}
	}
	all := make([]Hits, 0, len(byID))
	for _, h := range byID {
		all = append(all, *h)
	}
	slices.SortFunc(all, func(a, b Hits) int { return a.Compare(b.RuleID) })
	return all
}

// counted returns the id of the rule that a flow counts, and whether the flow
// counts connections.
func counted(f openflow.FlowStats) (id uint32, session bool) {
	if n, found := f.Value(openflow.Reg3); found {
		return uint32(n), false
	}
	for _, allowed := range []openflow.Field{openflow.Reg5, openflow.Reg6} {
		if n, found := f.Value(allowed); found {
			return uint32(n), true
		}
	}
	label, _ := f.Value(openflow.CTLabel)
	if f.Table == pipeline.TableEgressMetrics {
		label >>= 32
	}
	return uint32(label), false
}

// DeniedFlow counts the packets that a flow dropped because of policy.
type DeniedFlow struct {
	Direction model.Direction
	// Flow names the flow.
	Flow    string
	Packets uint64
}

// CountDenied reads the counters of the flows that drop what isolation or a rule denies. Flows
// of closed pods are none of these.
func CountDenied(ctx context.Context, c Counters) ([]DeniedFlow, error) {
	var all []DeniedFlow
	for _, table := range []uint8{
		pipeline.TableEgressDefault, pipeline.TableEgressMetrics, pipeline.TableIngressDefault, pipeline.TableIngressMetrics,
	} {
		stats, err := c.FlowStats(ctx, pipeline.PolicyOwner, table)
		if err != nil {
			return nil, err
		}
		for _, f := range stats {
			denies := f.Priority == priorityIsolation
			if table == pipeline.TableEgressMetrics || table == pipeline.TableIngressMetrics {
				_, denies = f.Value(openflow.Reg0)
			}
			if denies && f.Packets > 0 {
				all = append(all, DeniedFlow{ReportDirection(table), fmt.Sprintf("flow %d %#x", table, f.Cookie), f.Packets})
			}
		}
	}
	return all, nil
}
