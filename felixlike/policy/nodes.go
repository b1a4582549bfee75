package policy

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/felixlike/felixlike/felixlike/policy/compile"
	"github.com/felixlike/felixlike/felixlike/policy/smallmap"
	"github.com/felixlike/felixlike/model"
)

// node is a node with the addresses and pod CIDRs that its object claims (addresses, wanted), and those that are its own (own, held).
type node struct {
	age
	addresses, own []netip.Addr
	wanted, held   []netip.Prefix
	key            model.PublicKey
}

// nodeStore has the nodes. ownership decides what they own.
type nodeStore struct {
	local  string
	byName map[string]*node
	// lost is this node as it was known last, while its object is missing: it stays in force.
	lost     *node
	services []netip.Prefix
	// stale is set if a claim changed.
	stale   bool
	owns    *ownership
	dirty   smallmap.Set[string]
	emitted map[string]*model.Node
	// changed is called for each node that flush returns, with nil for one that is gone.
	changed func(name string, now *model.Node)
}

func newNodeStore(local string) nodeStore {
	return nodeStore{local: local, byName: map[string]*node{}, owns: decide(local, nil, nil, nil), emitted: map[string]*model.Node{}}
}

// parseInternalIPs takes the first InternalIP of each family.
func parseInternalIPs(object *corev1.Node, r *compile.Report) []netip.Addr {
	var addresses []netip.Addr
	for i, a := range object.Status.Addresses {
		if a.Type != corev1.NodeInternalIP {
			continue
		}
		ip, err := netip.ParseAddr(a.Address)
		if err != nil || !podAddress(ip) {
			r.Add(fmt.Sprintf("status.addresses[%d].address", i), "%q is no address that a node can have; it is ignored", a.Address)
			continue
		}
		ip = ip.Unmap()
		if !slices.ContainsFunc(addresses, func(o netip.Addr) bool { return o.Is4() == ip.Is4() }) {
			addresses = append(addresses, ip)
		}
	}
	slices.SortFunc(addresses, netip.Addr.Compare)
	return addresses
}

// parsePodCIDRs takes the first pod CIDR of each family.
func parsePodCIDRs(object *corev1.Node, r *compile.Report) []netip.Prefix {
	cidrs := object.Spec.PodCIDRs
	if len(cidrs) == 0 && object.Spec.PodCIDR != "" {
		cidrs = []string{object.Spec.PodCIDR}
	}
	if len(cidrs) == 0 {
		r.Add("spec.podCIDRs", "the node has no pod CIDR; its pods cannot be reached")
	}
	var prefixes []netip.Prefix
	for i, s := range cidrs {
		path := fmt.Sprintf("spec.podCIDRs[%d]", i)
		p, err := compile.ParseCIDR(s)
		switch {
		case err != nil:
			r.Add(path, "%v; it is ignored", err)
		case p.Bits() > p.Addr().BitLen()-2:
			r.Add(path, "%s has no room for a gateway and a pod; it is ignored", p)
		case slices.ContainsFunc(prefixes, func(o netip.Prefix) bool { return o.Addr().Is4() == p.Addr().Is4() }):
			r.Add(path, "second pod CIDR of IPv%s; it is ignored", model.FamilyOf(p.Addr()))
		default:
			prefixes = append(prefixes, p)
		}
	}
	slices.SortFunc(prefixes, comparePrefixes)
	return prefixes
}

// parsePublicKey takes the key of the annotation. A node without a valid one has none, and nothing is encrypted to it.
func parsePublicKey(object *corev1.Node, r *compile.Report) model.PublicKey {
	text, ok := object.Annotations[model.PublicKeyAnnotation]
	if !ok {
		return model.PublicKey{}
	}
	key, err := model.ParsePublicKey(text)
	if err != nil {
		r.Add("metadata.annotations["+model.PublicKeyAnnotation+"]", "%v; it is ignored", err)
	}
	return key
}

func comparePrefixes(a, b netip.Prefix) int {
	return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
}

func (n *nodeStore) set(a age, addresses []netip.Addr, cidrs []netip.Prefix, key model.PublicKey) {
	o, ok := n.byName[a.name]
	if !ok {
		o = &node{}
		n.byName[a.name] = o
	}
	n.stale = n.stale || !ok || o.age != a || !slices.Equal(o.addresses, addresses) || !slices.Equal(o.wanted, cidrs)
	n.dirty.Add(a.name)
	o.age, o.addresses, o.wanted, o.key = a, addresses, cidrs, key
	if a.name == n.local {
		n.lost = nil
	}
}

func (n *nodeStore) remove(name string) {
	o, ok := n.byName[name]
	if !ok {
		return
	}
	delete(n.byName, name)
	n.dirty.Add(name)
	n.stale = true
	if name == n.local {
		n.lost = o
	}
}

// setServices sets the prefixes of Service addresses.
func (n *nodeStore) setServices(services []netip.Prefix) bool {
	if slices.Equal(services, n.services) {
		return false
	}
	n.services, n.stale = services, true
	return true
}

// decide decides who owns what if a claim changed.
func (n *nodeStore) decide(egresses func() []egressClaim) {
	if !n.stale {
		return
	}
	n.stale = false
	nodes := slices.Collect(maps.Values(n.byName))
	if n.lost != nil {
		nodes = append(nodes, n.lost)
	}
	slices.SortFunc(nodes, func(a, b *node) int {
		switch n.local {
		case a.name:
			return -1
		case b.name:
			return 1
		}
		return a.compare(b.age)
	})
	before := make(map[*node]node, len(nodes))
	for _, o := range nodes {
		before[o] = *o
	}
	n.owns = decide(n.local, nodes, n.services, egresses())
	for _, o := range nodes {
		if was := before[o]; !slices.Equal(o.own, was.own) || !slices.Equal(o.held, was.held) {
			n.dirty.Add(o.name)
		}
	}
}

func (n *nodeStore) flush() (updates, removals []model.Update) {
	for _, name := range slices.Sorted(n.dirty.Keys()) {
		before := n.emitted[name]
		o, ok := n.byName[name]
		if !ok {
			if before != nil {
				n.changed(name, nil)
				delete(n.emitted, name)
				removals = append(removals, model.NodeRemove{Name: name})
			}
			continue
		}
		now := &model.Node{Name: name, Addresses: o.own, PodCIDRs: o.held, PublicKey: o.key}
		if before == nil || !reflect.DeepEqual(before, now) {
			n.changed(name, now)
			n.emitted[name] = now
			updates = append(updates, model.NodeUpdate{Node: now})
		}
	}
	n.dirty = smallmap.Set[string]{}
	return updates, removals
}
