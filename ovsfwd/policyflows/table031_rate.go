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
// back through the gateway port. They count twice, because they add two connections.
//
// To the kernel, each packet of a connection is new until the other end answers. ALLOWED
// excludes one-way streams that policy has allowed from the count.

import (
	"strings"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
)

const (
	// priorityRate stands below what drops invalid packets. No other flow of the table
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

// BoundRates turns the limit for new connections on or off. The switch must have the
// meters (RateMeters) before the limit is on, and until it is off.
func (s *Store) BoundRates(bounded bool) {
	if s.bounded == bounded {
		return
	}
	s.bounded = bounded
	for name := range s.pods {
		s.dirty.rates[name] = struct{}{}
	}
}

// RateMeters returns the meters that the flows name.
func (s *Store) RateMeters() map[uint32]bool {
	meters := map[uint32]bool{}
	for _, id := range s.meters {
		meters[id] = true
	}
	return meters
}

// setRate sets or removes the flows that bound the rate of a pod. A closed pod adds no
// connections. Nor does it have its address to itself: it may have left before another one
// that had the address after it.
func (s *Store) setRate(name string) {
	p := s.pods[name]
	if p != nil && p.Open && s.bounded && p.Port != 0 && IsRateMeter(RateMeter(p.Port)) && len(p.Addresses) > 0 {
		s.meters[name] = RateMeter(p.Port)
		s.flows.SetFlows(rateKey(name), func() []openflow.Flow { return s.rateFlows(name) })
	} else if _, had := s.meters[name]; had {
		delete(s.meters, name)
		s.flows.RemoveFlows(rateKey(name))
	}
}

// rateFlows renders the flows that bound the rate of a pod.
func (s *Store) rateFlows(name string) []openflow.Flow {
	p := s.pods[name]
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

const rateKeyPrefix = "rate of pod "

func rateKey(name string) string { return rateKeyPrefix + name }

// AboutRates reports whether an error of the Programmer is that the switch refuses flows
// that bound rates.
func AboutRates(err error) bool {
	for _, r := range reasons(err) {
		if strings.HasPrefix(r.key, rateKeyPrefix) {
			return true
		}
	}
	return false
}
