package cluster

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/hosts"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/lab/probe"
)

// underDenyAll is longer than a node may miss its Lease until it is not ready.
const underDenyAll = 50 * time.Second

// testNodePolicies denies all packets to and from the nodes, before DNAT too. The nodes stay ready, kubelet answers the API server, pods of two nodes and
// new ones reach each other, and ssh's port is open. Nothing else of the nodes is. A condition of each Node says that the policies are in force.
func testNodePolicies(t *testing.T, s *site) {
	const ns = "hosts"
	s.inNamespace(t, ns)
	nodes := s.Nodes()
	pods := s.start(t, ns, sleeper(ns, "a", nodes[0])+sleeper(ns, "b", nodes[1]))
	pods["a"].serve(t, 80)
	addresses := strings.Fields(s.kubectl(t, "get", "node", nodes[0], "-o", "jsonpath={.status.addresses[?(@.type=='InternalIP')].address}"))
	connects := func(from, to string, port int) error {
		_, err := s.Exec(t.Context(), from, fmt.Sprintf("timeout 2 bash -c '</dev/tcp/%s/%d'", to, port))
		return err
	}
	const kubelet, proxy = 10250, 10256 // a failsafe port, and none
	for _, a := range addresses {
		for _, port := range []int{kubelet, proxy} {
			if err := connects(nodes[1], a, port); err != nil {
				t.Fatalf("without a policy: %s port %d: %v", a, port, err)
			}
		}
	}
	policy := func(name, annotations, rules string) string {
		return fmt.Sprintf(`---
apiVersion: crd.antrea.io/v1beta1
kind: ClusterNetworkPolicy
metadata: {name: %s, annotations: {%s}}
spec: {priority: 1, appliedTo: [{nodeSelector: {}}], %s}
`, name, annotations, rules)
	}
	s.apply(t, policy("deny-all", "", "ingress: [{action: Drop}], egress: [{action: Drop}]")+policy("before-dnat", model.PreDNATAnnotation+`: "true"`, "ingress: [{action: Drop}]"))
	removed := false
	remove := func() {
		if !removed {
			removed = true
			s.kubectl(t, "delete", "clusternetworkpolicies.crd.antrea.io", "deny-all", "before-dnat")
		}
	}
	defer remove()
	for _, node := range nodes {
		until(t, time.Minute, func() error {
			status, err := s.agent(t, node).Status(t.Context())
			switch {
			case err != nil:
				return err
			case status.Hosts == nil || status.Hosts.State != control.HostsConfirmed || len(status.Hosts.Policies) != 2:
				return fmt.Errorf("%s: %+v", node, status.Hosts)
			}
			return nil
		})
	}
	// The kubelet writes the conditions that it misses, and keeps ours.
	condition := func(node string, kind corev1.NodeConditionType) string {
		return s.kubectl(t, "get", "node", node, "-o", fmt.Sprintf("jsonpath={range .status.conditions[?(@.type=='%s')]}{.status} {.reason}: {.message}{end}", kind))
	}
	inForce := func() (err error) {
		for _, node := range nodes {
			if got := condition(node, hosts.ConditionType); got != "True PoliciesConfirmed: in force: clusternetworkpolicy.crd.antrea.io/before-dnat, clusternetworkpolicy.crd.antrea.io/deny-all" {
				err = errors.Join(err, fmt.Errorf("%s: condition %q", node, got))
			}
		}
		return err
	}
	until(t, time.Minute, inForce)
	s.kubectl(t, "patch", "node", nodes[0], "--subresource=status", "-p", fmt.Sprintf(`{"status":{"conditions":[{"type":%q,"$patch":"delete"}]}}`, corev1.NodePIDPressure))
	until(t, time.Minute, func() error {
		if got := condition(nodes[0], corev1.NodePIDPressure); !strings.HasPrefix(got, "False") {
			return fmt.Errorf("condition %q", got)
		}
		return inForce()
	})
	for began := time.Now(); time.Since(began) < underDenyAll; {
		if out := s.kubectl(t, "get", "nodes", "--no-headers"); strings.Contains(out, "NotReady") {
			t.Fatalf("after %s a node is not ready:\n%s", since(began), out)
		}
		for _, a := range addresses {
			if err := connects(nodes[1], a, proxy); err == nil {
				t.Fatalf("%s reaches port %d of %s", nodes[1], proxy, a)
			}
			// Egress of n2 to kubelet's port is a failsafe port, too.
			if err := connects(nodes[1], a, kubelet); err != nil {
				t.Fatalf("%s does not reach kubelet of %s: %v", nodes[1], a, err)
			}
		}
		// Nobody listens at ssh's port here, so the node itself answers. A packet that policy drops gets no answer.
		for port, want := range map[uint16]string{22: probe.Refused, proxy: probe.NoAnswer} {
			for _, a := range addresses {
				at := netip.AddrPortFrom(netip.MustParseAddr(a), port)
				one := []probe.Flow{{From: pods["a"].station, Source: pods["a"].address(model.FamilyOf(at.Addr())), Target: at, Protocol: model.TCP}}
				if got := probe.Run(t.Context(), one, probe.Options{Timeout: 2 * time.Second})[0].Reason; got != want {
					t.Fatalf("a pod to %s of its node: %s, want %s", at, got, want)
				}
			}
		}
		expect(t, true, "b to a", pods["b"].flows(pods["a"], 80))
		s.kubectl(t, "-n", system, "logs", daemonSet, "--tail=1")
	}
	s.start(t, ns, sleeper(ns, "c", nodes[0]))
	remove()
	until(t, time.Minute, func() error {
		var errs []error
		for _, a := range addresses {
			errs = append(errs, connects(nodes[1], a, proxy))
		}
		for _, node := range nodes {
			if got := condition(node, hosts.ConditionType); got != "" {
				errs = append(errs, fmt.Errorf("%s: without a policy: condition %q", node, got))
			}
		}
		return errors.Join(errs...)
	})
}
