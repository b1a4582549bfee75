package compile

import (
	"net/netip"

	"github.com/felixlike/felixlike/felixlike/antrea"
	"github.com/felixlike/felixlike/felixlike/policy/label"
	"github.com/felixlike/felixlike/model"
)

// Egress is a compiled Egress.
type Egress struct {
	// Pods selects the pods whose packets get the address.
	Pods Selection
	// Address is the zero Addr if packets of these pods to the outside are to be dropped, or if it is any address of a pool.
	Address netip.Addr
	// Pool is the name of the pool with the address, "" for none. Any reports that any of its addresses will do: the one that
	// Owner, the UID of the object, gets.
	Pool  string
	Any   bool
	Owner string
	// Node is the name of the node that holds the address. Nodes matches those one of which holds it, by election; it may be nil.
	// With a pool, the pool has this selector. Without all of these, it is a node that has the address in its status.
	Node  string
	Nodes *label.Selector
	// Among are the names of the nodes one of which holds it, by election (HostSubnet.egressCIDRs). It may be nil.
	Among []string
}

// The effects of a mistake in an Egress.
const (
	EgressDrops     = "; packets of the pods that it selects to the outside of the cluster are dropped"
	egressDropsEach = "; packets of all pods to the outside of the cluster are dropped"
)

// EgressOf compiles an Egress of either API, and reports its invalid parts. With one, packets of the selected pods to
// the outside are dropped: they must not leave with another address. If the appliedTo cannot be understood, these are all pods.
func EgressOf(object antrea.Object) (Egress, []model.Problem) {
	id := object.ID()
	c := &tieredCompiler{compiler: compiler{Report: Report{Object: id.Ref()}}}
	spec := antrea.EgressOf(object)
	e := Egress{Node: spec.Node, Owner: string(object.GetUID())}
	var understood bool
	if e.Pods, understood = c.egressPods(spec.AppliedTo); !understood {
		e.Pods = Selection{Namespaces: label.Everything(), Pods: label.Everything()}
		return e, c.Problems
	}
	unsupported := func(given bool, field string) {
		if given {
			c.Add("spec."+field, "not supported"+EgressDrops)
		}
	}
	unsupported(len(spec.EgressIPs) > 0, "egressIPs")
	unsupported(len(spec.ExternalIPPools) > 0, "externalIPPools")
	unsupported(len(spec.Bandwidth) > 0, "bandwidth")
	a, err := netip.ParseAddr(spec.EgressIP)
	switch {
	case spec.EgressIP == "" && spec.ExternalIPPool == "":
		c.Add("spec.egressIP", "required without externalIPPool"+EgressDrops)
	case spec.EgressIP == "":
	case err != nil || a.Zone() != "" || a.IsUnspecified() || a.IsLoopback() || a.IsMulticast() || a.IsLinkLocalUnicast():
		c.Add("spec.egressIP", "%q is no address that packets to other networks can have"+EgressDrops, spec.EgressIP)
	}
	switch {
	case spec.ExternalIPPool != "" && spec.Node != "":
		c.Add("spec.node", "not with externalIPPool, which says which nodes hold its addresses"+EgressDrops)
	case spec.ExternalIPPool != "" && spec.NodeSelector != nil:
		c.Add("spec.nodeSelector", "not with externalIPPool, which says which nodes hold its addresses"+EgressDrops)
	case spec.ExternalIPPool != "":
	case spec.NodeSelector != nil && spec.Node != "":
		c.Add("spec.nodeSelector", "not with node"+EgressDrops)
	case spec.NodeSelector != nil:
		e.Nodes = c.selector(spec.NodeSelector, "spec.nodeSelector", EgressDrops)
	case spec.Node == "" && id.Kind == antrea.KindNodeEgress:
		c.Add("spec.node", "required without nodeSelector and externalIPPool"+EgressDrops)
	}
	if len(c.Problems) == 0 {
		e.Address, e.Pool, e.Any = a.Unmap(), spec.ExternalIPPool, spec.EgressIP == ""
	}
	return e, c.Problems
}

// egressPods compiles an appliedTo. ok is false if it cannot be understood.
func (c *tieredCompiler) egressPods(to antrea.AppliedTo) (s Selection, ok bool) {
	const path = "spec.appliedTo"
	for _, unsupported := range []struct {
		given bool
		field string
	}{
		{to.Group != "", "group"},
		{to.ExternalEntitySelector != nil, "externalEntitySelector"},
		{to.ServiceAccount != nil, "serviceAccount"},
		{to.Service != nil, "service"},
		{to.NodeSelector != nil, "nodeSelector"},
	} {
		if unsupported.given {
			c.Add(path+"."+unsupported.field, "not supported"+egressDropsEach)
			return s, false
		}
	}
	if to.PodSelector == nil && to.NamespaceSelector == nil {
		c.Add(path, "needs a podSelector or a namespaceSelector"+egressDropsEach)
		return s, false
	}
	s = Selection{Namespaces: label.Everything(), Pods: label.Everything()}
	if to.NamespaceSelector != nil {
		s.Namespaces = c.selector(to.NamespaceSelector, path+".namespaceSelector", egressDropsEach)
	}
	if to.PodSelector != nil {
		s.Pods = c.selector(to.PodSelector, path+".podSelector", egressDropsEach)
	}
	return s, s.Namespaces != nil && s.Pods != nil
}
