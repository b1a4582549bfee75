package policyflows

import (
	"strings"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
)

// While what is denied is reported, each flow here that drops, drops by a meter what
// is too much, and sends the rest to whoever listens:
//
//	table=60,priority=200,ip,nw_src=A actions=meter:26552,controller(max_len=128,id=61725)
//
// To begin and to end that, these flows change all at once, in one bundle. They are a
// few for each pod that is isolated or closed; a table of its own, for all to lead to,
// would stand in the way of every denied packet, also while nobody listens.
const (
	// ReportMeter bounds what is reported.
	ReportMeter uint32 = 26552
	// ReportID is what to listen for.
	ReportID uint16 = pipeline.PolicyOwner
	// ReportLength is how much of a frame is sent: the Ethernet header, an IPv6 header
	// with some extensions, and the ports behind it.
	ReportLength uint16 = 14 + 128
)

// Report has what is denied reported, or not any more. The switch has to have the meter
// before, and for as long.
func (s *Store) Report(reported bool) {
	if s.reported == reported {
		return
	}
	s.reported = reported
	s.dirty.base = true
	for name := range s.pods {
		s.dirty.closing[name] = struct{}{}
	}
	for id, r := range s.rules {
		if r.spec.Action == model.Deny {
			s.dirty.rules[id] = struct{}{}
		}
	}
}

// Reported reports whether what is denied is reported.
func (s *Store) Reported() bool { return s.reported }

// deny is what flows do with a packet that is denied: without actions, they drop it.
func (s *Store) deny() []openflow.Action {
	if !s.reported {
		return nil
	}
	return ReportActions()
}

// ReportActions are those of a flow that reports, and passes nothing on.
func ReportActions() []openflow.Action {
	return []openflow.Action{openflow.Meter(ReportMeter), openflow.Controller(ReportID, ReportLength)}
}

// AboutReport reports whether why a flow was refused may be that it reports.
func AboutReport(reason string) bool {
	return strings.Contains(reason, openflow.Controller(ReportID, ReportLength).String())
}

// ReportDirection returns the direction of the policy that denies what a table reports,
// zero if the table is none that does.
func ReportDirection(table uint8) model.Direction {
	switch table {
	case pipeline.TableAdminEgress, pipeline.TableEgress, pipeline.TableEgressDefault, pipeline.TableEgressMetrics:
		return model.Egress
	case pipeline.TableAdminIngress, pipeline.TableIngress, pipeline.TableIngressDefault, pipeline.TableIngressMetrics:
		return model.Ingress
	}
	return 0
}
