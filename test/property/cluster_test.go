package property

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/felixlike/felixlike/felixlike/antrea"
	"github.com/felixlike/felixlike/felixlike/policy/oracle"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/policytest"
)

// randomCluster draws a cluster; one in three has objects of Antrea's API.
func randomCluster(rt *rapid.T) *oracle.Cluster {
	if rapid.IntRange(0, 2).Draw(rt, "Antrea's kinds") == 2 {
		return policytest.AntreaCluster(rt)
	}
	return policytest.TieredCluster(rt)
}

// crowdedCluster is randomCluster; one in four has many rules of equal ports.
func crowdedCluster(rt *rapid.T) *oracle.Cluster {
	c := randomCluster(rt)
	policytest.Crowd(rt, c)
	return c
}

// podsOn returns the pods with an interface on the node: those that run, and
// not on the host's network.
func podsOn(c *oracle.Cluster, node string) map[model.PodID]*corev1.Pod {
	pods := map[model.PodID]*corev1.Pod{}
	for _, p := range c.Pods {
		if p.Spec.NodeName == node && !p.Spec.HostNetwork && p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed {
			pods[model.PodID{Namespace: p.Namespace, Name: p.Name}] = p
		}
	}
	return pods
}

func addresses(p *corev1.Pod) []netip.Addr {
	var all []netip.Addr
	for _, ip := range p.Status.PodIPs {
		if a, err := netip.ParseAddr(ip.IP); err == nil {
			all = append(all, a)
		}
	}
	slices.SortFunc(all, netip.Addr.Compare)
	return all
}

// become leads the dataplane from one cluster to the next by differences, as a
// datastore and a bridge would: it deletes missing objects and sets the rest.
func (d *dataplane) become(before, after *oracle.Cluster) {
	if before != nil {
		d.leave(before, after)
	}
	for _, n := range after.Nodes {
		d.engine.SetNode(n)
	}
	for _, n := range after.Namespaces {
		d.engine.SetNamespace(n)
	}
	for _, p := range after.Pods {
		d.engine.SetPod(p)
	}
	for _, p := range after.Policies {
		d.engine.SetNetworkPolicy(p)
	}
	for _, p := range after.ClusterPolicies {
		d.engine.SetClusterNetworkPolicy(p)
	}
	d.engine.SetIsolation(after.Antrea.Isolation)
	for _, o := range after.Antrea.All() {
		d.engine.SetAntrea(o)
	}
	for id, p := range podsOn(after, d.node) {
		d.attach(id, addresses(p))
	}
}

func (d *dataplane) leave(before, after *oracle.Cluster) {
	key := func(namespace, name string) string { return namespace + "/" + name }
	stays := map[string]bool{}
	for _, n := range after.Nodes {
		stays["node "+n.Name] = true
	}
	for _, n := range after.Namespaces {
		stays["namespace "+n.Name] = true
	}
	for _, p := range after.Pods {
		stays["pod "+key(p.Namespace, p.Name)] = true
	}
	for _, p := range after.Policies {
		stays["policy "+key(p.Namespace, p.Name)] = true
	}
	for _, p := range after.ClusterPolicies {
		stays["cluster policy "+p.Name] = true
	}
	antreaStays := map[antrea.ID]bool{}
	for _, o := range after.Antrea.All() {
		antreaStays[o.ID()] = true
	}
	for _, o := range before.Antrea.All() {
		if !antreaStays[o.ID()] {
			d.engine.DeleteAntrea(o.ID())
		}
	}
	for _, p := range before.ClusterPolicies {
		if !stays["cluster policy "+p.Name] {
			d.engine.DeleteClusterNetworkPolicy(p.Name)
		}
	}
	for _, p := range before.Policies {
		if !stays["policy "+key(p.Namespace, p.Name)] {
			d.engine.DeleteNetworkPolicy(p.Namespace, p.Name)
		}
	}
	now := podsOn(after, d.node)
	for id := range podsOn(before, d.node) {
		if now[id] == nil {
			d.detach(id)
		}
	}
	for _, p := range before.Pods {
		if !stays["pod "+key(p.Namespace, p.Name)] {
			d.engine.DeletePod(model.PodID{Namespace: p.Namespace, Name: p.Name})
		}
	}
	for _, n := range before.Namespaces {
		if !stays["namespace "+n.Name] {
			d.engine.DeleteNamespace(n.Name)
		}
	}
	for _, n := range before.Nodes {
		if !stays["node "+n.Name] {
			d.engine.DeleteNode(n.Name)
		}
	}
}

// place is the place of an address: on the node as a pod, on the node itself,
// or outside (no node).
type place struct {
	node string
	pod  bool
}

// locate finds an address. The second result is false for addresses inside a
// pod prefix that no pod has: the dataplane drops them under any policies.
func locate(c *oracle.Cluster, a netip.Addr) (place, bool) {
	for _, n := range c.Nodes {
		for _, p := range podsOn(c, n.Name) {
			if slices.Contains(addresses(p), a) {
				return place{node: n.Name, pod: true}, true
			}
		}
	}
	for _, n := range c.Nodes {
		for _, own := range n.Status.Addresses {
			if own.Type == corev1.NodeInternalIP && own.Address == a.String() {
				return place{node: n.Name}, true
			}
		}
		for _, s := range n.Spec.PodCIDRs {
			prefix, err := netip.ParsePrefix(s)
			if err != nil || !prefix.Contains(a) {
				continue
			}
			return place{node: n.Name}, prefix.Masked().Addr().Next() == a
		}
	}
	return place{}, true
}
