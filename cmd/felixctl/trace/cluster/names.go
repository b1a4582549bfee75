package cluster

import (
	"fmt"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/felixlike/felixlike/cmd/felixctl/dump/names"
	"github.com/felixlike/felixlike/felixlike/control"
)

// namer implements trace.Namer: the Kubernetes objects name the addresses of the whole
// cluster, and each model the rules and sets of its node.
type namer struct {
	addresses map[netip.Addr]string
	nodes     map[string]*names.Names
	all       []*names.Names
}

func newNamer(o control.Objects) *namer {
	n := &namer{addresses: map[netip.Addr]string{}, nodes: map[string]*names.Names{}}
	for _, p := range o.Pods {
		if p.Spec.HostNetwork || Over(p) {
			continue
		}
		for _, ip := range p.Status.PodIPs {
			if a, err := netip.ParseAddr(ip.IP); err == nil {
				n.addresses[a.Unmap()] = p.Namespace + "/" + p.Name
			}
		}
	}
	return n
}

// add takes over the model of a node.
func (n *namer) add(one *Node) {
	known := names.Of(&one.Model)
	n.nodes[one.Name] = known
	n.all = append(n.all, known)
}

// find returns the first name that a node has.
func (n *namer) find(name func(*names.Names) string) string {
	for _, one := range n.all {
		if text := name(one); text != "" {
			return text
		}
	}
	return ""
}

// Address implements trace.Namer.
func (n *namer) Address(a netip.Addr) string {
	if name := n.addresses[a]; name != "" {
		return name
	}
	return n.find(func(one *names.Names) string { return one.Address(a) })
}

// Set implements trace.Namer.
func (n *namer) Set(name string) string {
	return n.find(func(one *names.Names) string { return one.Set(name) })
}

// Conjunction implements trace.Namer.
func (n *namer) Conjunction(id uint32) (policy, rule string) {
	name := n.find(func(one *names.Names) string { return one.Rule(id) })
	if name == "" {
		return fmt.Sprintf("unknown (conjunction %d)", id), ""
	}
	policy, rule, _ = strings.Cut(name, " ")
	return policy, rule
}

// RuleName implements trace.Namer.
func (n *namer) RuleName(policy, rule string) string {
	return n.find(func(one *names.Names) string { return one.RuleName(policy, rule) })
}

// Port implements trace.Namer.
func (n *namer) Port(node string, port uint32) string {
	if one := n.nodes[node]; one != nil {
		return one.Port(port)
	}
	return ""
}

// Over reports whether a pod has ended, and so has no address any more.
func Over(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}
