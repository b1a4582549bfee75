package policytest

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"

	"github.com/felixlike/felixlike/felixlike/policy/oracle"
	"github.com/felixlike/felixlike/model"
)

// Judge judges a packet by the models of all nodes, by name, the way the
// dataplanes do: the source's node asks the egress side, the destination's
// node the ingress side. The addresses of the pods attached to each node, which a
// dataplane gets from elsewhere, come from the cluster.
func Judge(models map[string]*Model, c *oracle.Cluster, p oracle.Packet) (egress, ingress bool) {
	source, sourceNode := attached(c, p.Source)
	destination, destinationNode := attached(c, p.Destination)
	egress, ingress = true, true
	if source != (model.PodID{}) && source == destination {
		return egress, ingress
	}
	if m := models[sourceNode]; m != nil {
		egress = m.allows(model.Egress, source, p.Destination, p.Destination, p.Protocol, p.Port, m.isOwn(sourceNode, p.Destination))
	}
	if m := models[destinationNode]; m != nil && !m.isOwn(destinationNode, p.Source) {
		ingress = m.allows(model.Ingress, destination, p.Source, p.Destination, p.Protocol, p.Port, false)
	}
	return egress, ingress
}

// isOwn reports whether the address is the node's own.
func (m *Model) isOwn(node string, a netip.Addr) bool {
	n := m.Nodes[node]
	f := model.FamilyOf(a)
	return n != nil && (n.Address(f) == a || n.Gateway(f) == a)
}

// attached returns the running pod with an interface of that address, and the
// name of its node.
func attached(c *oracle.Cluster, a netip.Addr) (model.PodID, string) {
	for _, p := range c.Pods {
		if p.Spec.HostNetwork || p.Status.Phase != corev1.PodRunning {
			continue
		}
		for _, ip := range p.Status.PodIPs {
			if ip.IP == a.String() {
				return PodID(p), p.Spec.NodeName
			}
		}
	}
	return model.PodID{}, ""
}
