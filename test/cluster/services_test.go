package cluster

import (
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/felixlike/felixlike/internal/namespace"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/cluster/kubelab"
)

// Ports of the tested Services, all of which lead to port 8080 of pods.
const (
	servicePort = 80
	clusterPort = 30101 // the node port with externalTrafficPolicy Cluster
	localPort   = 30102 // and with Local
	hostPort    = 8180
	podPort     = 8080
)

// world has the ends for tests of Services: server one on the first node, clients c1
// and c2 on the first and the second, and hosts outside.
type world struct {
	*site
	pods map[string]*pod
	ends map[string]*namespace.Namespace
	// addresses are those that a server may see, by name: "c1", "out", "n1", "gw2".
	addresses map[string]map[model.Family]netip.Addr
	services  map[string]map[model.Family]netip.Addr
}

// way is a connection through a Service: "c1 -> n2:one" is from pod c1 to the
// node port on node n2. The marks are ":" for the node port, "!" for that of
// externalTrafficPolicy Local, "#" for the host port; without one it is the ClusterIP.
// sees is the source that the server sees, "?" if that depends on where the proxy's masquerading
// is done (policy has judged the true source by then), "" if nothing gets through.
type way struct{ from, to, sees string }

// through takes "from -> to: sees".
func through(texts ...string) []way {
	var all []way
	for _, text := range texts {
		from, rest, _ := strings.Cut(text, " -> ")
		to, sees, _ := strings.Cut(rest, ": ")
		all = append(all, way{from, to, sees})
	}
	return all
}

// judgement has the expected results under some policies.
type judgement struct {
	name, ingress string
	ways          []way
}

// judgements are of policies that isolate server one. The source that policy sees
// is the one in docs/explain/guarantees/always.md, under all backends and proxies.
func judgements(w *world) []judgement {
	block := func(name string) string {
		return fmt.Sprintf(`[{from: [{ipBlock: {cidr: %s/32}}, {ipBlock: {cidr: "%s/128"}}]}]`, w.addresses[name][model.IPv4], w.addresses[name][model.IPv6])
	}
	return []judgement{
		{"no policy", "", through(
			"c1 -> one: c1", "c2 -> one: c2", "n1 -> one: ?", "n2 -> one: gw2", "one -> one: ?",
			"c1 -> n1:one: ?", "c1 -> n2:one: gw2", "c2 -> n1:one: ?", "one -> n1:one: ?", "n2 -> n1:one: ?", "n1 -> n1:one: ?",
			"out -> n1:one: ?", "out -> n2:one: gw2", "out -> n1!one: out", "out -> n2!one: ",
			"out -> n1#one: out", "c2 -> n1#one: c2", "c1 -> n1#one: ?", "n2 -> n1#one: n2", "n1 -> n1#one: ?", "one -> n1#one: ?",
		)},
		{"ingress from c1 on the pod's port", `[{from: [{podSelector: {matchLabels: {pod: c1}}}], ports: [{port: 8080}]}]`, through(
			"c1 -> one: c1", "c1 -> n1:one: ?", "c1 -> n1#one: ?", "n1 -> one: ?", "n1 -> n1:one: ?",
			"c2 -> one: ", "c2 -> n1:one: ", "c2 -> n1#one: ", "c1 -> n2:one: ", "n2 -> one: ", "one -> one: ",
			"out -> n1:one: ", "out -> n2:one: ", "out -> n1!one: ", "out -> n1#one: ",
		)},
		{"ingress on the Service's port", `[{ports: [{port: 80}]}]`, through("c1 -> one: ", "c2 -> n1:one: ", "out -> n1:one: ", "out -> n1!one: ", "n1 -> one: ?")},
		{"ingress from one client outside", block("out"), through(
			"out -> n1:one: ?", "out -> n1!one: out", "out -> n1#one: out", "out -> n2:one: ", "c1 -> one: ", "c2 -> one: ", "n2 -> n1:one: ",
		)},
		{"ingress from the other node", block("gw2"), through("out -> n2:one: gw2", "n2 -> one: gw2", "c1 -> n2:one: gw2", "out -> n1:one: ", "c2 -> one: ")},
		{"ingress from itself", `[{from: [{podSelector: {matchLabels: {pod: one}}}]}]`, through("one -> one: ?", "c1 -> one: ", "out -> n1:one: ")},
		{"no ingress", `[]`, through("n1 -> one: ?", "n1 -> n1:one: ?", "one -> one: ", "c1 -> one: ", "out -> n1!one: ", "out -> n1#one: ")},
	}
}

// testServices goes through Services of all kinds, under policies.
func testServices(t *testing.T, s *site) {
	w := newWorld(t, s)
	for _, j := range judgements(w) {
		if j.ingress != "" {
			s.apply(t, fmt.Sprintf(`
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {namespace: services, name: one}
spec: {podSelector: {matchLabels: {pod: one}}, ingress: %s}
`, j.ingress))
		}
		began, last := time.Now(), ""
		until(t, 30*time.Second, func() error {
			err := w.wrong(j)
			if now := fmt.Sprint(err); err != nil && now != last {
				last = now
				t.Logf("%s: not yet: %v", since(began), err)
			}
			return err
		})
		if err := w.wrong(j); err != nil {
			t.Errorf("it did not stay: %v", err)
		}
	}
	w.testAffinity(t)
}

// outside returns the addresses of the control plane in the subnet of both nodes. It has the first ones.
func outside() map[model.Family]netip.Addr {
	return map[model.Family]netip.Addr{model.IPv4: netip.MustParseAddr("172.30.1.1"), model.IPv6: netip.MustParseAddr("fd00:30:1::1")}
}

// newWorld starts pods and Services.
func newWorld(t *testing.T, s *site) *world {
	t.Helper()
	const ns = "services"
	s.inNamespace(t, ns)
	service := func(name, selector, more string) string {
		return fmt.Sprintf(`---
apiVersion: v1
kind: Service
metadata: {namespace: %s, name: %s}
spec: {ipFamilyPolicy: PreferDualStack, selector: {%s}, %s}
`, ns, name, selector, more)
	}
	nodes := s.Nodes()
	one := strings.Replace(sleeper(ns, "one", nodes[0], "app: web"), `image: "kubelab.local/pause:1"`, fmt.Sprintf(`image: "kubelab.local/pause:1", ports: [{containerPort: %d, hostPort: %d}]`, podPort, hostPort), 1)
	pods := s.start(t, ns, one+sleeper(ns, "two", nodes[1], "app: web")+sleeper(ns, "c1", nodes[0])+sleeper(ns, "c2", nodes[1])+
		service("one", "pod: one", fmt.Sprintf("type: NodePort, ports: [{port: %d, targetPort: %d, nodePort: %d}]", servicePort, podPort, clusterPort))+
		service("one-local", "pod: one", fmt.Sprintf("type: NodePort, externalTrafficPolicy: Local, ports: [{port: %d, targetPort: %d, nodePort: %d}]", servicePort, podPort, localPort))+
		service("web", "app: web", fmt.Sprintf("ports: [{port: %d, targetPort: %d}]", servicePort, podPort))+
		service("sticky", "app: web", fmt.Sprintf("sessionAffinity: ClientIP, ports: [{port: %d, targetPort: %d}]", servicePort, podPort)))
	w := &world{site: s, pods: pods, ends: map[string]*namespace.Namespace{}, addresses: map[string]map[model.Family]netip.Addr{}, services: map[string]map[model.Family]netip.Addr{}}
	for name, p := range pods {
		p.serveName(t, podPort)
		w.ends[name], w.addresses[name] = p.station.Namespace(), map[model.Family]netip.Addr{}
		for _, f := range model.Families() {
			w.addresses[name][f] = p.address(f)
		}
	}
	w.ends["out"] = open(t, kubelab.ControlPlane)
	w.addresses["out"] = outside()
	for i, name := range nodes {
		w.ends[name] = open(t, kubelab.Namespace(name))
		w.addNode(t, name, fmt.Sprintf("gw%d", i+1))
	}
	for _, name := range []string{"one", "web", "sticky"} {
		w.addService(t, ns, name)
	}
	return w
}

// addNode learns the addresses of a node and of its gateway port.
func (w *world) addNode(t *testing.T, name, gateway string) {
	t.Helper()
	var node corev1.Node
	if err := w.Get(t.Context(), &node, "node", name); err != nil {
		t.Fatal(err)
	}
	w.addresses[name], w.addresses[gateway] = map[model.Family]netip.Addr{}, map[model.Family]netip.Addr{}
	for _, a := range node.Status.Addresses {
		if addr, err := netip.ParseAddr(a.Address); err == nil {
			w.addresses[name][model.FamilyOf(addr)] = addr
		}
	}
	for _, text := range node.Spec.PodCIDRs {
		if p, err := netip.ParsePrefix(text); err == nil {
			w.addresses[gateway][model.FamilyOf(p.Addr())] = p.Addr().Next()
		}
	}
}

func (w *world) addService(t *testing.T, ns, name string) {
	t.Helper()
	var service corev1.Service
	if err := w.Get(t.Context(), &service, "-n", ns, "service", name); err != nil {
		t.Fatal(err)
	}
	w.services[name] = map[model.Family]netip.Addr{}
	for _, text := range service.Spec.ClusterIPs {
		if a, err := netip.ParseAddr(text); err == nil {
			w.services[name][model.FamilyOf(a)] = a
		}
	}
}

// target returns where a way leads to.
func (w *world) target(to string, f model.Family) netip.AddrPort {
	for mark, port := range map[string]uint16{":": clusterPort, "!": localPort, "#": hostPort} {
		if node, _, ok := strings.Cut(to, mark); ok {
			return netip.AddrPortFrom(w.addresses[node][f], port)
		}
	}
	return netip.AddrPortFrom(w.services[to][f], servicePort)
}

// wrong tries all ways at once, in both families, and returns the unexpected
// results.
func (w *world) wrong(j judgement) error {
	var all sync.WaitGroup
	var mu sync.Mutex
	var first error
	for _, way := range j.ways {
		for _, f := range model.Families() {
			all.Go(func() {
				if err := w.try(way, f); err != nil {
					mu.Lock()
					defer mu.Unlock()
					first = fmt.Errorf("%s: %s -> %s over IPv%s: %w\n%w", j.name, way.from, way.to, f, err, orNothing(first))
				}
			})
		}
	}
	all.Wait()
	return first
}
