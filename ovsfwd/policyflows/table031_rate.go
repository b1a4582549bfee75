package policyflows

// Table 31, the rate of new connections: one meter for each pod drops packets above the
// rate. A is an address of the pod, METER its meter.
//
//	table=31,priority=195,ct_state=+new+trk,ct_label=0/ALLOWED,ip,nw_src=A actions=meter:METER,goto_table:40
//
// An egress rule commits a connection before ingress policy judges it. So a pod that
// may send can fill the table of connections with connections that ingress policy denies.
// The meter is before both, and limits the connections that the pod adds in a second.
//
// The source address identifies the pod. The port does not: packets to a Service come
// back through the gateway port, or, in the bridge, come here again with the endpoint. They count twice, because they add two connections.
//
// To the kernel, each packet of a connection is new until the other end answers. ALLOWED
// excludes one-way streams that policy has allowed from the count.

import (
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
)

const (
	// priorityRate is below the flow that drops invalid packets. No other flow of the table
	// matches packets of new connections.
	priorityRate uint16 = 195
	// firstRateMeter is that of port 0.
	firstRateMeter uint32 = 0x10000
	// lastRateMeter is that of the highest port that a switch gives.
	lastRateMeter uint32 = 0x1ffff
)

// RateMeter returns the meter of the pod at a port.
func RateMeter(port uint32) uint32 { return firstRateMeter + port }

// IsRateMeter reports whether a meter is that of a pod.
func IsRateMeter(meter uint32) bool { return firstRateMeter <= meter && meter <= lastRateMeter }

const rateKeyPrefix = "rate of pod "

func rateKey(name string) string { return rateKeyPrefix + name }

// rateFlows renders the flows that bound the rate of a pod.
func rateFlows(p *pod) []openflow.Flow {
	if p == nil {
		return nil
	}
	var flows []openflow.Flow
	for _, a := range p.Addresses {
		m, source := ip(model.FamilyOf(a)), openflow.IPv4Src
		if model.FamilyOf(a) == model.IPv6 {
			source = openflow.IPv6Src
		}
		flows = append(flows, openflow.Flow{
			Table: pipeline.TableConntrackState, Priority: priorityRate,
			Match:   m.Addr(source, a.Unmap()).CTState(openflow.CTNew|openflow.CTTrk, 0).CTLabel(openflow.Label{}, pipeline.AllowedLabel()),
			Actions: []openflow.Action{openflow.Meter(RateMeter(p.Port)), openflow.GotoTable(pipeline.TableDNAT)},
		})
	}
	return flows
}
