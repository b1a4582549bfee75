package policy

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/gaissmai/bart"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/felixlike/felixlike/model"
)

// age orders the objects that claim addresses. It survives restarts of the agent and is the same on all nodes, unlike the order of arrival; and
// no node chooses it, unlike its name and its addresses.
type age struct {
	created int64
	uid     string
	// kind puts nodes before Egresses if both come from files without these fields.
	kind int
	name string
}

const (
	ofNode = iota
	ofEgress
)

func ageOf(o metav1.Object, kind int) age {
	return age{created: o.GetCreationTimestamp().Unix(), uid: string(o.GetUID()), kind: kind, name: o.GetName()}
}

func (a age) compare(b age) int {
	return cmp.Or(cmp.Compare(a.created, b.created), cmp.Compare(a.uid, b.uid), cmp.Compare(a.kind, b.kind), cmp.Compare(a.name, b.name))
}

// egressClaim is the claim of an Egress to its address.
type egressClaim struct {
	age
	object  model.ObjectRef
	address netip.Addr
	// node is the node that the object names, or "" for an elected one.
	node string
}

// ownership decides whose each address and each prefix is, for forwarding, encryption and Egresses. A node writes its own object, so what
// another object has is refused to it:
//
//   - A pod CIDR belongs to the oldest node that claims it or a part of it. It has no Service addresses, and no address that an older object
//     claims.
//   - An address that two nodes claim, one of them perhaps with its pod CIDR, identifies neither. A pod CIDR with the addresses of several
//     older nodes is no claim to them: a new node could take them from all. An address is no Service's, no older Egress's on another node, and in no
//     other node's pod CIDR.
//   - The local node keeps what its object claims.
type ownership struct {
	services []netip.Prefix
	// prefixes has the owners of the granted pod CIDRs. addresses has the oldest claim to each InternalIP.
	prefixes  *bart.Table[*node]
	addresses *bart.Table[*node]
	egresses  *bart.Table[egressClaim]
	// contested has the younger node whose pod CIDR claims an address.
	contested map[netip.Addr]*node
	problems  []model.Problem
}

// decide sets what each node holds. The nodes are the local one and then the others by age.
func decide(local string, nodes []*node, services []netip.Prefix, egresses []egressClaim) *ownership {
	o := &ownership{services: services, prefixes: &bart.Table[*node]{}, addresses: &bart.Table[*node]{}, egresses: &bart.Table[egressClaim]{}, contested: map[netip.Addr]*node{}}
	for _, e := range slices.SortedFunc(slices.Values(egresses), func(a, b egressClaim) int { return a.compare(b.age) }) {
		insertFirst(o.egresses, e.address, e)
	}
	claimants := map[netip.Addr][]*node{}
	for _, n := range nodes {
		for _, a := range n.addresses {
			claimants[a] = append(claimants[a], n)
			insertFirst(o.addresses, a, n)
		}
	}
	for _, n := range nodes {
		n.held = nil
		for _, p := range n.wanted {
			if reason := o.refusesPrefix(n, p, local); reason != "" {
				o.refuse(n, "spec.podCIDRs", reason)
				continue
			}
			o.prefixes.Insert(p, n)
			n.held = append(n.held, p)
		}
	}
	for _, n := range nodes {
		n.own = nil
		for _, a := range n.addresses {
			if reason := o.refusesAddress(n, a, local, claimants[a]); reason != "" {
				o.refuse(n, "status.addresses", reason)
				continue
			}
			n.own = append(n.own, a)
		}
	}
	return o
}

func insertFirst[T any](t *bart.Table[T], a netip.Addr, v T) {
	p := netip.PrefixFrom(a, a.BitLen())
	if _, found := t.Get(p); !found {
		t.Insert(p, v)
	}
}

func (o *ownership) refuse(n *node, field, reason string) {
	o.problems = append(o.problems, model.Problem{Object: model.ObjectRef{Kind: "Node", Name: n.name}, Field: field, Reason: reason})
}

// refusesPrefix returns why a node does not get a pod CIDR.
func (o *ownership) refusesPrefix(n *node, p netip.Prefix, local string) string {
	if n.name == local {
		return ""
	}
	if at := slices.IndexFunc(o.services, p.Overlaps); at >= 0 {
		return fmt.Sprintf("%s overlaps the Service addresses %s and is refused", p, o.services[at])
	}
	if cidr, owner, found := o.prefixes.LookupPrefixLPM(p); found {
		return overlap(p, cidr, owner.name)
	}
	for cidr, owner := range o.prefixes.Subnets(p) {
		return overlap(p, cidr, owner.name)
	}
	var older []netip.Addr
	for a, owner := range o.addresses.Subnets(p) {
		if owner != n && (owner.name == local || owner.age.compare(n.age) < 0) {
			older = append(older, a.Addr())
		}
	}
	if len(older) == 1 {
		o.contested[older[0]] = n
	}
	if len(older) > 0 {
		owner, _ := o.addresses.Lookup(older[0])
		return fmt.Sprintf("%s has the address %s of node %s and is refused", p, older[0], owner.name)
	}
	for a, e := range o.egresses.Subnets(p) {
		if e.compare(n.age) < 0 {
			return fmt.Sprintf("%s has the address %s of %s and is refused", p, a.Addr(), e.object)
		}
	}
	return ""
}

func overlap(refused, other netip.Prefix, owner string) string {
	return fmt.Sprintf("%s overlaps %s of node %s and is refused", refused, other, owner)
}

// refusesAddress returns why a node does not get an address.
func (o *ownership) refusesAddress(n *node, a netip.Addr, local string, claimants []*node) string {
	if n.name == local {
		return ""
	}
	if at := slices.IndexFunc(o.services, func(p netip.Prefix) bool { return p.Contains(a) }); at >= 0 {
		return fmt.Sprintf("%s is one of the Service addresses %s and is refused", a, o.services[at])
	}
	if owner, cidr := o.podsAt(a); owner != nil && owner != n {
		return fmt.Sprintf("%s is in %s of node %s and is refused", a, cidr, owner.name)
	}
	if other := o.contested[a]; other != nil && claimants[0].name != local {
		return fmt.Sprintf("%s is in a pod CIDR that node %s claims, so it identifies neither and is refused to both", a, other.name)
	}
	if e, found := o.egresses.Get(netip.PrefixFrom(a, a.BitLen())); found && e.node != n.name && e.compare(n.age) < 0 {
		return fmt.Sprintf("%s is the address of %s and is refused", a, e.object)
	}
	if claimants[0].name == local {
		return fmt.Sprintf("%s is an address of node %s and is refused", a, local)
	}
	if other := slices.IndexFunc(claimants, func(c *node) bool { return c != n }); other >= 0 {
		return fmt.Sprintf("node %s has %s too, so it identifies neither and is refused to both", claimants[other].name, a)
	}
	return ""
}

// podsAt returns the node whose pod CIDR has an address, and the CIDR.
func (o *ownership) podsAt(a netip.Addr) (*node, netip.Prefix) {
	cidr, owner, _ := o.prefixes.LookupPrefixLPM(netip.PrefixFrom(a, a.BitLen()))
	return owner, cidr
}

// serviceAt reports whether an address is a Service's.
func (o *ownership) serviceAt(a netip.Addr) bool {
	return slices.ContainsFunc(o.services, func(p netip.Prefix) bool { return p.Contains(a) })
}
