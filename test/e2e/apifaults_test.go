package e2e

import (
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/felixlike/felixlike/internal/namespace"
	"github.com/felixlike/felixlike/test/eventually"
)

// relayAddress is where the agent of TestAPIServerFaults reaches the API server.
const relayAddress = "127.0.0.1:16444"

// apiFault is how long a fault of the API server lasts: longer than the agent's first attempts to reach it.
const apiFault = 5 * time.Second

// TestAPIServerFaults has a running agent whose API server is gone, slow, silent (stale), or forgets old changes.
// The programmed policies stay in force: allowed traffic passes, and no denied packet does. A change made meanwhile is
// programmed after the fault, and a slow server's change although it is slow.
func TestAPIServerFaults(t *testing.T) {
	t.Parallel()
	for _, backend := range places() {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			apiServerFaults(t, newBareNode(t, backend))
		})
	}
}

func apiServerFaults(t *testing.T, n *cniNode) {
	server, admin := n.serveAPI()
	relay := newRelay(t, n.ns)
	n.useAPI(relayAddress)
	n.start()
	n.untilAvailable()
	a, b, c := n.sandbox("one", "a"), n.sandbox("two", "b"), n.sandbox("three", "c")
	atA, atC := n.ok("ADD", a, nil), n.ok("ADD", c, nil)
	n.ok("ADD", b, nil)
	eventually.True(t, "the agent is ready", func() bool { ready, _ := n.ready(); return ready })
	g, arrivals := n.measure(a, b, c, atA, atC)
	eventually.True(t, "allowed traffic passes", func() bool { return g.passesSince(time.Time{}) })
	other := &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "other"},
		Spec:       networkingv1.NetworkPolicySpec{PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"pod": "b"}}},
	}
	other.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{}}
	for _, fault := range []struct {
		name      string
		begin     func()
		end       func()
		meanwhile bool
	}{
		{"gone", server.Stop, func() { n.must(n.ns.Do(server.Start)) }, false},
		{"slow", func() { relay.set(time.Second, false) }, func() { relay.set(0, false) }, true},
		{"silent", func() { relay.set(0, true) }, func() { relay.set(0, false) }, false},
		{"forgetful", server.Compact, func() {}, true},
	} {
		began := time.Now()
		fault.begin()
		if fault.name != "gone" {
			_, err := admin.NetworkingV1().NetworkPolicies("x").Create(t.Context(), other, metav1.CreateOptions{})
			n.must(err)
		}
		known := func() bool { return n.knowsPolicy("other") }
		if fault.meanwhile {
			eventually.True(t, fault.name+": the change is programmed", known)
		}
		time.Sleep(time.Until(began.Add(apiFault)))
		g.expectNoGap(t, began, time.Now())
		fault.end()
		if fault.name == "gone" {
			_, err := admin.NetworkingV1().NetworkPolicies("x").Create(t.Context(), other, metav1.CreateOptions{})
			n.must(err)
		}
		ended := time.Now()
		eventually.True(t, fault.name+": the change is programmed afterwards", known)
		n.must(admin.NetworkingV1().NetworkPolicies("x").Delete(t.Context(), "other", metav1.DeleteOptions{}))
		eventually.True(t, fault.name+": the next change is programmed", func() bool { return !known() })
		eventually.True(t, fault.name+": the agent is ready", func() bool { ready, _ := n.ready(); return ready })
		t.Logf("%s: programmed again %s after its end", fault.name, time.Since(ended).Round(10*time.Millisecond))
		g.expectNoGap(t, began, time.Now())
		if leaks := n.leaks(arrivals); len(leaks) > 0 {
			t.Errorf("%s: %d denied packets arrived, the first one %s", fault.name, len(leaks), leaks[0])
		}
	}
	if g.denied.Attempts() == 0 {
		t.Error("the denied client sent nothing")
	}
}

// knowsPolicy reports whether a policy is among those of the agent's status.
func (n *cniNode) knowsPolicy(name string) bool {
	n.Helper()
	status, err := n.control().Status(n.Context())
	n.must(err)
	for _, p := range status.Policies {
		if p.Name == name {
			return true
		}
	}
	return false
}

// relay leads connections to the API server. It can delay the server's answers, or hold them back.
type relay struct {
	mu     sync.Mutex
	free   *sync.Cond
	delay  time.Duration
	silent bool
	open   map[net.Conn]bool
}

// newRelay returns a relay in a namespace, until the test ends.
func newRelay(t *testing.T, ns *namespace.Namespace) *relay {
	t.Helper()
	r := &relay{open: map[net.Conn]bool{}}
	r.free = sync.NewCond(&r.mu)
	var listener net.Listener
	if err := ns.Do(func() (err error) { listener, err = net.Listen("tcp", relayAddress); return err }); err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			running.Go(func() { r.serve(ns, client) })
		}
	})
	t.Cleanup(func() {
		if err := listener.Close(); err != nil {
			t.Error(err)
		}
		r.set(0, false)
		r.mu.Lock()
		for c := range r.open {
			_ = c.Close()
		}
		r.mu.Unlock()
		running.Wait()
	})
	return r
}

func (r *relay) set(delay time.Duration, silent bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.delay, r.silent = delay, silent
	r.free.Broadcast()
}

// serve leads one connection.
func (r *relay) serve(ns *namespace.Namespace, client net.Conn) {
	var server net.Conn
	err := ns.Do(func() (err error) { server, err = net.Dial("tcp", apiAddress); return err })
	if err != nil {
		_ = client.Close()
		return
	}
	r.mu.Lock()
	r.open[client], r.open[server] = true, true
	r.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() { _, _ = io.Copy(server, client); _ = server.Close() })
	both.Go(func() { _ = r.answers(client, server); _ = client.Close() })
	both.Wait()
	r.mu.Lock()
	delete(r.open, client)
	delete(r.open, server)
	r.mu.Unlock()
}

// answers copies the server's answers.
func (r *relay) answers(client io.Writer, server io.Reader) error {
	buffer := make([]byte, 32<<10)
	for {
		n, err := server.Read(buffer)
		if n > 0 {
			r.mu.Lock()
			delay := r.delay
			for r.silent {
				r.free.Wait()
			}
			r.mu.Unlock()
			time.Sleep(delay)
			if _, wrote := client.Write(buffer[:n]); wrote != nil {
				return errors.Join(err, wrote)
			}
		}
		if err != nil {
			return err
		}
	}
}
