package e2e

import (
	"context"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/felixlike/felixlike/felixlike/health"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/cnitest"
	"github.com/felixlike/felixlike/test/eventually"
	"github.com/felixlike/felixlike/test/kubernetestest"
	labprobe "github.com/felixlike/felixlike/test/lab/probe"
	"github.com/felixlike/felixlike/test/lab/traffic"
)

// apiAddress is the API server's, in the namespace of the node.
const apiAddress = "127.0.0.1:16443"

// TestAgentStartsWithoutAPIServer restarts an agent while the API server cannot be reached. What was
// programmed stays in force: the allowed stream goes on, allowed connections open, no denied packet passes.
// The agent is not ready and says why. When the server is back, it is ready, and programs what it missed.
func TestAgentStartsWithoutAPIServer(t *testing.T) {
	t.Parallel()
	for _, backend := range backends() {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			n := newBareNode(t, backend)
			server, admin := n.serveAPI()
			n.start()
			n.untilAvailable()
			a, b, c := n.sandbox("one", "a"), n.sandbox("two", "b"), n.sandbox("three", "c")
			atA, atC := n.ok("ADD", a, nil), n.ok("ADD", c, nil)
			n.ok("ADD", b, nil)
			eventually.True(t, "the agent is ready", func() bool { ready, _ := n.ready(); return ready })
			g, arrivals := n.measure(a, b, c, atA, atC)
			eventually.True(t, "allowed traffic passes", func() bool { return g.passesSince(time.Time{}) })

			server.Stop()
			n.stop(syscall.SIGKILL)
			stopped := time.Now()
			expectWell := func() {
				t.Helper()
				g.expectNoGap(t, stopped, time.Now())
				if leaks := n.leaks(arrivals); len(leaks) > 0 {
					t.Errorf("%d denied packets arrived, the first one %s", len(leaks), leaks[0])
				}
			}
			n.start()
			eventually.True(t, "the agent says that it is not ready", func() bool { return n.notReady() })
			// Longer than the agent's first attempts to reach the server, and than its stages wait.
			restarted := time.Now()
			const watched = 10 * time.Second
			for time.Since(restarted) < watched {
				if !n.notReady() {
					t.Fatal("the agent is ready without an API server")
				}
				time.Sleep(50 * time.Millisecond)
			}
			expectWell()

			n.must(n.ns.Do(server.Start))
			eventually.True(t, "the agent is ready", func() bool { ready, _ := n.ready(); return ready })
			eventually.True(t, "allowed traffic passes", func() bool { return g.passesSince(time.Now().Add(-time.Second)) })
			expectWell()
			if g.denied.Attempts() == 0 {
				t.Error("the denied client sent nothing")
			}
			n.must(admin.NetworkingV1().NetworkPolicies("x").Delete(t.Context(), "only-from-b", metav1.DeleteOptions{}))
			eventually.True(t, "packets arrive that policy no longer denies", func() bool { return len(n.leaks(arrivals)) > 0 })
		})
	}
}

// serveAPI starts an API server in the node's namespace, with the objects of the node and its pods, and names
// it as the agent's datastore.
func (n *cniNode) serveAPI() (*kubernetestest.Server, *kubernetes.Clientset) {
	n.Helper()
	server, admin, err := kubernetestest.ListenIn(n.ns, apiAddress)
	n.must(err)
	n.Cleanup(server.Stop)
	n.useAPI(apiAddress)
	ctx, create := n.Context(), metav1.CreateOptions{}
	_, err = admin.CoreV1().Nodes().Create(ctx, &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n1"},
		Spec:       corev1.NodeSpec{PodCIDR: "10.77.0.0/24", PodCIDRs: []string{"10.77.0.0/24", "fd77:1::/64"}},
		Status:     corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.168.77.1"}, {Type: corev1.NodeInternalIP, Address: "fd77::1"}}},
	}, create)
	n.must(err)
	_, err = admin.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "x"}}, create)
	n.must(err)
	for _, name := range []string{"a", "b", "c"} {
		_, err = admin.CoreV1().Pods("x").Create(ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: name, UID: types.UID("uid-" + name), Labels: map[string]string{"pod": name}},
			Spec:       corev1.PodSpec{NodeName: "n1"},
		}, create)
		n.must(err)
	}
	_, err = admin.NetworkingV1().NetworkPolicies("x").Create(ctx, &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "only-from-b"},
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"pod": "a"}},
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
			Ingress: []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{
				{PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"pod": "b"}}},
			}}},
		},
	}, create)
	n.must(err)
	return server, admin
}

// useAPI makes the API server at an address the agent's datastore.
func (n *cniNode) useAPI(address string) {
	n.Helper()
	file := filepath.Join(n.dir, "kubeconfig")
	n.must(os.WriteFile(file, kubernetestest.Kubeconfig("agent", address), 0o600))
	n.source = []string{"--datastore", "kubernetes", "--kubeconfig", file}
}

// measured is traffic to one pod.
type measured struct {
	streams []*traffic.Stream
	allowed []*traffic.Meter
	denied  *traffic.Meter
}

// measure starts traffic from an allowed and from a denied pod, over both families. It counts
// the packets of the denied one at the server.
func (n *cniNode) measure(server, allowed, denied cnitest.Sandbox, atServer, atDenied cnitest.Reply) (*measured, *traffic.Arrivals) {
	n.Helper()
	station := labprobe.NewStation(server.NS)
	n.Cleanup(func() { station.Close() })
	g := traffic.NewGauge(n.Context())
	n.Cleanup(g.Stop)
	arrivals, err := traffic.Watch(server.NS, "eth0", addressesOf(atDenied)...)
	n.must(err)
	n.Cleanup(func() { n.must(arrivals.Close()) })
	m := &measured{}
	for _, address := range addressesOf(atServer) {
		at := netip.AddrPortFrom(address, 80)
		n.must(station.Serve(model.TCP, at))
		n.must(station.Serve(model.UDP, at))
		route := traffic.Route{Name: "allowed to " + address.String(), From: allowed.NS, To: at}
		stream, err := g.Stream(route, patience)
		n.must(err)
		pings, err := g.Pings(route)
		n.must(err)
		m.streams = append(m.streams, stream)
		m.allowed = append(m.allowed, pings, g.Openings(route))
		route.Name, route.From = "denied to "+address.String(), denied.NS
		m.denied = g.NewSockets(route)
		g.Knocks(route)
	}
	return m, arrivals
}

func addressesOf(r cnitest.Reply) []netip.Addr {
	var all []netip.Addr
	for _, ip := range r.IPs {
		address, _ := netip.AddrFromSlice(ip.Address.IP)
		all = append(all, address.Unmap())
	}
	return all
}

func (m *measured) passesSince(at time.Time) bool {
	for _, meter := range m.allowed {
		if !meter.Last().After(at) {
			return false
		}
	}
	return true
}

// mostGap is the longest time without allowed traffic: a busy machine may stop it for a second.
const mostGap = 3 * time.Second

// expectNoGap: allowed packets and new connections passed all the time, and each stream lives.
func (m *measured) expectNoGap(t *testing.T, from, to time.Time) {
	t.Helper()
	for i, meter := range m.allowed {
		if gap := meter.Longest(from, to).Length(); gap > mostGap {
			t.Errorf("allowed traffic %d was missing for %s", i, gap)
		}
	}
	for _, s := range m.streams {
		if err := s.Err(); err != nil {
			t.Errorf("a stream has ended: %v", err)
		}
	}
}

// notReady reports whether the agent says that it is not ready because it lacks objects.
func (n *cniNode) notReady() bool {
	n.Helper()
	ctx, cancel := context.WithTimeout(n.Context(), patience)
	defer cancel()
	ready, why, err := n.control().Probe(ctx, health.ReadyPath)
	return err == nil && !ready && strings.Contains(why, "first listing is not complete")
}

// leaks returns the packets of the denied pod that have arrived.
func (n *cniNode) leaks(arrivals *traffic.Arrivals) []traffic.Arrival {
	n.Helper()
	all, err := arrivals.Since(time.Time{})
	n.must(err)
	return all
}
