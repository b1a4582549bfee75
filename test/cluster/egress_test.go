package cluster

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/cluster/kubelab"
)

// leaving are Egresses for pods of both nodes. The addresses of the last two come from a pool each, of our own kind and of Antrea's.
const leaving = `
{apiVersion: felixlike.io/v1alpha1, kind: Egress, metadata: {name: leaving-4}, spec: {egressIP: 172.30.1.100,
  nodeSelector: {matchLabels: {leaving: "yes"}}, appliedTo: {podSelector: {matchLabels: {app: leaving}}}}}
---
{apiVersion: felixlike.io/v1alpha1, kind: ExternalIPPool, metadata: {name: leaving}, spec: {ipRanges: [{start: "fd00:30:1::100", end: "fd00:30:1::100"}],
  nodeSelector: {matchLabels: {leaving: "yes"}}}}
---
{apiVersion: crd.antrea.io/v1beta1, kind: ExternalIPPool, metadata: {name: leaving}, spec: {ipRanges: [{start: 172.30.1.101, end: 172.30.1.101}],
  nodeSelector: {matchLabels: {leaving: "yes"}}}}
---
{apiVersion: felixlike.io/v1alpha1, kind: Egress, metadata: {name: leaving-6}, spec: {externalIPPool: leaving, appliedTo: {podSelector: {matchLabels: {app: leaving}}}}}
---
{apiVersion: crd.antrea.io/v1beta1, kind: Egress, metadata: {name: leaving-antrea}, spec: {externalIPPool: leaving, appliedTo: {podSelector: {matchLabels: {pod: antrea}}}}}
`

// next wants an address of the pool too.
const next = `{apiVersion: felixlike.io/v1alpha1, kind: Egress, metadata: {name: next}, spec: {externalIPPool: leaving, appliedTo: {podSelector: {matchLabels: {app: leaving}}}}}`

// testEgress elects n2 for the addresses of three Egresses. Their status names it, and a host outside sees the addresses, until the
// Egresses go. The audit of the agents' rights needs this test.
func testEgress(t *testing.T, s *site) {
	const ns, port = "leaving", 7000
	s.inNamespace(t, ns)
	nodes := s.Nodes()
	s.labelNode(t, nodes[1], "leaving", "yes")
	pods := s.start(t, ns, sleeper(ns, "here", nodes[0], "app: leaving")+sleeper(ns, "there", nodes[1], "app: leaving")+sleeper(ns, "antrea", nodes[0]))
	for _, a := range outside() {
		serveNameAt(t, open(t, kubelab.ControlPlane), netip.AddrPortFrom(a, port), "out")
	}
	seen := func(name, address string) error {
		want := netip.MustParseAddr(address)
		to := netip.AddrPortFrom(outside()[model.FamilyOf(want)], port)
		if _, got, err := visit(pods[name].station.Namespace(), to, time.Second); err != nil || got != want {
			return fmt.Errorf("%s sees pod %s as %s (%v), want %s", to, name, got, err, want)
		}
		return nil
	}
	before := s.snapshots(t)
	s.apply(t, leaving)
	began := time.Now()
	for name, address := range map[string]string{"leaving-4": "172.30.1.100", "leaving-6": "fd00:30:1::100"} {
		until(t, time.Minute, func() error { return s.assigned(t, name, nodes[1], address) })
		if found := s.exec(t, nodes[1], "ip -o address show"); !strings.Contains(found, address+"/") {
			t.Errorf("%s is not on an interface of %s:\n%s", address, nodes[1], found)
		}
		for _, pod := range []string{"here", "there"} {
			until(t, time.Minute, func() error { return seen(pod, address) })
		}
	}
	until(t, time.Minute, func() error { return seen("antrea", "172.30.1.101") })
	want := []string{"egress-172.30.1.100 " + nodes[1], "egress-172.30.1.101 " + nodes[1], "egress-fd00-0030-0001-0000-0000-0000-0000-0100 " + nodes[1]}
	if got := s.addressLeases(t); !slices.Equal(got, want) {
		t.Errorf("Leases of addresses: %v, want %v", got, want)
	}
	t.Logf("the pods leave with their addresses %s after kubectl apply", since(began))

	s.untilUsage(t, "leaving", 1, 1)

	// The next Egress gets the address of the one that goes.
	s.apply(t, next)
	until(t, time.Minute, func() error {
		if o := s.egressStatus(t, "next"); len(o.Conditions) != 1 || !strings.Contains(o.Conditions[0].Message, "no address of ExternalIPPool leaving is free") {
			return fmt.Errorf("the status of Egress next is %+v", o)
		}
		return nil
	})
	s.kubectl(t, "delete", "egresses.felixlike.io", "leaving-6")
	until(t, time.Minute, func() error { return s.assigned(t, "next", nodes[1], "fd00:30:1::100") })

	s.kubectl(t, "delete", "egresses.felixlike.io,egresses.crd.antrea.io,externalippools.felixlike.io,externalippools.crd.antrea.io", "--all")
	until(t, time.Minute, func() error {
		if left := s.addressLeases(t); len(left) > 0 {
			return fmt.Errorf("Leases are left: %v", left)
		}
		return seen("here", "172.30.1.11")
	})
	s.same(t, time.Minute, before, s.snapshots)
}

// labelNode gives a node a label until the test ends.
func (s *site) labelNode(t *testing.T, node, key, value string) {
	t.Helper()
	s.kubectl(t, "label", "node", node, key+"="+value)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if _, err := s.Kubectl(ctx, "label", "node", node, key+"-"); err != nil {
			t.Error(err)
		}
	})
}

// untilUsage waits until the status of a pool says how many addresses it has, and how many are used.
func (s *site) untilUsage(t *testing.T, pool string, total, used int64) {
	t.Helper()
	until(t, time.Minute, func() error {
		var o struct {
			Status struct{ Usage struct{ Total, Used int64 } }
		}
		if err := s.Get(t.Context(), &o, "externalippools.felixlike.io", pool); err != nil {
			return err
		}
		if got := o.Status.Usage; got.Total != total || got.Used != used {
			return fmt.Errorf("the status of ExternalIPPool %s is %+v, want %d and %d", pool, got, total, used)
		}
		return nil
	})
}

// egressStatus is the status of an Egress.
type egressStatus struct {
	EgressNode, EgressIP string
	Conditions           []metav1.Condition
}

func (s *site) egressStatus(t *testing.T, name string) egressStatus {
	t.Helper()
	var o struct{ Status egressStatus }
	if err := s.Get(t.Context(), &o, "egresses.felixlike.io", name); err != nil {
		t.Fatal(err)
	}
	return o.Status
}

// assigned returns an error unless the status of an Egress says that a node has the address.
func (s *site) assigned(t *testing.T, name, node, address string) error {
	t.Helper()
	o := s.egressStatus(t, name)
	if c := o.Conditions; o.EgressNode != node || o.EgressIP != address || len(c) != 1 || c[0].Type != "Assigned" || c[0].Status != metav1.ConditionTrue {
		return fmt.Errorf("the status of Egress %s is %+v, want %s at %s", name, o, address, node)
	}
	return nil
}

// addressLeases returns the Leases of addresses of Egresses, each with its holder.
func (s *site) addressLeases(t *testing.T) []string {
	t.Helper()
	var list coordinationv1.LeaseList
	if err := s.Get(t.Context(), &list, "leases", "-n", system, "-l", "felixlike.io/egress=address"); err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, l := range list.Items {
		all = append(all, l.Name+" "+*l.Spec.HolderIdentity)
	}
	slices.Sort(all)
	return all
}
