package lab

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/felixlike/felixlike/model"
)

// nodeSpec describes a node for the lab.
type nodeSpec struct {
	model.Node
	// Gateways are the fabric's addresses on the node's subnets.
	Gateways []netip.Prefix
}

func (n *nodeSpec) equal(o *nodeSpec) bool {
	return n.Name == o.Name && slices.Equal(n.Addresses, o.Addresses) &&
		slices.Equal(n.PodCIDRs, o.PodCIDRs) && slices.Equal(n.Gateways, o.Gateways)
}

// routed returns the prefixes of pods in the families of the node's addresses: the network can route only these to it.
func (n *nodeSpec) routed() []netip.Prefix {
	return slices.DeleteFunc(slices.Clone(n.PodCIDRs), func(c netip.Prefix) bool { return !n.Address(model.FamilyOf(c.Addr())).IsValid() })
}

// subnet returns the network of a node's address. Kubernetes does
// not record the prefix length; here it is a /24 (a /120).
func subnet(a netip.Addr) netip.Prefix {
	bits := 24
	if a.Is6() {
		bits = 120
	}
	return netip.PrefixFrom(a, bits).Masked()
}

// port is a port that a pod serves.
type port struct {
	Protocol model.Protocol
	Port     uint16
}

// podSpec describes a pod for the lab.
type podSpec struct {
	ID        model.PodID
	Node      string
	Addresses []netip.Addr
	Ports     []port
	// HostNetwork pods live in their node's namespace, on its addresses.
	HostNetwork bool
}

func (p *podSpec) equal(o *podSpec) bool {
	return p.ID == o.ID && p.Node == o.Node && p.HostNetwork == o.HostNetwork &&
		slices.Equal(p.Addresses, o.Addresses) && slices.Equal(p.Ports, o.Ports)
}

// plan is a state as the lab builds it.
type plan struct {
	nodes map[string]*nodeSpec
	pods  map[model.PodID]*podSpec
}

func newPlan(s *State) (*plan, error) {
	p := &plan{nodes: map[string]*nodeSpec{}, pods: map[model.PodID]*podSpec{}}
	for _, n := range s.Nodes {
		spec, err := planNode(n)
		if err != nil {
			return nil, err
		}
		p.nodes[n.Name] = spec
	}
	p.chooseGateways()
	for _, o := range s.Pods {
		spec, err := planPod(o)
		if err != nil {
			return nil, err
		}
		if p.nodes[spec.Node] == nil {
			return nil, fmt.Errorf("pod %s: spec.nodeName: there is no node %q", spec.ID, spec.Node)
		}
		p.pods[spec.ID] = spec
	}
	return p, p.checkAddresses()
}

func planNode(n *corev1.Node) (*nodeSpec, error) {
	spec := &nodeSpec{Node: model.Node{Name: n.Name}}
	for _, a := range n.Status.Addresses {
		if a.Type != corev1.NodeInternalIP {
			continue
		}
		addr, err := netip.ParseAddr(a.Address)
		if err != nil {
			return nil, fmt.Errorf("node %s: status.addresses: %w", n.Name, err)
		}
		spec.Addresses = append(spec.Addresses, addr)
	}
	for _, c := range n.Spec.PodCIDRs {
		prefix, err := netip.ParsePrefix(c)
		if err != nil {
			return nil, fmt.Errorf("node %s: spec.podCIDRs: %w", n.Name, err)
		}
		spec.PodCIDRs = append(spec.PodCIDRs, prefix.Masked())
	}
	slices.SortFunc(spec.Addresses, netip.Addr.Compare)
	slices.SortFunc(spec.PodCIDRs, func(a, b netip.Prefix) int { return a.Addr().Compare(b.Addr()) })
	return spec, nil
}

// chooseGateways gives the fabric an address on each subnet that has nodes:
// the first of the subnet, or the last ones where a node has that.
func (p *plan) chooseGateways() {
	taken := map[netip.Addr]bool{}
	for _, n := range p.nodes {
		for _, a := range n.Addresses {
			taken[a] = true
		}
	}
	for _, n := range p.nodes {
		for _, a := range n.Addresses {
			net := subnet(a)
			gateway := net.Addr().Next()
			for last := byte(254); taken[gateway]; last-- {
				b := net.Addr().AsSlice()
				b[len(b)-1] = last
				gateway, _ = netip.AddrFromSlice(b)
			}
			n.Gateways = append(n.Gateways, netip.PrefixFrom(gateway, net.Bits()))
		}
	}
}

// gateways returns all addresses that the fabric has on subnets of nodes.
func (p *plan) gateways() map[netip.Prefix]bool {
	all := map[netip.Prefix]bool{}
	for _, n := range p.nodes {
		for _, g := range n.Gateways {
			all[g] = true
		}
	}
	return all
}

func planPod(o *corev1.Pod) (*podSpec, error) {
	spec := &podSpec{
		ID:   model.PodID{Namespace: o.Namespace, Name: o.Name},
		Node: o.Spec.NodeName, HostNetwork: o.Spec.HostNetwork,
	}
	for _, ip := range podIPs(o) {
		addr, err := netip.ParseAddr(ip)
		if err != nil {
			return nil, fmt.Errorf("pod %s: status.podIPs: %w", spec.ID, err)
		}
		spec.Addresses = append(spec.Addresses, addr)
	}
	slices.SortFunc(spec.Addresses, netip.Addr.Compare)
	for _, c := range o.Spec.Containers {
		for _, cp := range c.Ports {
			name := string(cp.Protocol)
			if name == "" {
				name = string(corev1.ProtocolTCP)
			}
			proto, err := model.ParseProtocol(name)
			if err != nil {
				return nil, fmt.Errorf("pod %s: container %s: %w", spec.ID, c.Name, err)
			}
			spec.Ports = append(spec.Ports, port{Protocol: proto, Port: uint16(cp.ContainerPort)})
		}
	}
	return spec, nil
}

// podIPs returns a pod's addresses as its status has them.
func podIPs(o *corev1.Pod) []string {
	var ips []string
	for _, ip := range o.Status.PodIPs {
		ips = append(ips, ip.IP)
	}
	if len(ips) == 0 && o.Status.PodIP != "" {
		ips = append(ips, o.Status.PodIP)
	}
	return ips
}

func (p *plan) checkAddresses() error {
	owners := map[netip.Addr]string{}
	claim := func(owner string, addrs []netip.Addr) error {
		for _, a := range addrs {
			if other := owners[a]; other != "" {
				return fmt.Errorf("%s and %s both have the address %s", other, owner, a)
			}
			owners[a] = owner
		}
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(p.nodes)) {
		n := p.nodes[name]
		if len(n.Addresses) == 0 {
			return fmt.Errorf("node %s has no InternalIP address", name)
		}
		if err := claim("node "+name, n.Addresses); err != nil {
			return err
		}
	}
	for _, id := range slices.SortedFunc(maps.Keys(p.pods), model.PodID.Compare) {
		pod := p.pods[id]
		if pod.HostNetwork {
			continue
		}
		if len(pod.Addresses) == 0 {
			return fmt.Errorf("pod %s has no address", id)
		}
		if err := claim("pod "+id.String(), pod.Addresses); err != nil {
			return err
		}
	}
	return nil
}

// Map returns the IPv6 address that stands for an IPv4 one in a lab:
// fd00:10::a.b.c.d. Other addresses are returned as they are.
func Map(a netip.Addr) netip.Addr {
	if !a.Is4() {
		return a
	}
	b := [16]byte{0xfd, 0x00, 0x00, 0x10}
	v4 := a.As4()
	copy(b[12:], v4[:])
	return netip.AddrFrom16(b)
}

// MapPrefix is Map for prefixes: a.b.c.d/n becomes fd00:10::a.b.c.d/(96+n).
func MapPrefix(p netip.Prefix) netip.Prefix {
	if !p.Addr().Is4() {
		return p
	}
	return netip.PrefixFrom(Map(p.Addr()), 96+p.Bits())
}
