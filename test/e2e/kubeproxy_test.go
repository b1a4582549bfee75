package e2e

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/felixlike/felixlike/cmd/felixctl/trace"
	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/internal/namespace"
	"github.com/felixlike/felixlike/internal/sysctl"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
	"github.com/felixlike/felixlike/test/eventually"
	"github.com/felixlike/felixlike/test/kubeproxy"
	"github.com/felixlike/felixlike/test/kubernetestest"
	"github.com/felixlike/felixlike/test/lab"
	"github.com/felixlike/felixlike/test/lab/traffic"
)

// kubeProxy returns the path of a kube-proxy, or skips the test.
func kubeProxy(t *testing.T) string {
	t.Helper()
	path, err := kubeproxy.Find()
	if err != nil {
		t.Skip(err)
	}
	return path
}

// zonedNodes are nodes in two zones, and x/a and x/b on node1, x/c on node2, x/d on node3.
const zonedNodes = `
{kind: Node, metadata: {name: node1, labels: {topology.kubernetes.io/zone: east}}}
---
{kind: Node, metadata: {name: node2, labels: {topology.kubernetes.io/zone: west}}}
---
{kind: Node, metadata: {name: node3, labels: {topology.kubernetes.io/zone: east}}}
---
{kind: Pod, metadata: {namespace: x, name: a, labels: {serves: plain}}, spec: {nodeName: node1, containers: [{name: c, ports: [{containerPort: 80}]}]}}
---
{kind: Pod, metadata: {namespace: x, name: b, labels: {serves: own}}, spec: {nodeName: node1, containers: [{name: c, ports: [{containerPort: 80}]}]}}
---
{kind: Pod, metadata: {namespace: x, name: c, labels: {serves: plain}}, spec: {nodeName: node2, containers: [{name: c, ports: [{containerPort: 80}]}]}}
---
{kind: Pod, metadata: {namespace: x, name: d, labels: {serves: elsewhere}}, spec: {nodeName: node3, containers: [{name: c, ports: [{containerPort: 80}]}]}}
`

// The ports on which each endpoint serves.
const (
	endpointPort      = 7000
	otherEndpointPort = 7001
)

// backed is an endpoint of a compared Service.
type backed struct {
	// at is a pod, a node, or an address outside the cluster.
	at string
	// port is endpointPort if it is zero.
	port                          int32
	unready, terminating, serving bool
	// slice puts it into another slice.
	slice bool
	// zones and nodes are hints.
	zones, nodes []string
	// families are all if it is nil.
	families []model.Family
}

// compared is a Service that kube-proxy and the agents serve.
type compared struct {
	name string
	// change changes the Service that has everything: type LoadBalancer, policy Cluster.
	change    func(*corev1.Service)
	endpoints []backed
	// probes are the targets with their clients: "b d > cluster".
	probes []string
	// one says that every client keeps its endpoint.
	one bool
}

// everywhere has all targets with clients of each kind: a pod beside an endpoint, a pod without one on its node, the nodes of
// both, and a host outside the cluster.
func everywhere() []string {
	return []string{
		"b d node1 node3 " + outside + " > cluster",
		"b d node1 node3 " + outside + " > node1", "b d node1 node3 " + outside + " > node3",
		"b d node1 node3 " + outside + " > balancer1", "b d node1 node3 " + outside + " > balancer3",
		"b d node1 node3 " + outside + " > external1", "b d node1 node3 " + outside + " > external3",
		"b d node1 node3 > balancer",
	}
}

func mostly() []string {
	return []string{"b d node1 > cluster", "b d " + outside + " > node1", outside + " > node3", "b node3 " + outside + " > balancer1", outside + " > balancer3"}
}

// comparedServices are the Services on which both have to agree. An endpoint on node1 and one on node2 are what most of them have.
func comparedServices() []compared {
	two := []backed{{at: "a"}, {at: "c"}}
	local := func(s *corev1.Service) { s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal }
	inLocal := func(s *corev1.Service) {
		policy := corev1.ServiceInternalTrafficPolicyLocal
		s.Spec.InternalTrafficPolicy = &policy
	}
	spread := func(to string) func(s *corev1.Service) {
		return func(s *corev1.Service) { s.Spec.TrafficDistribution = &to }
	}
	return []compared{
		{name: "plain", endpoints: two, probes: append(everywhere(), "node1 > loopback", "b > gateway1", outside+" > wrong", "b > wrong")},
		{name: "external-local", change: local, endpoints: two, probes: everywhere()},
		{name: "internal-local", change: inLocal, endpoints: two, probes: everywhere()},
		{name: "both-local", change: func(s *corev1.Service) { local(s); inLocal(s) }, endpoints: two, probes: everywhere()},
		{name: "itself", endpoints: []backed{{at: "a"}}, probes: []string{"a > cluster", "a > node1", "a > node3", "a > balancer1", "a > external3"}},
		{name: "itself-local", change: func(s *corev1.Service) { local(s); inLocal(s) }, endpoints: []backed{{at: "a"}}, probes: []string{"a > cluster", "a > node1", "a > node3", "a > balancer1"}},
		{name: "none", probes: mostly()},
		{name: "none-local", change: func(s *corev1.Service) { local(s); inLocal(s) }, probes: mostly()},
		{name: "unready", endpoints: []backed{{at: "a", unready: true}, {at: "c", unready: true}}, probes: mostly()},
		{name: "ending", endpoints: []backed{{at: "a", unready: true, serving: true, terminating: true}, {at: "c", unready: true, terminating: true}}, probes: mostly()},
		{name: "one-ending", endpoints: []backed{{at: "a", unready: true, serving: true, terminating: true}, {at: "c"}}, probes: mostly()},
		{name: "ending-local", change: func(s *corev1.Service) { local(s); inLocal(s) }, endpoints: []backed{{at: "a", unready: true, serving: true, terminating: true}, {at: "c"}}, probes: mostly()},
		{name: "published", change: func(s *corev1.Service) { s.Spec.PublishNotReadyAddresses = true }, endpoints: []backed{{at: "a", terminating: true}, {at: "c", serving: true, terminating: true}}, probes: mostly()},
		{name: "ranges", change: func(s *corev1.Service) {
			s.Spec.LoadBalancerSourceRanges = []string{outside + "/32", lab.Map(netip.MustParseAddr(outside)).String() + "/128"}
		}, endpoints: two, probes: []string{"b " + outside + " > cluster", outside + " " + stranger + " > node1", outside + " " + stranger + " b node1 > balancer1", stranger + " > balancer3", stranger + " > external1"}},
		{name: "ranges-local", change: func(s *corev1.Service) {
			local(s)
			s.Spec.LoadBalancerSourceRanges = []string{"10.10.0.0/24", lab.MapPrefix(netip.MustParsePrefix("10.10.0.0/24")).String()}
		}, endpoints: two, probes: []string{outside + " b d node1 > balancer1", outside + " > balancer3"}},
		{name: "affinity", one: true, change: func(s *corev1.Service) { s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP }, endpoints: two, probes: mostly()},
		{name: "zones", change: spread(corev1.ServiceTrafficDistributionPreferSameZone), endpoints: []backed{{at: "a", zones: []string{"east"}}, {at: "c", zones: []string{"west"}}}, probes: append(mostly(), "c node2 > cluster")},
		{name: "zones-incomplete", change: spread(corev1.ServiceTrafficDistributionPreferSameZone), endpoints: []backed{{at: "a", zones: []string{"east"}}, {at: "c"}}, probes: []string{"b d > cluster", outside + " > node1"}},
		{name: "zones-elsewhere", change: spread(corev1.ServiceTrafficDistributionPreferSameZone), endpoints: []backed{{at: "a", zones: []string{"north"}}, {at: "c", zones: []string{"west"}}}, probes: []string{"b d c > cluster", outside + " > node1"}},
		{name: "nodes", change: spread(corev1.ServiceTrafficDistributionPreferSameNode), endpoints: []backed{{at: "a", nodes: []string{"node1"}, zones: []string{"east"}}, {at: "c", nodes: []string{"node2"}, zones: []string{"west"}}}, probes: append(mostly(), "c node2 > cluster")},
		{name: "names", change: func(s *corev1.Service) {
			s.Spec.Ports[0].Name, s.Spec.Ports[1].Name = "one", "other"
		}, endpoints: []backed{{at: "a"}, {at: "c", port: otherEndpointPort}}, probes: mostly()},
		{name: "slices", endpoints: []backed{{at: "a"}, {at: "c", port: otherEndpointPort, slice: true}, {at: "a", slice: true, port: otherEndpointPort}}, probes: mostly()},
		{name: "node", endpoints: []backed{{at: "node2"}}, probes: []string{"b c d node1 node2 > cluster", "b " + outside + " > node1", outside + " c > node2", outside + " > balancer1"}},
		{name: "node-local", change: local, endpoints: []backed{{at: "node1"}}, probes: []string{"b d node1 > cluster", "b " + outside + " > node1", outside + " > node3", outside + " > balancer1"}},
		{name: "abroad", endpoints: []backed{{at: stranger}}, probes: []string{"b d node1 > cluster", "b " + outside + " > node1", outside + " > balancer1"}},
		{name: "one-family", endpoints: []backed{{at: "a", families: []model.Family{model.IPv4}}}, probes: mostly()},
	}
}

// difference is one between kube-proxy and the agents that is as it should be. Each has to be seen.
type difference struct {
	why string
	is  func(s situation, theirs, ours outcome) bool
}

// differences returns those of a mode of kube-proxy.
func differences(mode string) []difference {
	all := []difference{
		{"the agents keep the client's address where the answer comes back to the node, so that policy sees the client", func(s situation, theirs, ours outcome) bool {
			return keptSource(s, theirs, ours)
		}},
		{"kube-proxy sends a connection of a remote pod to policy Local on to another node under the pod's address, so that the answer goes past the node and is lost; the agents lead it to endpoints of this node alone", func(s situation, theirs, ours outcome) bool {
			pods := map[string]string{"b": "node1", "d": "node3"}
			return strings.HasSuffix(s.service, "-local") && pods[s.from] != "" && s.to != pods[s.from] && theirs.silent && !ours.silent && !ours.refused && ours.other == ""
		}},
		{"kube-proxy leads a pod that reaches itself through another node, under policy Local, back to it", func(s situation, theirs, ours outcome) bool {
			return s.service == "itself-local" && s.to == "node3" && len(theirs.seen) == 1 && ours.silent
		}},
	}
	if mode == "nftables" {
		return append(all, difference{"kube-proxy serves node ports on the first address of the node (--nodeport-addresses primary), the agents on all of them", func(s situation, theirs, ours outcome) bool {
			return s.to == "gateway1" && theirs.refused && len(ours.seen) == 2
		}})
	}
	return append(all,
		difference{"kube-proxy sends on what comes to a cluster IP at a port that the Service does not have, to wherever the node has a route; the agents refuse it", func(s situation, theirs, ours outcome) bool {
			return s.to == "wrong" && (theirs.silent || theirs.other == unix.EHOSTUNREACH.Error()) && ours.refused
		}},
		difference{"kube-proxy serves node ports on 127.0.0.1, over IPv4; the agents do not", func(s situation, theirs, ours outcome) bool {
			return s.to == "loopback" && s.family == model.IPv4 && len(theirs.seen) == 2 && ours.refused
		}},
		difference{"for a datagram of the node itself to a Service without endpoints, kube-proxy's refusal comes with the answer, that of the agents when it is sent", func(s situation, theirs, ours outcome) bool {
			return strings.HasPrefix(s.from, "node") && s.protocol == model.UDP && theirs.refused && ours.other == unix.EPERM.Error()
		}},
	)
}

// keptSource reports that the same endpoints are reached, and where they see other clients, they are on the node that the
// client has reached, kube-proxy has given them that node's address, and they see the client itself under the agents.
func keptSource(s situation, theirs, ours outcome) bool {
	if theirs.nothing() || ours.nothing() || len(theirs.seen) != len(ours.seen) {
		return false
	}
	nodes := map[string]string{"a": "node1", "b": "node1", "c": "node2", "node1": "node1", "node2": "node2"}
	for endpoint, seen := range theirs.seen {
		at, _, _ := strings.Cut(endpoint, ":")
		if now := ours.seen[endpoint]; now != seen && (seen != "gateway of "+nodes[at] || now != s.from) {
			return false
		}
	}
	return true
}

// outcome is what the clients of a situation have seen.
type outcome struct {
	// seen has the clients that endpoints see.
	seen            map[string]string
	refused, silent bool
	other           string
}

func (o outcome) nothing() bool { return o.refused || o.silent || o.other != "" || len(o.seen) == 0 }

func parseOutcome(text string) outcome {
	o := outcome{seen: map[string]string{}}
	for _, part := range strings.Split(text, ", ") {
		endpoint, client, answered := strings.Cut(part, " sees ")
		switch {
		case part == wasRefused:
			o.refused = true
		case part == wasSilent:
			o.silent = true
		case !answered || o.seen[endpoint] != "":
			o.other = part
		default:
			o.seen[endpoint] = client
		}
	}
	return o
}

// situation is one probe.
type situation struct {
	service, to, from string
	protocol          model.Protocol
	family            model.Family
	// most is the number of endpoints; one as in compared.
	most int
	one  bool
}

func (s situation) String() string {
	return fmt.Sprintf("%s: %s -> %s, %s over IPv%s", s.service, s.from, s.to, s.protocol, s.family)
}

// frontAddress returns an address of the Service with that number.
func frontAddress(a, b, c byte, number int) netip.Addr {
	return netip.AddrFrom4([4]byte{a, b, c, byte(number)})
}

// balancer is the address of a load balancer with ipMode Proxy, which is a host of its own.
var balancer = netip.MustParseAddr("192.0.2.99")

// serviceLab is a lab with the compared Services.
type serviceLab struct {
	*lab.Lab
	nodes []*corev1.Node
	names map[netip.Addr]string
	// restart starts the kube-proxy of a node again.
	restart map[string]func()
}

// numberOf returns the number of a Service.
func numberOf(name string) int {
	return 1 + slices.IndexFunc(comparedServices(), func(c compared) bool { return c.name == name })
}

// target returns where a client of a situation connects to.
func (c *serviceLab) target(s situation) netip.AddrPort {
	n := numberOf(s.service)
	at := func(a netip.Addr) netip.AddrPort { return netip.AddrPortFrom(ofFamily(s.family, a), servicePort) }
	port := uint16(30000 + n)
	switch s.to {
	case "cluster":
		return at(frontAddress(10, 96, 0, n))
	case "wrong":
		return netip.AddrPortFrom(ofFamily(s.family, frontAddress(10, 96, 0, n)), servicePort+1)
	case "balancer":
		return at(balancer)
	case "balancer1":
		return at(frontAddress(203, 0, 113, n))
	case "balancer3":
		return at(frontAddress(198, 51, 100, n))
	case "external1":
		return at(frontAddress(198, 18, 1, n))
	case "external3":
		return at(frontAddress(198, 18, 3, n))
	case "gateway1":
		return netip.AddrPortFrom(ofFamily(s.family, netip.MustParseAddr("10.10.0.1")), port)
	case "loopback":
		if s.family == model.IPv6 {
			return netip.AddrPortFrom(netip.IPv6Loopback(), port)
		}
		return netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), port)
	}
	return netip.AddrPortFrom(c.Node(s.to).Address(s.family), port)
}

// service returns the object of a Service.
func (c compared) service() *corev1.Service {
	n := numberOf(c.name)
	dual := func(a ...netip.Addr) (all []string) {
		for _, a := range a {
			all = append(all, a.String(), lab.Map(a).String())
		}
		return all
	}
	clusterIPs := dual(frontAddress(10, 96, 0, n))
	policy := corev1.IPFamilyPolicyRequireDualStack
	internal := corev1.ServiceInternalTrafficPolicyCluster
	s := &corev1.Service{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: c.name, UID: types.UID(c.name)},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, ClusterIP: clusterIPs[0], ClusterIPs: clusterIPs,
			IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}, IPFamilyPolicy: &policy,
			ExternalIPs:           dual(frontAddress(198, 18, 1, n), frontAddress(198, 18, 3, n)),
			ExternalTrafficPolicy: corev1.ServiceExternalTrafficPolicyCluster, InternalTrafficPolicy: &internal,
			SessionAffinity: corev1.ServiceAffinityNone,
			Ports: []corev1.ServicePort{
				{Name: "tcp", Protocol: corev1.ProtocolTCP, Port: servicePort, NodePort: int32(30000 + n)},
				{Name: "udp", Protocol: corev1.ProtocolUDP, Port: servicePort, NodePort: int32(30000 + n)},
			},
		},
	}
	for mode, addresses := range map[corev1.LoadBalancerIPMode][]string{
		corev1.LoadBalancerIPModeVIP:   dual(frontAddress(203, 0, 113, n), frontAddress(198, 51, 100, n)),
		corev1.LoadBalancerIPModeProxy: dual(balancer),
	} {
		for _, a := range addresses {
			s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: a, IPMode: &mode})
		}
	}
	if c.change != nil {
		c.change(s)
	}
	if s.Spec.SessionAffinity == corev1.ServiceAffinityClientIP {
		timeout := int32(3600)
		s.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: &timeout}}
	}
	return s
}

// slices returns the EndpointSlices of a Service: one for each port number of endpoints, and another one for those that ask for it.
func (c *serviceLab) slices(of compared) (all []*discoveryv1.EndpointSlice) {
	service := of.service()
	for _, f := range model.Families() {
		bySlice := map[string]*discoveryv1.EndpointSlice{}
		for _, e := range of.endpoints {
			if len(e.families) > 0 && !slices.Contains(e.families, f) {
				continue
			}
			port := cmp.Or(e.port, endpointPort)
			name := fmt.Sprintf("%s-%s-%d-%v", of.name, f, port, e.slice)
			s := bySlice[name]
			if s == nil {
				s = &discoveryv1.EndpointSlice{
					TypeMeta:    metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"},
					ObjectMeta:  metav1.ObjectMeta{Namespace: "x", Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: of.name}},
					AddressType: discoveryv1.AddressType("IPv" + f.String()),
				}
				for _, p := range service.Spec.Ports {
					s.Ports = append(s.Ports, discoveryv1.EndpointPort{Name: &p.Name, Protocol: &p.Protocol, Port: &port})
				}
				bySlice[name] = s
				all = append(all, s)
			}
			ready := !e.unready
			serving := ready && !e.terminating || e.serving
			x := discoveryv1.Endpoint{Conditions: discoveryv1.EndpointConditions{Ready: &ready, Serving: &serving, Terminating: &e.terminating}}
			address, node := c.endpoint(e.at, f)
			x.Addresses = []string{address.String()}
			if node != "" {
				x.NodeName = &node
			}
			for _, z := range e.zones {
				x.Hints = cmp.Or(x.Hints, &discoveryv1.EndpointHints{})
				x.Hints.ForZones = append(x.Hints.ForZones, discoveryv1.ForZone{Name: z})
			}
			for _, n := range e.nodes {
				x.Hints = cmp.Or(x.Hints, &discoveryv1.EndpointHints{})
				x.Hints.ForNodes = append(x.Hints.ForNodes, discoveryv1.ForNode{Name: n})
			}
			s.Endpoints = append(s.Endpoints, x)
		}
	}
	return all
}

// endpoint returns the address of an endpoint, and its node if it is in the cluster.
func (c *serviceLab) endpoint(at string, f model.Family) (netip.Addr, string) {
	if n := c.Node(at); n != nil {
		return n.Address(f), at
	}
	if a, err := netip.ParseAddr(at); err == nil {
		return ofFamily(f, a), ""
	}
	p := c.Pod(pod(at))
	return p.Address(f), p.Node().Name()
}

// newServiceLab makes a lab with everything but the Services.
func newServiceLab(t *testing.T, config lab.Config) *serviceLab {
	t.Helper()
	c := &serviceLab{Lab: newLabWith(t, config), names: map[netip.Addr]string{}, restart: map[string]func(){}}
	s := state(t, zonedNodes)
	set(t, c.Lab, s)
	c.nodes = c.State().Nodes
	for i, name := range []string{"node1", "node2", "node3"} {
		// All probes come from few clients: the kernel must not save on its refusals.
		err := c.Node(name).Namespace().Do(func() error {
			return errors.Join(sysctl.Write("net/ipv4/icmp_ratelimit", "0"), sysctl.Write("net/ipv6/icmp/ratelimit", "0"), sysctl.Write("net/ipv4/icmp_msgs_burst", "10000"))
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range model.Families() {
			c.names[c.Node(name).Address(f)] = name
			c.names[ofFamily(f, netip.AddrFrom4([4]byte{10, 10, byte(i), 1}))] = "gateway of " + name
		}
	}
	for _, name := range []string{"a", "b", "c", "d"} {
		for _, f := range model.Families() {
			c.names[c.Pod(pod(name)).Address(f)] = name
		}
	}
	for _, a := range []netip.Addr{netip.MustParseAddr(outside), netip.MustParseAddr(stranger), balancer} {
		c.names[a], c.names[lab.Map(a)] = a.String(), a.String()
	}
	c.route(t)
	for _, at := range []string{"a", "b", "c", "d", "node1", "node2", stranger} {
		for _, f := range model.Families() {
			for _, port := range []uint16{endpointPort, otherEndpointPort} {
				c.serve(t, at, f, port)
			}
		}
	}
	for _, f := range model.Families() {
		c.serve(t, balancer.String(), f, servicePort)
	}
	return c
}

// route leads the addresses of load balancers and external IPs from outside the cluster to nodes.
func (c *serviceLab) route(t *testing.T) {
	t.Helper()
	for prefix, node := range map[string]string{"203.0.113.0/24": "node1", "198.51.100.0/24": "node3", "198.18.1.0/24": "node1", "198.18.3.0/24": "node3", "10.96.0.0/16": "node1"} {
		for _, f := range model.Families() {
			ns, _, err := c.Host("ip:"+outside, f)
			if err != nil {
				t.Fatal(err)
			}
			p := netip.MustParsePrefix(prefix)
			if f == model.IPv6 {
				p = lab.MapPrefix(p)
			}
			err = ns.Do(func() error {
				out, err := exec.Command("ip", "-"+f.String(), "route", "replace", p.String(), "via", c.Node(node).Address(f).String()).CombinedOutput()
				if err != nil {
					return fmt.Errorf("%w: %s", err, out)
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
}

// hostOf returns the namespace and the address of a pod, a node or a host.
func (c *serviceLab) hostOf(t *testing.T, at string, f model.Family) (*namespace.Namespace, netip.Addr) {
	t.Helper()
	ns, a, err := c.Host(endOf(at), f)
	if err != nil {
		t.Fatal(err)
	}
	return ns, a
}

// serve has an endpoint tell each client the endpoint's name and the client's address, until the test ends.
func (c *serviceLab) serve(t *testing.T, at string, f model.Family, port uint16) {
	t.Helper()
	ns, address := c.hostOf(t, at, f)
	here := netip.AddrPortFrom(address, port)
	var tcp *net.TCPListener
	var udp *net.UDPConn
	err := ns.Do(func() (err error) {
		if tcp, err = net.ListenTCP("tcp", net.TCPAddrFromAddrPort(here)); err != nil {
			return err
		}
		udp, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(here))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tcp.Close(); udp.Close() })
	answer := func(client netip.AddrPort) []byte {
		a := client.Addr().Unmap()
		return fmt.Appendf(nil, "%s:%d sees %s", at, port, cmp.Or(c.names[a], a.String()))
	}
	go func() {
		for {
			conn, err := tcp.AcceptTCP()
			if err != nil {
				return
			}
			_, _ = conn.Write(answer(conn.RemoteAddr().(*net.TCPAddr).AddrPort()))
			_ = conn.CloseWrite()
			go func() {
				defer conn.Close()
				_ = conn.SetReadDeadline(time.Now().Add(patience))
				_, _ = io.Copy(io.Discard, conn)
			}()
		}
	}()
	go func() {
		for {
			n, from, err := udp.ReadFromUDPAddrPort(make([]byte, 64))
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil && n > 0 {
				_, _ = udp.WriteToUDPAddrPort(answer(from), from)
			}
		}
	}()
}

// What a client sees beside an answer.
const (
	wasRefused = "refused"
	wasSilent  = "silent"
)

// probe opens one connection and returns what the endpoint says.
func (c *serviceLab) probe(s situation, timeout time.Duration) string {
	ns, source, err := c.Host(endOf(s.from), s.family)
	if err != nil {
		return err.Error()
	}
	to := c.target(s)
	if to.Addr().IsLoopback() {
		source = to.Addr()
	}
	var answer []byte
	if s.protocol == model.TCP {
		answer, err = overTCP(ns, source, to, timeout)
	} else {
		answer, err = overUDP(ns, source, to, timeout)
	}
	var code unix.Errno
	switch {
	case errors.Is(err, unix.ECONNREFUSED):
		return wasRefused
	case errors.Is(err, unix.ETIMEDOUT), errors.Is(err, os.ErrDeadlineExceeded):
		return wasSilent
	case errors.As(err, &code):
		return code.Error() // without the client's port
	case err != nil:
		return err.Error()
	}
	return string(answer)
}

func overTCP(ns *namespace.Namespace, source netip.Addr, to netip.AddrPort, timeout time.Duration) ([]byte, error) {
	conn, err := traffic.Connect(ns, source, to, timeout)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	_ = conn.SetReadDeadline(time.Now().Add(patience))
	return io.ReadAll(conn)
}

func overUDP(ns *namespace.Namespace, source netip.Addr, to netip.AddrPort, timeout time.Duration) ([]byte, error) {
	var conn *net.UDPConn
	err := ns.Do(func() (err error) {
		conn, err = net.DialUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(source, 0)), net.UDPAddrFromAddrPort(to))
		return err
	})
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	answer := make([]byte, 128)
	n := 0
	for end := time.Now().Add(timeout); time.Now().Before(end); { // a datagram may be lost
		if _, err = conn.Write([]byte("who")); err == nil {
			_ = conn.SetReadDeadline(time.Now().Add(timeout / 6))
			n, err = conn.Read(answer)
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
	}
	return bytes.Clone(answer[:n]), err
}

// judge tries a situation until all of its endpoints were seen, or the number of tries.
func (c *serviceLab) judge(s situation, tries int, timeout time.Duration) string {
	seen := map[string]bool{}
	for range tries {
		got := c.probe(s, timeout)
		seen[got] = true
		if !strings.Contains(got, " sees ") || len(seen) == s.most && !s.one {
			break
		}
	}
	if s.one && len(seen) == 1 && strings.Contains(slices.Collect(maps.Keys(seen))[0], " sees ") {
		return "the same endpoint each time"
	}
	return strings.Join(slices.Sorted(maps.Keys(seen)), ", ")
}

// atOnce is the number of situations that are tried side by side.
const atOnce = 48

// judgeAll tries situations side by side.
func (c *serviceLab) judgeAll(all []situation, tries int, timeout time.Duration) map[situation]string {
	results := make([]string, len(all))
	places := make(chan bool, atOnce)
	var running sync.WaitGroup
	for i, s := range all {
		places <- true
		running.Go(func() {
			defer func() { <-places }()
			results[i] = c.judge(s, tries, timeout)
		})
	}
	running.Wait()
	byName := map[situation]string{}
	for i, s := range all {
		byName[s] = results[i]
	}
	return byName
}

// situations returns all situations of the compared Services.
func situations() (all []situation) {
	for _, c := range comparedServices() {
		for _, p := range c.probes {
			from, to, _ := strings.Cut(p, " > ")
			for _, client := range strings.Fields(from) {
				for _, protocol := range []model.Protocol{model.TCP, model.UDP} {
					for _, f := range model.Families() {
						all = append(all, situation{service: c.name, to: to, from: client, protocol: protocol, family: f, most: max(1, len(c.endpoints)), one: c.one})
					}
				}
			}
		}
	}
	return all
}

// runKubeProxy runs kube-proxy on all nodes with the Services until the test ends. Each has an API server of its own, with its node only:
// the server knows no field selectors.
func (c *serviceLab) runKubeProxy(t *testing.T, program, mode string) {
	t.Helper()
	for _, node := range c.nodes {
		ns := c.Lab.Node(node.Name).Namespace()
		server, admin, err := kubernetestest.ListenIn(ns, apiAddress)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(server.Stop)
		create(t, admin, node, c)
		proxy := kubeproxy.Config{
			Program: program, Mode: mode, Node: node.Name, API: apiAddress, Dir: t.TempDir(),
			Pods: []netip.Prefix{clusterPods(model.IPv4), clusterPods(model.IPv6)},
		}
		var cmd *exec.Cmd
		end := func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
		start := func() {
			if cmd, err = proxy.Start(ns); err != nil {
				t.Fatal(err)
			}
		}
		start()
		t.Cleanup(func() {
			end()
			if t.Failed() {
				text, _ := os.ReadFile(proxy.Log())
				t.Logf("kube-proxy of %s:\n%s", node.Name, text[max(0, len(text)-3000):])
			}
		})
		c.restart[node.Name] = func() { end(); start() }
	}
}

// awaitZones waits until each kube-proxy knows the zone of its node: it may have missed it at its start, and then does not learn it before the Node
// changes. Such a one starts again.
func (c *serviceLab) awaitZones(t *testing.T) {
	t.Helper()
	for node, client := range map[string]string{"node1": "b", "node2": "c", "node3": "d"} {
		for try := range 6 {
			s := situation{service: "zones", to: "cluster", from: client, protocol: model.TCP, family: model.IPv4, most: 2}
			if got := c.judge(s, 20, patience); !strings.Contains(got, ", ") {
				break
			} else if try == 5 {
				t.Fatalf("kube-proxy of %s ignores the zone of its node: %s", node, got)
			}
			c.restart[node]()
			c.served(t)
		}
	}
}

// create gives an API server a node and the compared Services.
func create(t *testing.T, admin *kubernetes.Clientset, node *corev1.Node, c *serviceLab) {
	t.Helper()
	if _, err := admin.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, s := range comparedServices() {
		if _, err := admin.CoreV1().Services("x").Create(t.Context(), s.service(), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		for _, slice := range c.slices(s) {
			if _, err := admin.DiscoveryV1().EndpointSlices("x").Create(t.Context(), slice, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// runAgents has the agents serve the Services.
func (c *serviceLab) runAgents(t *testing.T) {
	t.Helper()
	var text bytes.Buffer
	add := func(o any) {
		one, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&text, "---\n%s\n", one)
	}
	for _, s := range comparedServices() {
		add(s.service())
		for _, slice := range c.slices(s) {
			add(slice)
		}
	}
	if err := os.WriteFile(filepath.Join(c.Manifests(), "services.yaml"), text.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := c.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// served waits until all nodes serve: the last Services are there.
func (c *serviceLab) served(t *testing.T) {
	t.Helper()
	for _, node := range []string{"node1", "node2", "node3"} {
		for _, f := range model.Families() {
			eventually.True(t, node+" serves", func() bool {
				s := situation{service: "abroad", from: node, to: "cluster", protocol: model.TCP, family: f, most: 1}
				return strings.Contains(c.probe(s, probeTimeout), " sees ")
			})
		}
	}
}

// TestServicesLikeKubeProxy compares kube-proxy in both modes with the agents, on the host alone and with the bridge: the same Services, the same connections from pods, nodes and
// hosts outside the cluster have to reach the same endpoints, which have to see the same clients.
func TestServicesLikeKubeProxy(t *testing.T) {
	t.Parallel()
	needLab(t)
	program := kubeProxy(t)
	agents := map[string]*serviceLab{}
	for backend, name := range map[string]string{config.NFTables: "", config.OpenFlow: "o"} {
		agents[backend] = newServiceLab(t, lab.Config{Name: name, Backend: backend, ServiceProxy: config.ServiceProxyFull})
		agents[backend].runAgents(t)
	}
	for _, mode := range []string{"nftables", "iptables"} {
		t.Run(mode, func(t *testing.T) {
			theirs := newServiceLab(t, lab.Config{Name: "p"})
			theirs.runKubeProxy(t, program, mode)
			theirs.served(t)
			theirs.awaitZones(t)
			for _, backend := range slices.Sorted(maps.Keys(agents)) {
				t.Run(backend, func(t *testing.T) {
					agents[backend].served(t)
					compareWithKubeProxy(t, mode, theirs, agents[backend])
				})
			}
		})
	}
}

// compareWithKubeProxy compares all situations under kube-proxy and under the agents.
func compareWithKubeProxy(t *testing.T, mode string, theirs, ours *serviceLab) {
	all := situations()
	// An answer may be late on a busy machine, and an endpoint may not be drawn: what differs is tried again, with patience.
	const silence = 1500 * time.Millisecond
	a, b := map[situation]string{}, map[situation]string{}
	both := func(all []situation, tries int, timeout time.Duration) {
		var running sync.WaitGroup
		running.Go(func() { maps.Copy(a, theirs.judgeAll(all, tries, timeout)) })
		running.Go(func() { maps.Copy(b, ours.judgeAll(all, tries, timeout)) })
		running.Wait()
	}
	start := time.Now()
	both(all, 8, silence)
	t.Logf("%d situations in %s", len(all), time.Since(start))
	start = time.Now()
	counts := map[string]int{}
	// Under openflow, an address stands for the pod that reaches itself.
	itself := func(s situation) bool {
		endpoint, source, _ := strings.Cut(b[s], " sees ")
		return source == pipeline.Hairpin(s.family).String() && strings.HasPrefix(a[s], endpoint+" sees gateway of ")
	}
	unlisted := func(all []situation) []situation {
		return slices.DeleteFunc(slices.Clone(all), func(s situation) bool {
			if a[s] == b[s] || itself(s) {
				return true
			}
			for _, d := range differences(mode) {
				if d.is(s, parseOutcome(a[s]), parseOutcome(b[s])) {
					counts[d.why]++
					return true
				}
			}
			return false
		})
	}
	bothSilent := func(all []situation) []situation {
		return slices.DeleteFunc(slices.Clone(all), func(s situation) bool { return a[s] != wasSilent || b[s] != wasSilent })
	}
	both(bothSilent(all), 1, 4*time.Second) // both may only have been late
	silent := bothSilent(all)
	again := unlisted(all)
	both(again, 40, 8*time.Second)
	t.Logf("%d again in %s", len(again), time.Since(start))
	for _, s := range unlisted(again) {
		t.Errorf("%s:\n   kube-proxy: %s\n   agents:     %s", s, a[s], b[s])
	}
	for _, d := range differences(mode) {
		if counts[d.why] == 0 {
			t.Errorf("no more seen: %s", d.why)
		}
		t.Logf("%d times: %s", counts[d.why], d.why)
	}
	if mode != "nftables" {
		return // the rest is about the agents
	}
	start = time.Now()
	var running sync.WaitGroup
	for name, c := range map[string]*serviceLab{"kube-proxy": theirs, "agents": ours} {
		running.Go(func() { c.nothingArrives(t, name, silent) })
	}
	running.Wait()
	t.Logf("%d silent in %s", len(silent), time.Since(start))
	start = time.Now()
	t.Logf("%d traced in %s", ours.trace(t, all, b), time.Since(start))
}

// trace compares what felixctl trace says with what the probes have found, and returns the number of comparisons: for the first clients of
// each Service and target, one family each.
func (c *serviceLab) trace(t *testing.T, all []situation, found map[situation]string) (count int) {
	seen := map[string]bool{}
	places := make(chan bool, 4)
	var running sync.WaitGroup
	for _, s := range all {
		name, fromOutside := s.service+s.to, strings.Contains(s.from, ".")
		if fromOutside {
			name += outside
		}
		switch {
		case s.protocol != model.TCP || (len(seen)%2 == 0) != (s.family == model.IPv4) || seen[name]:
			continue
		case slices.Contains([]string{"balancer", "loopback", "gateway1"}, s.to), fromOutside && strings.HasSuffix(s.to, "3"):
			continue // no address of the Service, or it is not known which node the packet comes to
		case s.service != "plain" && s.to != "cluster" && s.to != "node1" && s.to != "balancer1":
			continue
		}
		seen[name] = true
		places <- true
		running.Go(func() {
			defer func() { <-places }()
			c.traceOne(t, s, parseOutcome(found[s]))
		})
	}
	running.Wait()
	return len(seen)
}

func (c *serviceLab) traceOne(t *testing.T, s situation, found outcome) {
	at := c.target(s)
	to, port := at.Addr().String(), fmt.Sprint(at.Port())
	if s.to == "cluster" && s.family == model.IPv6 {
		to, port = "service:x/"+s.service, fmt.Sprint(servicePort)
	}
	from := strings.TrimPrefix(endOf(s.from), "ip:")
	if strings.Contains(s.from, ".") {
		from = ofFamily(s.family, netip.MustParseAddr(s.from)).String()
	}
	// The node that translates the packet is asked.
	node := map[string]string{"a": "node1", "b": "node1", "c": "node2", "d": "node3", "node1": "node1", "node2": "node2", "node3": "node3"}[s.from]
	if c.Node(s.to) != nil {
		node = s.to
	}
	out, errs, code := felixctl(t, "trace", "--lab", c.Name(), "--node", cmp.Or(node, "node1"), "--from", from, "--to", to, "--port", port+"/tcp", "--family", s.family.String(), "-o", "json")
	var answers []struct {
		traceAnswer
		Packet  trace.Packet `json:"packet"`
		Service string       `json:"service"`
		Why     string       `json:"why"`
	}
	if err := json.Unmarshal([]byte(out), &answers); err != nil || code > 1 {
		t.Errorf("%s: trace: exit code %d: %s%s", s, code, out, errs)
		return
	}
	allowed := 0
	for _, a := range answers {
		if a.Verdict == "allowed" {
			allowed++
		}
	}
	if allowed > len(found.seen) && !s.one { // an endpoint may not have been drawn
		found = parseOutcome(c.judgeAll([]situation{s}, 40, 8*time.Second)[s])
	}
	got := outcome{seen: map[string]string{}}
	for _, a := range answers {
		endpoint := c.names[a.Packet.Destination] + ":" + fmt.Sprint(a.Packet.Port)
		switch {
		case a.Service != "x/"+s.service || a.Disagreement != "":
			t.Errorf("%s: trace: %+v", s, a)
		case a.Verdict == "allowed":
			got.seen[endpoint] = c.names[a.Packet.Source]
			if strings.HasPrefix(s.from, "node") || strings.HasPrefix(endpoint, s.from+":") || s.from == "b" && s.service == "abroad" {
				got.seen[endpoint] = found.seen[endpoint] // the address is chosen after policy
			}
		case strings.Contains(a.Why, "refuses it"):
			got.refused = true
		case strings.Contains(a.Why, "drops it"):
			got.silent = true
		}
	}
	if s.one {
		if len(got.seen) != 2 || !strings.Contains(out, "which the client keeps for 1h") {
			t.Errorf("%s: trace: %s", s, out)
		}
		return
	}
	if found.other != "" { // a drop on the client's node
		found.other, found.silent = "", true
	}
	if !maps.Equal(got.seen, found.seen) || got.refused != found.refused || got.silent != found.silent {
		t.Errorf("%s: trace: %+v, but probes: %+v", s, got, found)
	}
}

// nothingArrives tries situations without an answer, and checks that no pod gets a packet of theirs.
func (c *serviceLab) nothingArrives(t *testing.T, name string, silent []situation) {
	var watched []*traffic.Arrivals
	for _, p := range []string{"a", "b", "c", "d"} {
		w, err := traffic.Watch(c.Pod(pod(p)).Namespace(), "eth0", slices.Collect(maps.Keys(c.names))...)
		if err != nil {
			t.Error(err)
			return
		}
		defer w.Close()
		watched = append(watched, w)
	}
	requests := func(start time.Time) (all []traffic.Arrival) {
		for _, w := range watched {
			found, err := w.Since(start)
			if err != nil {
				t.Error(err)
			}
			for _, f := range found {
				begins := f.Protocol == "udp" || f.Flags == 1<<1 // SYN
				if begins && (f.To.Port() == endpointPort || f.To.Port() == otherEndpointPort) {
					all = append(all, f)
				}
			}
		}
		return all
	}
	start := time.Now()
	for s, got := range c.judgeAll(silent, 1, time.Second) {
		if got != wasSilent {
			t.Errorf("%s: %s: %s, was silent before", name, s, got)
		}
	}
	for _, r := range requests(start) {
		t.Errorf("%s: this arrived, without an answer: %s", name, r)
	}
	// The watch sees what passes.
	start = time.Now()
	control := situation{service: "itself", from: "b", to: "cluster", protocol: model.TCP, family: model.IPv4, most: 1}
	if got := c.judge(control, 1, patience); got != "a:7000 sees b" {
		t.Errorf("%s: %s: %s", name, control, got)
	}
	if len(requests(start)) == 0 {
		t.Errorf("%s: the watch does not see a connection that passes", name)
	}
}
