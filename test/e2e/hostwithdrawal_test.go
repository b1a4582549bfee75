package e2e

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/hosts"
	"github.com/felixlike/felixlike/internal/namespace"
	"github.com/felixlike/felixlike/test/eventually"
	"github.com/felixlike/felixlike/test/stopwatch"
)

// TestHostWithdrawal: an agent uses the API server by an address that the node translates to a port that is no failsafe port. A policy for nodes that closes
// this port is out of force within 30 s, and the confirmed one is in force all along. Status, the Node's condition and an Event name the policy. When
// it has changed, it is tried again.
func TestHostWithdrawal(t *testing.T) {
	t.Parallel()
	const api = "192.168.99.1:7443"
	w := newCycles(t, api)
	w.nodes = w.nodes[:1]
	n := w.nodes[0]
	n.must(n.ns.Do(func() error {
		script := "ip route add 10.96.0.1 via " + n.far + "; nft 'table ip services { chain output { type nat hook output priority -100; ip daddr 10.96.0.1 tcp dport 443 dnat to " + api + "; }; }'"
		out, err := exec.Command("sh", "-ec", script).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	}))
	n.useAPI("10.96.0.1:443")
	n.start()
	w.set("closed", "{priority: 5, appliedTo: [{nodeSelector: {}}], ingress: [{action: Drop, ports: [{port: "+cyclesClosed+"}]}]}")
	w.confirmed("the first policy")
	w.repeat(func() {
		w.denied.Add(1)
		if conn, err := dialIn(w.hub, "tcp", n.address+":"+cyclesClosed, 100*time.Millisecond); err == nil {
			conn.Close()
			w.Errorf("a connection passed that the confirmed policy denies")
		}
	})
	defer w.watching.Wait()
	defer close(w.done)

	reaches := func() bool {
		conn, err := dialIn(n.ns, "tcp", api, 200*time.Millisecond)
		if err == nil {
			conn.Close()
		}
		return err == nil
	}
	cut := func(port int) {
		w.set("cut", fmt.Sprintf("{priority: 1, appliedTo: [{nodeSelector: {}}], egress: [{action: Drop, ports: [{port: %d}]}]}", port))
	}
	n.condition(w, "True PoliciesConfirmed: in force: clusternetworkpolicy.crd.antrea.io/closed")
	cut(7443)
	eventually.True(t, "cut off", func() bool {
		first := reaches() // one alone may only be late
		return !first && !reaches()
	})
	n.withdraws(w, "cut", reaches)
	t.Logf("%d connections tried", w.denied.Load())
	n.condition(w, "False PolicyWithdrawn: withdrawn: clusternetworkpolicy.crd.antrea.io/cut. In force: as last confirmed: clusternetworkpolicy.crd.antrea.io/closed. Why: with it, this node could not reach the API server")
	cut(7444)
	w.confirmed("the changed policy")
	n.condition(w, "True PoliciesConfirmed: in force: clusternetworkpolicy.crd.antrea.io/closed, clusternetworkpolicy.crd.antrea.io/cut")
}

// TestHostWithdrawalKubelet: kubelet uses the API server by the address of a load balancer, on a port that is no failsafe port, and the agent by another one. A
// policy for nodes that closes this port is out of force within 30 s, before the node's Lease expires. When it has changed, it is tried again.
func TestHostWithdrawalKubelet(t *testing.T) {
	t.Parallel()
	const balancer = "192.168.99.2:7443"
	w := newCycles(t, cyclesAPI)
	w.nodes = w.nodes[:1]
	n := w.nodes[0]
	for ns, script := range map[*namespace.Namespace]string{
		n.ns:  "ip route add 192.168.99.2 via " + n.far,
		w.hub: "nft 'table ip balancer { chain prerouting { type nat hook prerouting priority -100; ip daddr 192.168.99.2 tcp dport 7443 dnat to " + cyclesAPI + "; }; }'",
	} {
		n.must(ns.Do(func() error {
			out, err := exec.Command("sh", "-ec", script).CombinedOutput()
			if err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}
			return nil
		}))
	}
	renewals := n.kubelet(w, balancer)
	n.start()
	w.set("closed", "{priority: 5, appliedTo: [{nodeSelector: {}}], ingress: [{action: Drop, ports: [{port: "+cyclesClosed+"}]}]}")
	before := renewals.Load()
	w.confirmed("the first policy")
	if renewals.Load() == before {
		t.Error("confirmed before kubelet renewed its Lease")
	}
	reaches := func() bool {
		conn, err := dialIn(n.ns, "tcp", balancer, 200*time.Millisecond)
		if err == nil {
			conn.Close()
		}
		return err == nil
	}
	cut := func(port int) {
		w.set("cut", fmt.Sprintf("{priority: 1, appliedTo: [{nodeSelector: {}}], egress: [{action: Drop, ports: [{port: %d}]}]}", port))
	}
	cut(7443)
	eventually.True(t, "cut off", func() bool {
		first := reaches()
		return !first && !reaches()
	})
	n.withdraws(w, "cut", reaches)
	last := renewals.Load()
	eventually.True(t, "kubelet renews its Lease again", func() bool { return renewals.Load() > last })
	n.condition(w, "False PolicyWithdrawn: withdrawn: clusternetworkpolicy.crd.antrea.io/cut. In force: as last confirmed: clusternetworkpolicy.crd.antrea.io/closed. Why: with it, kubelet has not renewed the Lease kube-node-lease/"+n.name)
	cut(7444)
	w.confirmed("the changed policy")
}

// kubelet renews the Lease of a node as kubelet does, but over a new connection to an address each time, and each second. It returns how often.
func (n *cycleNode) kubelet(w *cycles, api string) *atomic.Int32 {
	c := w.server.Config("kubelet")
	c.Dial = func(_ context.Context, network, _ string) (net.Conn, error) {
		return dialIn(n.ns, network, api, time.Second)
	}
	c.WrapTransport = func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			r = r.Clone(r.Context())
			r.Close = true
			return next.RoundTrip(r)
		})
	}
	client, err := kubernetes.NewForConfig(c)
	n.must(err)
	seconds, now := int32(40), metav1.NowMicro()
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: n.name, Namespace: hosts.LeaseNamespace},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &n.name, LeaseDurationSeconds: &seconds, RenewTime: &now},
	}
	leases := client.CoordinationV1().Leases(hosts.LeaseNamespace)
	lease, err = leases.Create(w.Context(), lease, metav1.CreateOptions{})
	n.must(err)
	renewals := &atomic.Int32{}
	ctx, stop := context.WithCancel(w.Context())
	var running sync.WaitGroup
	running.Go(func() {
		for ctx.Err() == nil {
			now := metav1.NowMicro()
			lease.Spec.RenewTime = &now
			if next, err := leases.Update(ctx, lease, metav1.UpdateOptions{}); err == nil {
				lease = next
				renewals.Add(1)
			}
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
	})
	w.Cleanup(func() {
		stop()
		running.Wait()
	})
	return renewals
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// withdraws waits until a policy that is in force is withdrawn, is named by status and an Event, and a way works that it closes. That takes 30 s, of which
// the agent only waits for 25 s: no load of the machine counts in these.
func (n *cycleNode) withdraws(w *cycles, policy string, works func() bool) {
	w.Helper()
	watch := stopwatch.Start(w)
	var work *stopwatch.Watch
	began := time.Now()
	eventually.True(w.T, "the policy is withdrawn", func() bool {
		if work == nil && time.Since(began) > hosts.DefaultWithin {
			work = stopwatch.Start(w)
		}
		s, err := n.control().Status(w.Context())
		return err == nil && s.Hosts != nil && s.Hosts.State == control.HostsWithdrawn && slices.Equal(s.Hosts.Withdrawn, []string{"clusternetworkpolicy.crd.antrea.io/" + policy}) && works()
	})
	took := watch.Lap(w)
	counts := took.Took
	if work != nil {
		counts = hosts.DefaultWithin + work.Lap(w).Net()
	}
	w.Logf("withdrawn %s after it was in force, of which %s count", took, counts)
	if counts > 30*time.Second || took.Took > time.Minute {
		w.Errorf("withdrawn after %s, of which %s count", took, counts)
	}
	var notes []string
	eventually.True(w.T, "an Event names the policy", func() bool {
		list, err := w.admin.EventsV1().Events(metav1.NamespaceAll).List(w.Context(), metav1.ListOptions{})
		n.must(err)
		notes = nil
		for _, e := range list.Items {
			notes = append(notes, fmt.Sprintf("%s %s %s: %s", e.Reason, e.Regarding.Kind, e.Regarding.Name, e.Note))
		}
		return slices.ContainsFunc(notes, func(note string) bool {
			return strings.HasPrefix(note, "HostPolicyWithdrawn ClusterNetworkPolicy "+policy+": ") && strings.Contains(note, "withdrawn from node "+n.name)
		})
	}, func() string { return strings.Join(notes, "\n") })
}

// condition waits until the condition of a node begins with a text.
func (n *cycleNode) condition(w *cycles, want string) {
	w.Helper()
	got := ""
	eventually.True(w.T, "condition "+want, func() bool {
		node, err := w.admin.CoreV1().Nodes().Get(w.Context(), n.name, metav1.GetOptions{})
		n.must(err)
		got = ""
		for _, c := range node.Status.Conditions {
			if c.Type == hosts.ConditionType {
				got = fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message)
			}
		}
		return strings.HasPrefix(got, want)
	}, func() string { return got })
}
