package e2e

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/hosts"
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
	condition := func(want string) {
		t.Helper()
		got := ""
		eventually.True(t, "condition "+want, func() bool {
			node, err := w.admin.CoreV1().Nodes().Get(t.Context(), n.name, metav1.GetOptions{})
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
	condition("True PoliciesConfirmed: in force: antrea-cluster:closed")
	cut(7443)
	eventually.True(t, "cut off", func() bool {
		first := reaches() // one alone may only be late
		return !first && !reaches()
	})
	watch := stopwatch.Start(t)
	eventually.True(t, "the policy is withdrawn, and the API server is reached", func() bool {
		s, err := n.control().Status(t.Context())
		return err == nil && s.Hosts != nil && s.Hosts.State == control.HostsWithdrawn && slices.Equal(s.Hosts.Withdrawn, []string{"antrea-cluster:cut"}) && reaches()
	})
	took := watch.Lap(t)
	t.Logf("withdrawn %s after it was in force; %d connections tried", took, w.denied.Load())
	if took.Net() > 30*time.Second {
		t.Errorf("withdrawn after %s", took)
	}
	condition("False PolicyWithdrawn: withdrawn: antrea-cluster:cut. In force: as last confirmed: antrea-cluster:closed. Why: with it, this node could not reach the API server")
	var notes []string
	eventually.True(t, "an Event names the policy", func() bool {
		list, err := w.admin.EventsV1().Events(metav1.NamespaceAll).List(t.Context(), metav1.ListOptions{})
		n.must(err)
		notes = nil
		for _, e := range list.Items {
			notes = append(notes, fmt.Sprintf("%s %s %s: %s", e.Reason, e.Regarding.Kind, e.Regarding.Name, e.Note))
		}
		return slices.ContainsFunc(notes, func(note string) bool {
			return strings.HasPrefix(note, "HostPolicyWithdrawn ClusterNetworkPolicy cut: ") && strings.Contains(note, "withdrawn from node "+n.name)
		})
	}, func() string { return strings.Join(notes, "\n") })
	cut(7444)
	w.confirmed("the changed policy")
	condition("True PoliciesConfirmed: in force: antrea-cluster:closed, antrea-cluster:cut")
}
