package policyflows

import (
	"strings"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
)

// While denied packets are reported, each flow that drops sends them to the agent, up to
// the rate of a meter:
//
//	table=60,priority=200,ip,nw_src=A actions=meter:26552,controller(max_len=128,id=61725)
//
// To begin and to end that, these flows change all at once, in one bundle. They are a
// few for each pod that is isolated or closed; a table of its own, for all to lead to,
// would stand in the way of every denied packet, also while nobody listens.
const (
	// ReportMeter bounds the rate of reports.
	ReportMeter uint32 = 26552
	// ReportID is the controller id of the reports.
	ReportID uint16 = pipeline.PolicyOwner
	// ReportLength is how much of a frame is sent: the Ethernet header, an IPv6 header
	// with some extensions, and the ports behind it.
	ReportLength uint16 = 14 + 128
)

// ReportActions are those of a flow that reports, and passes nothing on.
func ReportActions() []openflow.Action {
	return []openflow.Action{openflow.Meter(ReportMeter), openflow.Controller(ReportID, ReportLength)}
}

// AboutReport reports whether why a flow was refused may be that it reports.
func AboutReport(reason string) bool {
	return strings.Contains(reason, openflow.Controller(ReportID, ReportLength).String())
}

// ReportDirection returns the direction of the policy that denied the packets that a
// table reports, zero for a table without reports.
func ReportDirection(table uint8) model.Direction {
	switch table {
	case pipeline.TableAdminEgress, pipeline.TableEgress, pipeline.TableEgressDefault, pipeline.TableEgressMetrics:
		return model.Egress
	case pipeline.TableAdminIngress, pipeline.TableIngress, pipeline.TableIngressDefault, pipeline.TableIngressMetrics:
		return model.Ingress
	}
	return 0
}
