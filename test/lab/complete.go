package lab

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/felixlike/felixlike/model"
)

// complete fills in missing fields of the objects, as
// a cluster's control plane would: addresses and podCIDRs of nodes, namespaces
// that pods live in, nodes and addresses of pods. Everything has an IPv6
// address beside its IPv4 one. An object keeps the values of its namesake in the
// state before. The objects are copied, not changed.
func (s *State) complete(before *State) error {
	for i, n := range s.Nodes {
		n = n.DeepCopy()
		s.Nodes[i] = n
		if len(n.Status.Addresses) == 0 {
			a := fmt.Sprintf("192.168.50.%d", 11+i)
			n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: a}}
		}
		if len(n.Spec.PodCIDRs) == 0 {
			if n.Spec.PodCIDR == "" {
				n.Spec.PodCIDR = fmt.Sprintf("10.10.%d.0/24", i)
			}
			n.Spec.PodCIDRs = []string{n.Spec.PodCIDR}
		}
		if err := dualStackNode(n); err != nil {
			return err
		}
	}
	slices.SortFunc(s.Pods, func(a, b *corev1.Pod) int { return podID(a).Compare(podID(b)) })
	s.completeNamespaces()
	return s.completePods(before)
}

func podID(o *corev1.Pod) model.PodID {
	return model.PodID{Namespace: o.Namespace, Name: o.Name}
}

func dualStackNode(n *corev1.Node) error {
	spec, err := planNode(n)
	if err != nil {
		return err
	}
	if v4 := spec.Address(model.IPv4); v4.IsValid() && !spec.Address(model.IPv6).IsValid() {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: Map(v4).String()})
	}
	if v4 := spec.PodCIDR(model.IPv4); v4.IsValid() && !spec.PodCIDR(model.IPv6).IsValid() {
		n.Spec.PodCIDRs = append(n.Spec.PodCIDRs, MapPrefix(v4).String())
	}
	return nil
}

// completeNamespaces adds namespaces that have pods but no object, and the
// label that Kubernetes gives every namespace.
func (s *State) completeNamespaces() {
	known := map[string]bool{}
	for i, ns := range s.Namespaces {
		s.Namespaces[i] = withNameLabel(ns.DeepCopy())
		known[ns.Name] = true
	}
	for i, p := range s.Pods {
		s.Pods[i] = p.DeepCopy()
		if p.Namespace == "" {
			s.Pods[i].Namespace = metav1.NamespaceDefault
		}
		if name := s.Pods[i].Namespace; !known[name] {
			known[name] = true
			s.Namespaces = append(s.Namespaces, withNameLabel(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}))
		}
	}
}

func withNameLabel(ns *corev1.Namespace) *corev1.Namespace {
	if ns.Labels == nil {
		ns.Labels = map[string]string{}
	}
	ns.Labels[corev1.LabelMetadataName] = ns.Name
	return ns
}

func (s *State) completePods(before *State) error {
	old := map[model.PodID]*corev1.Pod{}
	for _, o := range before.Pods {
		old[podID(o)] = o
	}
	taken := map[netip.Addr]bool{}
	for i, o := range s.Pods {
		previous := old[podID(o)]
		if o.Spec.NodeName == "" {
			switch {
			case previous != nil && s.node(previous.Spec.NodeName) != nil:
				o.Spec.NodeName = previous.Spec.NodeName
			case len(s.Nodes) > 0:
				o.Spec.NodeName = s.Nodes[i%len(s.Nodes)].Name
			}
		}
		if len(podIPs(o)) == 0 && previous != nil && previous.Spec.NodeName == o.Spec.NodeName {
			o.Status.PodIP, o.Status.PodIPs = previous.Status.PodIP, previous.Status.PodIPs
		}
		for _, ip := range podIPs(o) {
			if a, err := netip.ParseAddr(ip); err == nil {
				taken[a] = true
			}
		}
	}
	for _, o := range s.Pods {
		if err := s.giveAddresses(o, taken); err != nil {
			return err
		}
	}
	return nil
}

func (s *State) node(name string) *corev1.Node {
	for _, n := range s.Nodes {
		if n.Name == name {
			return n
		}
	}
	return nil
}

// giveAddresses gives a pod the next free address of its node's podCIDR, from
// the tenth on, and the IPv6 address beside it.
func (s *State) giveAddresses(o *corev1.Pod, taken map[netip.Addr]bool) error {
	node := s.node(o.Spec.NodeName)
	if node == nil {
		return fmt.Errorf("pod %s: spec.nodeName: there is no node %q", podID(o), o.Spec.NodeName)
	}
	spec, err := planNode(node)
	if err != nil {
		return err
	}
	if o.Spec.HostNetwork {
		o.Status.PodIPs = nil
		for _, a := range spec.Addresses {
			o.Status.PodIPs = append(o.Status.PodIPs, corev1.PodIP{IP: a.String()})
		}
		o.Status.PodIP = o.Status.PodIPs[0].IP
		return nil
	}
	ips := podIPs(o)
	if len(ips) == 0 {
		a, err := nextFree(spec.PodCIDR(model.IPv4), taken)
		if err != nil {
			return fmt.Errorf("pod %s: %w", podID(o), err)
		}
		taken[a] = true
		ips = []string{a.String()}
	}
	if first, err := netip.ParseAddr(ips[0]); err == nil && len(ips) == 1 && first.Is4() && spec.PodCIDR(model.IPv6).IsValid() {
		ips = append(ips, Map(first).String())
	}
	o.Status.PodIP, o.Status.PodIPs = ips[0], nil
	for _, ip := range ips {
		o.Status.PodIPs = append(o.Status.PodIPs, corev1.PodIP{IP: ip})
	}
	return nil
}

func nextFree(cidr netip.Prefix, taken map[netip.Addr]bool) (netip.Addr, error) {
	if !cidr.IsValid() {
		return netip.Addr{}, errors.New("its node has no IPv4 podCIDR to take an address from")
	}
	a := cidr.Addr()
	for range 10 {
		a = a.Next()
	}
	for ; cidr.Contains(a); a = a.Next() {
		if !taken[a] {
			return a, nil
		}
	}
	return netip.Addr{}, fmt.Errorf("podCIDR %s is full", cidr)
}
