package tenancy

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/felixlike/felixlike/felixlike/antrea"
	"github.com/felixlike/felixlike/model"
)

// Egress says which addresses packets of a class of namespaces to the outside of the cluster have (NetNamespace.egressIPs).
type Egress struct {
	// Object is the NetNamespace with the addresses, the first by name of several.
	Object *antrea.NetNamespace
	// Namespaces has the names of the namespaces in the class, sorted.
	Namespaces []string
	// Addresses are in the order of the object. There is at least one.
	Addresses []EgressAddress
}

// EgressAddress is an address of a class, and the nodes that may have it.
type EgressAddress struct {
	Address netip.Addr
	// Node is the name of the node with the address in HostSubnet.egressIPs. Without one, Among are those with it in egressCIDRs, sorted:
	// one of them is to be elected.
	Node  string
	Among []string
	// Refused is why no node may have the address, "" if one may.
	Refused string
}

// HostSubnets are the HostSubnets, by name.
type HostSubnets map[string]*antrea.HostSubnet

// Addressed reports whether a NetNamespace of the namespace's class has addresses.
func (c *Classes) Addressed(namespace string) bool {
	class := c.Of(namespace)
	if _, own := c.addressed[namespace]; own || class.Number == 0 {
		return own
	}
	for n := range c.numbered[class.Number] {
		if _, has := c.addressed[n]; has {
			return true
		}
	}
	return false
}

// Egresses returns what the NetNamespaces with addresses say, by the name of the first one of each class. Two classes never share an address: tenants
// would share their identity. Several NetNamespaces of a class must have the same addresses.
func (c *Classes) Egresses(hosts HostSubnets) []Egress {
	claims := map[netip.Addr]map[Class]string{}
	byClass := map[Class][]string{}
	var order []Class
	for _, name := range slices.Sorted(maps.Keys(c.addressed)) {
		class := c.Of(name)
		if byClass[class] == nil {
			order = append(order, class)
		}
		byClass[class] = append(byClass[class], name)
		for _, text := range c.objects[name].EgressIPs {
			a := egressAddress(text)
			if claims[a] == nil {
				claims[a] = map[Class]string{}
			}
			if claims[a][class] == "" {
				claims[a][class] = name
			}
		}
	}
	holders := hosts.holders()
	var all []Egress
	for _, class := range order {
		names := byClass[class]
		// No namespace has such a name, and no label has it as its value.
		members := slices.DeleteFunc(c.Members(class), func(n string) bool { return len(validation.IsDNS1123Label(n)) > 0 })
		if len(members) == 0 {
			continue
		}
		e := Egress{Object: c.objects[names[0]], Namespaces: members}
		other := slices.IndexFunc(names, func(n string) bool { return !SameAddresses(c.objects[n], e.Object) })
		for _, text := range e.Object.EgressIPs {
			a := EgressAddress{Address: egressAddress(text)}
			switch claimed := slices.Sorted(maps.Values(claims[a.Address])); {
			case !a.Address.IsValid():
				a.Refused = fmt.Sprintf("%q is no address that packets to other networks can have", text)
			case other >= 0:
				a.Refused = fmt.Sprintf("%s is joined with %s, whose egressIPs are %s", names[0], names[other], strings.Join(c.objects[names[other]].EgressIPs, ", "))
			case len(claimed) > 1:
				a.Refused = fmt.Sprintf("%s is an address of %s, which are not joined", a.Address, Listed(claimed))
			default:
				a.Node, a.Among, a.Refused = holders.of(a.Address)
			}
			if !slices.ContainsFunc(e.Addresses, func(o EgressAddress) bool { return o.Address == a.Address && o.Refused == a.Refused }) {
				e.Addresses = append(e.Addresses, a)
			}
		}
		all = append(all, e)
	}
	return all
}

// egressAddress returns the address of a text, the zero Addr if packets to other networks cannot have it.
func egressAddress(text string) netip.Addr {
	a, err := netip.ParseAddr(text)
	if err != nil || a.Zone() != "" || a.IsUnspecified() || a.IsLoopback() || a.IsMulticast() || a.IsLinkLocalUnicast() {
		return netip.Addr{}
	}
	return a.Unmap()
}

// SameAddresses reports whether two NetNamespaces have the same egressIPs, in any order.
func SameAddresses(a, b *antrea.NetNamespace) bool {
	return maps.Equal(addressSet(a), addressSet(b))
}

func addressSet(o *antrea.NetNamespace) map[string]bool {
	all := map[string]bool{}
	for _, text := range o.EgressIPs {
		if a := egressAddress(text); a.IsValid() {
			text = a.String()
		}
		all[text] = true
	}
	return all
}

// holders are the nodes that may have addresses.
type holders struct {
	fixed map[netip.Addr][]string
	among []prefixOf
}

type prefixOf struct {
	netip.Prefix
	node string
}

// holders returns who may have which address. A node with an address in egressCIDRs has it by election alone: OpenShift's controller has
// written its egressIPs.
func (h HostSubnets) holders() holders {
	all := holders{fixed: map[netip.Addr][]string{}}
	for _, name := range slices.Sorted(maps.Keys(h)) {
		o := h[name]
		if hostFault(o) != "" {
			continue
		}
		first := len(all.among)
		for _, text := range o.EgressCIDRs {
			if p, err := netip.ParsePrefix(text); err == nil {
				all.among = append(all.among, prefixOf{p.Masked(), name})
			}
		}
		for _, text := range o.EgressIPs {
			a := egressAddress(text)
			elected := slices.ContainsFunc(all.among[first:], func(p prefixOf) bool { return p.Contains(a) })
			if a.IsValid() && !elected && !slices.Contains(all.fixed[a], name) {
				all.fixed[a] = append(all.fixed[a], name)
			}
		}
	}
	return all
}

// of returns the node that has an address, or those of which one may, or why none may.
func (h holders) of(a netip.Addr) (node string, among []string, refused string) {
	switch fixed := h.fixed[a]; len(fixed) {
	case 0:
	case 1:
		return fixed[0], nil, ""
	default:
		return "", nil, fmt.Sprintf("%s is in the egressIPs of the HostSubnets %s", a, Listed(fixed))
	}
	for _, p := range h.among {
		// Prefixes of one node follow each other.
		if p.Contains(a) && (len(among) == 0 || among[len(among)-1] != p.node) {
			among = append(among, p.node)
		}
	}
	if len(among) == 0 {
		return "", nil, fmt.Sprintf("%s is in no HostSubnet's egressIPs or egressCIDRs", a)
	}
	return "", among, ""
}

// hostFault returns why a HostSubnet is not understood, or "".
func hostFault(o *antrea.HostSubnet) string {
	if o.Host != o.Name {
		return fmt.Sprintf("%q is not the name of the object", o.Host)
	}
	return ""
}

// Problems returns the parts of HostSubnets that are not understood, in order. A node has none of the addresses there.
func (h HostSubnets) Problems() []model.Problem {
	var all []model.Problem
	for _, name := range slices.Sorted(maps.Keys(h)) {
		o := h[name]
		add := func(field, reason string) {
			all = append(all, model.Problem{Object: o.ID().Ref(), Field: field, Reason: reason + "; the node gets no address by it"})
		}
		if o.Host == "" && len(o.EgressIPs)+len(o.EgressCIDRs) == 0 {
			continue // it could not be decoded, and the datastore has said why, or it says nothing
		}
		if reason := hostFault(o); reason != "" {
			add("host", reason)
			continue
		}
		for i, text := range o.EgressIPs {
			if !egressAddress(text).IsValid() {
				add(fmt.Sprintf("egressIPs[%d]", i), fmt.Sprintf("%q is no address that packets to other networks can have", text))
			}
		}
		for i, text := range o.EgressCIDRs {
			if _, err := netip.ParsePrefix(text); err != nil {
				add(fmt.Sprintf("egressCIDRs[%d]", i), fmt.Sprintf("%q is no prefix", text))
			}
		}
	}
	return all
}
