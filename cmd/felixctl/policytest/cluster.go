package policytest

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/felixlike/felixlike/cmd/felixctl/preview"
	"github.com/felixlike/felixlike/felixlike/antrea"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/model"
)

// Prefixes of pods and nodes whose addresses nobody gives.
var (
	defaultPods  = map[model.Family]string{model.IPv4: "10.244.0.0/16", model.IPv6: "fd00:10:244::/56"}
	defaultNodes = map[model.Family]string{model.IPv4: "172.18.0.0/16", model.IPv6: "fd00:172:18::/64"}
)

// builder makes the cluster of a test.
type builder struct {
	t        *Test
	objects  control.Objects
	families []model.Family
	prefixes []netip.Prefix
	used     map[netip.Addr]string
	next     map[netip.Prefix]netip.Addr
	errs     []error
}

// world returns the cluster of a test, with the policies and the objects of the files.
func (t *Test) world(shared control.Objects) (*preview.World, []error) {
	b := &builder{t: t, objects: shared}
	if b.build(); len(b.errs) > 0 {
		return nil, b.errs
	}
	return preview.NewWorld(b.objects, b.prefixes), nil
}

// build adds the cluster of the test to the objects.
func (b *builder) build() {
	b.used, b.next = map[netip.Addr]string{}, map[netip.Prefix]netip.Addr{}
	b.objects.Nodes, b.objects.Pods = deepCopies(b.objects.Nodes), deepCopies(b.objects.Pods)
	b.objects.Namespaces = slices.Clone(b.objects.Namespaces)
	b.networks()
	switch b.objects.Antrea.Isolation = b.t.isolated(); {
	case b.t.isolated():
	case b.t.Spec.Cluster.Isolation != "" && b.t.Spec.Cluster.Isolation != "none":
		b.fault("spec.cluster.isolation", "%q: must be namespaces or none", b.t.Spec.Cluster.Isolation)
	default:
		b.objects.Antrea.NetNamespaces = nil // they mean nothing then
	}
	for i, n := range b.t.Spec.Cluster.Nodes {
		b.node(fmt.Sprintf("spec.cluster.nodes[%d]", i), n)
	}
	for i, n := range b.t.Spec.Cluster.Namespaces {
		b.namespace(fmt.Sprintf("spec.cluster.namespaces[%d]", i), n)
	}
	for i, p := range b.t.Spec.Cluster.Pods {
		b.pod(fmt.Sprintf("spec.cluster.pods[%d]", i), p)
	}
	b.addresses()
	b.undeclared()
}

func deepCopies[T interface{ DeepCopy() T }](all []T) []T {
	copies := make([]T, len(all))
	for i, o := range all {
		copies[i] = o.DeepCopy()
	}
	return copies
}

func (b *builder) fault(field, format string, args ...any) {
	b.errs = append(b.errs, b.t.fault(field, format, args...))
}

// networks reads the families and the prefixes of pods.
func (b *builder) networks() {
	for i, name := range b.t.Spec.Cluster.Families {
		switch name {
		case "IPv4":
			b.families = append(b.families, model.IPv4)
		case "IPv6":
			b.families = append(b.families, model.IPv6)
		default:
			b.fault(fmt.Sprintf("spec.cluster.families[%d]", i), "%q: must be IPv4 or IPv6", name)
		}
	}
	if len(b.families) == 0 {
		b.families = []model.Family{model.IPv4}
	}
	given := map[model.Family]bool{}
	for _, p := range preview.PodPrefixes(b.objects.Nodes) {
		given[model.FamilyOf(p.Addr())] = true
		b.prefixes = append(b.prefixes, p)
	}
	for i, text := range b.t.Spec.Cluster.PodCIDRs {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			b.fault(fmt.Sprintf("spec.cluster.podCIDRs[%d]", i), "%q: not a prefix", text)
			continue
		}
		given[model.FamilyOf(p.Addr())] = true
		b.prefixes = append(b.prefixes, p.Masked())
	}
	for _, f := range b.families {
		if !given[f] {
			b.prefixes = append(b.prefixes, netip.MustParsePrefix(defaultPods[f]))
		}
	}
}

func (b *builder) node(field string, n Node) {
	if n.Name == "" || slices.ContainsFunc(b.objects.Nodes, func(o *corev1.Node) bool { return o.Name == n.Name }) {
		b.fault(field+".name", "%q: must be a name that no other node has", n.Name)
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: n.Labels}}
	for _, a := range b.parse(field+".addresses", n.Addresses) {
		node.Status.Addresses = append(node.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a.String()})
	}
	b.objects.Nodes = append(b.objects.Nodes, node)
}

func (b *builder) namespace(field string, n Namespace) {
	if n.Name == "" || slices.ContainsFunc(b.objects.Namespaces, func(o *corev1.Namespace) bool { return o.Name == n.Name }) {
		b.fault(field+".name", "%q: must be a name that no other namespace has", n.Name)
	}
	b.objects.Namespaces = append(b.objects.Namespaces, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: n.Labels}})
}

func (b *builder) pod(field string, p Pod) {
	id, err := control.ParsePod(p.Name)
	if err != nil || slices.ContainsFunc(b.objects.Pods, func(o *corev1.Pod) bool { return o.Namespace == id.Namespace && o.Name == id.Name }) {
		b.fault(field+".name", "%q: must be NAMESPACE/NAME that no other pod has", p.Name)
	}
	known := slices.ContainsFunc(b.objects.Nodes, func(n *corev1.Node) bool { return n.Name == p.Node })
	if !known && (p.Node != "" || p.HostNetwork) {
		b.fault(field+".node", "%q: the cluster has no such node", p.Node)
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: id.Namespace, Name: id.Name, Labels: p.Labels},
		Spec:       corev1.PodSpec{NodeName: p.Node, HostNetwork: p.HostNetwork},
	}
	for _, a := range b.parse(field+".addresses", p.Addresses) {
		pod.Status.PodIPs = append(pod.Status.PodIPs, corev1.PodIP{IP: a.String()})
	}
	container := corev1.Container{Name: "ports"}
	for i, port := range p.Ports {
		protocol := corev1.Protocol(strings.ToUpper(port.Protocol))
		if protocol == "" {
			protocol = corev1.ProtocolTCP
		}
		if number, err := model.ParseProtocol(string(protocol)); err != nil || number == model.AnyProtocol || number.IsICMP() || port.Port < 1 || port.Port > 65535 || port.Name == "" {
			b.fault(fmt.Sprintf("%s.ports[%d]", field, i), "needs a name, a port and the protocol TCP, UDP or SCTP")
		}
		container.Ports = append(container.Ports, corev1.ContainerPort{Name: port.Name, ContainerPort: port.Port, Protocol: protocol})
	}
	pod.Spec.Containers = []corev1.Container{container}
	b.objects.Pods = append(b.objects.Pods, pod)
}

// parse reads addresses.
func (b *builder) parse(field string, texts []string) (all []netip.Addr) {
	for i, text := range texts {
		a, err := netip.ParseAddr(text)
		if err != nil {
			b.fault(fmt.Sprintf("%s[%d]", field, i), "%q: not an address", text)
			continue
		}
		all = append(all, a.Unmap())
	}
	return all
}

// addresses gives addresses to pods and nodes that have none. Two pods with one address cannot be told apart.
func (b *builder) addresses() {
	use := func(text, owner string) {
		a, err := netip.ParseAddr(text)
		if err != nil {
			return
		}
		if other := b.used[a.Unmap()]; other != "" && other != owner {
			b.errs = append(b.errs, fmt.Errorf("%s: %s and %s have the address %s", b.t.file, other, owner, a))
		}
		b.used[a.Unmap()] = owner
	}
	for _, n := range b.objects.Nodes {
		for _, a := range n.Status.Addresses {
			use(a.Address, "node "+n.Name)
		}
	}
	for _, p := range b.objects.Pods {
		for _, a := range p.Status.PodIPs {
			if p.Spec.HostNetwork {
				continue
			}
			use(a.IP, "pod "+p.Namespace+"/"+p.Name)
			if addr, err := netip.ParseAddr(a.IP); b.t.isolated() && err == nil && !slices.ContainsFunc(b.prefixes, func(p netip.Prefix) bool { return p.Contains(addr) }) {
				b.fault("spec.cluster.podCIDRs", "the address %s of pod %s/%s is in none of them", a.IP, p.Namespace, p.Name)
			}
		}
	}
	for _, n := range b.objects.Nodes {
		for _, f := range b.families {
			if len(n.Status.Addresses) < len(b.families) && !slices.ContainsFunc(n.Status.Addresses, func(a corev1.NodeAddress) bool { return isOf(a.Address, f) }) {
				n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: b.allocate(netip.MustParsePrefix(defaultNodes[f]), "node "+n.Name)})
			}
		}
	}
	for _, p := range b.objects.Pods {
		if p.Spec.HostNetwork || len(p.Status.PodIPs) > 0 {
			continue
		}
		for _, f := range b.families {
			at := slices.IndexFunc(b.prefixes, func(p netip.Prefix) bool { return model.FamilyOf(p.Addr()) == f })
			p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: b.allocate(b.prefixes[at], "pod "+p.Namespace+"/"+p.Name)})
		}
	}
}

func isOf(address string, f model.Family) bool {
	a, err := netip.ParseAddr(address)
	return err == nil && model.FamilyOf(a.Unmap()) == f
}

// allocate returns a free address of a prefix.
func (b *builder) allocate(p netip.Prefix, owner string) string {
	a := b.next[p]
	if !a.IsValid() {
		a = p.Addr().Next().Next() // the first is often the gateway's
	}
	for p.Contains(a) && b.used[a] != "" {
		a = a.Next()
	}
	if !p.Contains(a) {
		b.errs = append(b.errs, fmt.Errorf("%s: %s has no address left for %s", b.t.file, p, owner))
		return ""
	}
	b.used[a], b.next[p] = owner, a.Next()
	return a.String()
}

// undeclared adds the namespaces of pods and policies, without labels.
func (b *builder) undeclared() {
	var names []string
	for _, p := range b.objects.Pods {
		names = append(names, p.Namespace)
	}
	for _, p := range b.objects.Policies {
		names = append(names, p.Namespace)
	}
	for _, o := range b.objects.Antrea.All() {
		switch id := o.ID(); id.Kind {
		case antrea.KindNetworkPolicy, antrea.KindGroup:
			names = append(names, id.Namespace)
		case antrea.KindNetNamespace:
			names = append(names, id.Name)
		}
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		if !slices.ContainsFunc(b.objects.Namespaces, func(n *corev1.Namespace) bool { return n.Name == name }) {
			b.objects.Namespaces = append(b.objects.Namespaces, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
		}
	}
}
