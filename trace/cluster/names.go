package cluster

import (
	"fmt"
	"net/netip"

	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/policyflows"
)

// names implement trace.Namer by what the agents know.
type names struct {
	addresses map[netip.Addr]string
	sets      map[string]string
	rules     map[uint32]policyflows.RuleID
	ports     map[string]map[uint32]string
}

func newNames(o control.Objects) *names {
	n := &names{addresses: map[netip.Addr]string{}, sets: map[string]string{}, rules: map[uint32]policyflows.RuleID{}, ports: map[string]map[uint32]string{}}
	for _, node := range o.Nodes {
		for _, a := range node.Status.Addresses {
			n.address(a.Address, "node "+node.Name)
		}
	}
	for _, p := range o.Pods {
		if p.Spec.HostNetwork || Over(p) {
			continue
		}
		for _, ip := range p.Status.PodIPs {
			n.address(ip.IP, p.Namespace+"/"+p.Name)
		}
	}
	return n
}

func (n *names) address(text, name string) {
	if a, err := netip.ParseAddr(text); err == nil {
		n.addresses[a.Unmap()] = name
	}
}

// add takes in what the agent of a node knows.
func (n *names) add(one *Node) {
	var all []policyflows.RuleID
	for _, p := range one.Status.Policies {
		id := model.PolicyID{Namespace: p.Namespace, Name: p.Name}
		for _, t := range []model.Tier{model.TierAdmin, model.TierNetworkPolicy, model.TierBaseline} {
			if t.String() == p.Tier {
				id.Tier = t
			}
		}
		for i := range p.IngressRules {
			all = append(all, policyflows.RuleID{Policy: id, Direction: model.Ingress, Index: i})
		}
		for i := range p.EgressRules {
			all = append(all, policyflows.RuleID{Policy: id, Direction: model.Egress, Index: i})
		}
	}
	for id, r := range policyflows.IDs(all) {
		n.rules[id] = r
	}
	n.ports[one.Name] = map[uint32]string{}
	for _, a := range one.Site.Attachments {
		n.ports[one.Name][a.OFPort] = a.Pod.String()
	}
}

// Address implements trace.Namer.
func (n *names) Address(a netip.Addr) string { return n.addresses[a] }

// Set implements trace.Namer.
func (n *names) Set(name string) string { return n.sets[name] }

// Conjunction implements trace.Namer.
func (n *names) Conjunction(id uint32) (policy, rule string) {
	r, known := n.rules[id]
	if !known {
		return fmt.Sprintf("unknown (conjunction %d)", id), ""
	}
	return r.Policy.String(), fmt.Sprintf("%s[%d]", r.Direction, r.Index)
}

// Port implements trace.Namer.
func (n *names) Port(node string, port uint32) string { return n.ports[node][port] }
