package policy

import (
	"cmp"
	"fmt"
	"net/netip"
	"reflect"
	"slices"

	"github.com/gaissmai/bart"
	corev1 "k8s.io/api/core/v1"

	"github.com/felixlike/felixlike/felixlike/policy/compile"
	"github.com/felixlike/felixlike/felixlike/policy/smallmap"
	"github.com/felixlike/felixlike/model"
)

// node is a node with the pod CIDRs that its object has (wanted) and those that are
// granted (held).
type node struct {
	name string
	// seq is the node's position in the order of arrival.
	seq       uint64
	addresses []netip.Addr
	wanted    []netip.Prefix
	held      []netip.Prefix
	key       model.PublicKey
}

// nodeStore has the nodes and the owners of the pod CIDRs. If the CIDRs of two nodes overlap,
// the node that came first owns its CIDR. The local node always owns its CIDRs.
type nodeStore struct {
	local  string
	byName map[string]*node
	seq    uint64
	owners *bart.Table[*node]
	// waiting are the nodes that do not own all wanted CIDRs.
	waiting smallmap.Set[*node]
	dirty   smallmap.Set[string]
	emitted map[string]*model.Node
}

func newNodeStore(local string) nodeStore {
	return nodeStore{
		local: local, byName: map[string]*node{}, owners: &bart.Table[*node]{},
		emitted: map[string]*model.Node{},
	}
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

func (n *nodeStore) set(name string, addresses []netip.Addr, cidrs []netip.Prefix, key model.PublicKey, r *compile.Report) {
	o, ok := n.byName[name]
	if !ok {
		n.seq++
		o = &node{name: name, seq: n.seq}
		n.byName[name] = o
	}
	n.dirty.Add(name)
	o.addresses, o.wanted, o.key = addresses, cidrs, key
	freed := n.keep(o, cidrs)
	if name == n.local && n.evict(o, r) {
		freed = true
	}
	n.claim(o, r)
	if freed {
		n.retry()
	}
}

func (n *nodeStore) remove(name string) {
	o, ok := n.byName[name]
	if !ok {
		return
	}
	delete(n.byName, name)
	n.waiting.Remove(o)
	n.dirty.Add(name)
	if n.keep(o, nil) {
		n.retry()
	}
}

// keep releases the CIDRs of a node except those in the list. It reports whether it
// released any.
func (n *nodeStore) keep(o *node, cidrs []netip.Prefix) bool {
	before := len(o.held)
	o.held = slices.DeleteFunc(o.held, func(p netip.Prefix) bool {
		drop := !slices.Contains(cidrs, p)
		if drop {
			n.owners.Delete(p)
		}
		return drop
	})
	return len(o.held) < before
}

// evict releases the CIDRs of other nodes that overlap the local node's CIDRs. It reports
// whether there are any.
func (n *nodeStore) evict(local *node, r *compile.Report) (freed bool) {
	for _, p := range local.wanted {
		for {
			owner, cidr := n.overlapping(p)
			if owner == nil || owner == local {
				break
			}
			n.keep(owner, slices.DeleteFunc(slices.Clone(owner.held), func(o netip.Prefix) bool { return o == cidr }))
			n.waiting.Add(owner)
			n.dirty.Add(owner.name)
			r.Problems = append(r.Problems, model.Problem{
				Object: model.ObjectRef{Kind: "Node", Name: owner.name}, Field: "spec.podCIDRs",
				Reason: overlap(cidr, p, local.name),
			})
			freed = true
		}
	}
	return freed
}

// claim grants a node its wanted CIDRs that no other node owns. It does not report overlaps
// if r is nil, for a later try: the first one reported them.
func (n *nodeStore) claim(o *node, r *compile.Report) {
	n.waiting.Remove(o)
	for _, p := range o.wanted {
		if slices.Contains(o.held, p) {
			continue
		}
		if owner, cidr := n.overlapping(p); owner != nil {
			n.waiting.Add(o)
			if r != nil {
				r.Add("spec.podCIDRs", "%s", overlap(p, cidr, owner.name))
			}
			continue
		}
		n.owners.Insert(p, o)
		o.held = append(o.held, p)
		n.dirty.Add(o.name)
	}
	slices.SortFunc(o.held, comparePrefixes)
}

// retry grants CIDRs to waiting nodes, in order of arrival.
func (n *nodeStore) retry() {
	for _, o := range slices.SortedFunc(n.waiting.Keys(), func(a, b *node) int { return cmp.Compare(a.seq, b.seq) }) {
		n.claim(o, nil)
	}
}

func overlap(refused, other netip.Prefix, owner string) string {
	return fmt.Sprintf("%s overlaps %s of node %s and is refused", refused, other, owner)
}

// overlapping returns a node with a CIDR that overlaps the prefix, and this CIDR.
func (n *nodeStore) overlapping(p netip.Prefix) (*node, netip.Prefix) {
	if cidr, owner, ok := n.owners.LookupPrefixLPM(p); ok {
		return owner, cidr
	}
	for cidr, owner := range n.owners.Subnets(p) {
		return owner, cidr
	}
	return nil, netip.Prefix{}
}

func (n *nodeStore) flush() (updates, removals []model.Update) {
	for _, name := range slices.Sorted(n.dirty.Keys()) {
		before := n.emitted[name]
		o, ok := n.byName[name]
		if !ok {
			if before != nil {
				delete(n.emitted, name)
				removals = append(removals, model.NodeRemove{Name: name})
			}
			continue
		}
		now := &model.Node{Name: name, Addresses: o.addresses, PodCIDRs: slices.Clone(o.held), PublicKey: o.key}
		if before == nil || !reflect.DeepEqual(before, now) {
			n.emitted[name] = now
			updates = append(updates, model.NodeUpdate{Node: now})
		}
	}
	n.dirty = smallmap.Set[string]{}
	return updates, removals
}
