package policyflows

import (
	"net/netip"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
)

// layer is one of the six tables with conjunctions: a tier in a direction.
type layer uint8

const (
	adminEgress layer = iota
	ruleEgress
	baselineEgress
	adminIngress
	ruleIngress
	baselineIngress
	layerCount
)

// Priorities beside those of the rules (precedence.go). Closed pods stand right
// below established connections: 64990 in the admin tables, 210 in the others.
// Policies before all tiers have two priorities above those of the tiers. A pod has one namespace, so the rules of
// different namespaces need no order, and those of one that deny match different peers.
const (
	priorityRuleAction  uint16 = 190
	priorityAdminClosed uint16 = 64989
	priorityNext        uint16 = 64921
	priorityIsolated    uint16 = 64920
	priorityRuleClosed  uint16 = 209
	// priorityPortSets is also that of the last lane: a flow that is no clause goes before clauses.
	priorityPortSets  uint16 = 208
	priorityIsolation uint16 = 200
	priorityCount     uint16 = 200
	priorityDenied    uint16 = 190
)

// layerOf returns the layer of a policy's rules.
func layerOf(t model.Tier, d model.Direction) layer {
	l := ruleEgress
	switch t {
	case model.TierAdmin:
		l = adminEgress
	case model.TierBaseline:
		l = baselineEgress
	}
	if d == model.Ingress {
		l += adminIngress - adminEgress
	}
	return l
}

func (l layer) direction() model.Direction {
	if l >= adminIngress {
		return model.Ingress
	}
	return model.Egress
}

// networkPolicies reports whether the layer's rules are evaluated in no order.
func (l layer) networkPolicies() bool { return l == ruleEgress || l == ruleIngress }

// order returns how to find the priorities of the other layers' rules.
func (l layer) order() orderedTier {
	if l == baselineEgress || l == baselineIngress {
		return baselinePriorities()
	}
	return adminPriorities()
}

func (l layer) table() uint8 {
	return [layerCount]uint8{
		pipeline.TableAdminEgress, pipeline.TableEgress, pipeline.TableEgressDefault,
		pipeline.TableAdminIngress, pipeline.TableIngress, pipeline.TableIngressDefault,
	}[l]
}

// metrics is the table that counts the decisions of the layer's direction.
func (l layer) metrics() uint8 {
	if l.direction() == model.Ingress {
		return pipeline.TableIngressMetrics
	}
	return pipeline.TableEgressMetrics
}

// passes is the table for packets that a rule passes on: the next tier's, or behind the
// last tier the table for packets that no tier decides.
func (l layer) passes() uint8 {
	if l == baselineEgress || l == baselineIngress {
		return l.metrics()
	}
	return (l + 1).table()
}

// allowed is the register that has the id of the rule that allowed the packet,
// label the half of the connection's label that keeps it.
func (l layer) allowed() openflow.Field {
	if l.direction() == model.Ingress {
		return openflow.Reg6
	}
	return openflow.Reg5
}

// asked is the register whose bit pipeline.Asked says that the policy before all tiers has handed the packet on. A packet from
// a pod to a pod of its node meets both.
func (l layer) asked() openflow.Field {
	if l.direction() == model.Ingress {
		return openflow.Reg0
	}
	return openflow.Reg4
}

func (l layer) label(id uint32) openflow.Label {
	if l.direction() == model.Ingress {
		return openflow.Label{Lo: uint64(id)}
	}
	return openflow.Label{Lo: uint64(id) << 32}
}

// peer matches what a group has for a member: an address at the other end, or a
// named port of the destination.
func (l layer) peer(m model.Member) openflow.Match {
	f := m.Family()
	if m.Protocol != model.AnyProtocol {
		return address(ip(f).Protocol(m.Protocol), openflow.IPv4Dst, m.Prefix).Port(openflow.DestinationPort(m.Protocol), m.Port, 0xffff)
	}
	if l.direction() == model.Ingress {
		return address(ip(f), openflow.IPv4Src, m.Prefix)
	}
	return address(ip(f), openflow.IPv4Dst, m.Prefix)
}

// ip matches all packets of a family.
func ip(f model.Family) openflow.Match {
	if f == model.IPv6 {
		return openflow.IPv6()
	}
	return openflow.IPv4()
}

// address adds a prefix to a match, in the field or its IPv6 twin. A prefix of
// all addresses is no condition: it would have the identity of a flow without.
func address(m openflow.Match, f openflow.Field, p netip.Prefix) openflow.Match {
	if p.Bits() == 0 {
		return m
	}
	if model.FamilyOf(p.Addr()) == model.IPv6 {
		f = twin(f)
	}
	return m.Prefix(f, p)
}

func twin(f openflow.Field) openflow.Field {
	if f == openflow.IPv4Src {
		return openflow.IPv6Src
	}
	return openflow.IPv6Dst
}
