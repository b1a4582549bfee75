package policytest

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/felixlike/felixlike/cmd/felixctl/preview"
	"github.com/felixlike/felixlike/felixlike/antrea"
	"github.com/felixlike/felixlike/felixlike/config"
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
	// known has the objects, as in "pod shop/web", and used the owners of addresses.
	known map[string]bool
	used  map[netip.Addr]string
	next  map[netip.Prefix]netip.Addr
	errs  []error
}

// world returns the cluster of a test, with the policies and the objects of the files.
func (t *Test) world(shared control.Objects) (*preview.World, error) {
	b := &builder{t: t, objects: shared}
	if b.build(); len(b.errs) > 0 {
		return nil, errors.Join(b.errs...)
	}
	return preview.NewWorld(b.objects, failsafe(), b.prefixes), nil
}

// build adds the cluster of the test to the objects.
func (b *builder) build() {
	b.known, b.used, b.next = map[string]bool{}, map[netip.Addr]string{}, map[netip.Prefix]netip.Addr{}
	b.objects.Nodes, b.objects.Pods = deepCopies(b.objects.Nodes, b.known, "node"), deepCopies(b.objects.Pods, b.known, "pod")
	b.objects.Namespaces = deepCopies(b.objects.Namespaces, b.known, "namespace")
	c := &b.t.Spec.Cluster
	switch b.objects.Antrea.Isolation = b.t.isolated(); {
	case b.t.isolated():
	case c.Isolation != "" && c.Isolation != "none":
		b.fault("spec.cluster.isolation", "%q: must be namespaces or none", c.Isolation)
	default:
		b.objects.Antrea.NetNamespaces, b.objects.Antrea.EgressPolicies = nil, nil // they mean nothing then
	}
	b.networks(c)
	for i, n := range c.Nodes {
		field := fmt.Sprintf("spec.cluster.nodes[%d]", i)
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: n.Labels}}
		for _, a := range b.addresses(field, n.Addresses) {
			node.Status.Addresses = append(node.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a.String()})
		}
		b.name(field, "node", n.Name, "a name")
		b.objects.Nodes = append(b.objects.Nodes, node)
	}
	for i, n := range c.Namespaces {
		b.name(fmt.Sprintf("spec.cluster.namespaces[%d]", i), "namespace", n.Name, "a name")
		b.objects.Namespaces = append(b.objects.Namespaces, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: n.Labels}})
	}
	for i, p := range c.Pods {
		b.pod(fmt.Sprintf("spec.cluster.pods[%d]", i), p)
	}
	b.allocateAll()
	b.undeclared()
}

// deepCopies copies objects, and notes their names.
func deepCopies[T interface {
	metav1.Object
	DeepCopy() T
}](all []T, known map[string]bool, kind string) (copies []T) {
	for _, o := range all {
		copies = append(copies, o.DeepCopy())
		known[kind+" "+strings.TrimPrefix(o.GetNamespace()+"/"+o.GetName(), "/")] = true
	}
	return copies
}

func (b *builder) fault(field, format string, args ...any) {
	b.errs = append(b.errs, b.t.fault(field, format, args...))
}

// name notes the name of an object, which no other has.
func (b *builder) name(field, kind, name, form string) {
	if name == "" || b.known[kind+" "+name] {
		b.fault(field+".name", "%q: must be %s that no other %s has", name, form, kind)
	}
	b.known[kind+" "+name] = true
}

// parsed reads the texts of a field.
func parsed[T any](b *builder, field string, texts []string, parse func(string) (T, error), fault string) (all []T) {
	for i, text := range texts {
		value, err := parse(text)
		if err != nil {
			b.fault(fmt.Sprintf("%s[%d]", field, i), "%q: %s", text, fault)
			continue
		}
		all = append(all, value)
	}
	return all
}

func (b *builder) addresses(field string, texts []string) []netip.Addr {
	return parsed(b, field+".addresses", texts, netip.ParseAddr, "not an address")
}

// networks reads the families and the prefixes of pods.
func (b *builder) networks(c *Cluster) {
	b.families = parsed(b, "spec.cluster.families", c.Families, func(name string) (model.Family, error) {
		for _, f := range model.Families() {
			if name == "IPv"+f.String() {
				return f, nil
			}
		}
		return model.IPv4, errors.New(name)
	}, "must be IPv4 or IPv6")
	if len(b.families) == 0 {
		b.families = []model.Family{model.IPv4}
	}
	b.prefixes = append(parsed(b, "spec.cluster.podCIDRs", c.PodCIDRs, netip.ParsePrefix, "not a prefix"), preview.PodPrefixes(b.objects.Nodes)...)
	for i, p := range b.prefixes {
		b.prefixes[i] = p.Masked()
	}
	for _, f := range b.families {
		if b.prefix(f) < 0 {
			b.prefixes = append(b.prefixes, netip.MustParsePrefix(defaultPods[f]))
		}
	}
}

// prefix returns the first prefix of a family.
func (b *builder) prefix(f model.Family) int {
	return slices.IndexFunc(b.prefixes, func(p netip.Prefix) bool { return model.FamilyOf(p.Addr()) == f })
}

func (b *builder) pod(field string, p Pod) {
	id, err := control.ParsePod(p.Name)
	if err != nil {
		p.Name = ""
	}
	b.name(field, "pod", p.Name, "NAMESPACE/NAME")
	if !b.known["node "+p.Node] && (p.Node != "" || p.HostNetwork) {
		b.fault(field+".node", "%q: the cluster has no such node", p.Node)
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: id.Namespace, Name: id.Name, Labels: p.Labels},
		Spec:       corev1.PodSpec{NodeName: p.Node, HostNetwork: p.HostNetwork, Containers: make([]corev1.Container, 1)},
	}
	for _, a := range b.addresses(field, p.Addresses) {
		pod.Status.PodIPs = append(pod.Status.PodIPs, corev1.PodIP{IP: a.String()})
	}
	ports := &pod.Spec.Containers[0].Ports
	for i, port := range p.Ports {
		if port.Protocol == "" {
			port.Protocol = "TCP"
		}
		protocol := strings.ToUpper(port.Protocol)
		if _, err := model.ParseProtocol(protocol); err != nil || port.Port < 1 || port.Port > 65535 || port.Name == "" {
			b.fault(fmt.Sprintf("%s.ports[%d]", field, i), "needs a name, a port and the protocol TCP, UDP or SCTP")
		}
		*ports = append(*ports, corev1.ContainerPort{Name: port.Name, ContainerPort: port.Port, Protocol: corev1.Protocol(protocol)})
	}
	b.objects.Pods = append(b.objects.Pods, pod)
}

// use notes the owner of an address, and returns the address. Two owners of one address cannot be told apart.
func (b *builder) use(text, owner string) netip.Addr {
	a, err := netip.ParseAddr(text)
	if err != nil {
		return netip.Addr{}
	}
	a = a.Unmap()
	if other := b.used[a]; other != "" && other != owner {
		b.errs = append(b.errs, fmt.Errorf("%s: %s and %s have the address %s", b.t.file, other, owner, a))
	}
	b.used[a] = owner
	return a
}

// allocateAll gives addresses to pods and nodes that have none.
func (b *builder) allocateAll() {
	missing := map[*corev1.Node][]model.Family{}
	for _, n := range b.objects.Nodes {
		missing[n] = slices.Clone(b.families)
		for _, address := range n.Status.Addresses {
			if a := b.use(address.Address, "node "+n.Name); a.IsValid() {
				missing[n] = slices.DeleteFunc(missing[n], func(f model.Family) bool { return f == model.FamilyOf(a) })
			}
		}
	}
	policed := slices.DeleteFunc(slices.Clone(b.objects.Pods), func(p *corev1.Pod) bool { return p.Spec.HostNetwork })
	for _, p := range policed {
		for _, ip := range p.Status.PodIPs {
			owner := "pod " + p.Namespace + "/" + p.Name
			if a := b.use(ip.IP, owner); b.t.isolated() && !slices.ContainsFunc(b.prefixes, func(p netip.Prefix) bool { return p.Contains(a) }) {
				b.fault("spec.cluster.podCIDRs", "the address %s of %s is in none of them", ip.IP, owner)
			}
		}
	}
	for _, n := range b.objects.Nodes {
		for _, f := range missing[n] {
			a := b.allocate(netip.MustParsePrefix(defaultNodes[f]), "node "+n.Name)
			n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a})
		}
	}
	for _, p := range policed {
		if len(p.Status.PodIPs) > 0 {
			continue
		}
		for _, f := range b.families {
			p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: b.allocate(b.prefixes[b.prefix(f)], "pod "+p.Namespace+"/"+p.Name)})
		}
	}
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
	add := func(name string) {
		if !b.known["namespace "+name] {
			b.known["namespace "+name] = true
			b.objects.Namespaces = append(b.objects.Namespaces, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
		}
	}
	for _, p := range b.objects.Pods {
		add(p.Namespace)
	}
	for _, p := range b.objects.Policies {
		add(p.Namespace)
	}
	for _, o := range b.objects.Antrea.All() {
		switch id := o.ID(); id.Kind {
		case antrea.KindNetworkPolicy, antrea.KindGroup, antrea.KindEgressNetworkPolicy:
			add(id.Namespace)
		case antrea.KindNetNamespace:
			add(id.Name)
		}
	}
}

// failsafe returns the failsafe ports of nodes: files do not say which settings the agents have.
func failsafe() model.Failsafe {
	defaults := config.Defaults()
	return model.Failsafe{In: defaults.FailsafeIn, Out: defaults.FailsafeOut}
}
