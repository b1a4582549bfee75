package policytest

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/felixlike/felixlike/felixlike/policy/oracle"
	"github.com/felixlike/felixlike/model"
)

// Packets draws packets between addresses of the cluster and of the outside:
// pods, nodes, gateways, and hosts in and out of the blocks of policies.
func Packets(t *rapid.T, c *oracle.Cluster) []oracle.Packet {
	byFamily := map[model.Family][]netip.Addr{}
	for _, a := range ends(c) {
		byFamily[model.FamilyOf(a)] = append(byFamily[model.FamilyOf(a)], a)
	}
	return times(t, "packets", 1, 40, func(int) oracle.Packet {
		f := pick(t, "family", model.Families()...)
		p := oracle.Packet{
			Source:      pick(t, "source", byFamily[f]...),
			Destination: pick(t, "destination", byFamily[f]...),
			Protocol:    pick(t, "packet protocol", model.TCP, model.UDP, model.SCTP, model.ICMP),
		}
		if p.Protocol == model.ICMP {
			p.Protocol, p.Port = model.EchoRequest(f)
			if f == model.IPv4 {
				p.Port = pick(t, "message", p.Port, p.Port, model.ICMPMessage(13, 0))
			}
			return p
		}
		p.Port = pick(t, "packet port", portNumbers()...)
		return p
	})
}

// ends lists the addresses that packets may come from or go to, those of pods
// more than once, because verdicts are about them.
func ends(c *oracle.Cluster) []netip.Addr {
	var all []netip.Addr
	add := func(s string) {
		if a, err := netip.ParseAddr(s); err == nil {
			all = append(all, a)
		}
	}
	for range 3 {
		for _, p := range c.Pods {
			for _, ip := range p.Status.PodIPs {
				add(ip.IP)
			}
		}
	}
	for _, n := range c.Nodes {
		for _, a := range n.Status.Addresses {
			if a.Type == corev1.NodeInternalIP {
				add(a.Address)
			}
		}
		for _, s := range n.Spec.PodCIDRs {
			if p, err := netip.ParsePrefix(s); err == nil {
				all = append(all, p.Masked().Addr().Next())
			}
		}
	}
	for _, s := range []string{"203.0.113.7", "203.0.113.8", "198.51.100.1", "2001:db8::7", "2001:db8::8", "2001:db9::1"} {
		add(s)
	}
	return all
}

// PodID names a pod.
func PodID(p *corev1.Pod) model.PodID { return model.PodID{Namespace: p.Namespace, Name: p.Name} }
