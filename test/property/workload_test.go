package property

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/felixlike/policy/oracle"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/bench/workload"
)

// reference returns the cluster of the reference workload, and its profile.
func reference(t *testing.T) (*oracle.Cluster, workload.Profile) {
	t.Helper()
	profile, err := workload.FindProfile(workload.W1)
	if err != nil {
		t.Fatal(err)
	}
	c := &oracle.Cluster{}
	for _, e := range workload.New(profile).Events() {
		switch e := e.(type) {
		case datastore.NodeSet:
			c.Nodes = append(c.Nodes, e.Node)
		case datastore.NamespaceSet:
			c.Namespaces = append(c.Namespaces, e.Namespace)
		case datastore.PodSet:
			c.Pods = append(c.Pods, e.Pod)
		case datastore.NetworkPolicySet:
			c.Policies = append(c.Policies, e.Policy)
		}
	}
	return c, profile
}

// sampled returns some of the node's pods, and pods of other nodes that each of the
// groups of their rules has.
func sampled(c *oracle.Cluster) (local, remote []*corev1.Pod) {
	const locals, groupMembers = 6, 500
	for _, p := range c.Pods {
		switch {
		case p.Spec.NodeName == workload.Node:
			local = append(local, p)
		case len(remote) < groupMembers:
			remote = append(remote, p)
		}
	}
	var some []*corev1.Pod
	for i := range locals {
		some = append(some, local[i*len(local)/locals])
	}
	return some, remote
}

// probesOf are packets between the pods, in both directions, to ports of rules and to
// others.
func probesOf(local, remote []*corev1.Pod, rules int) []oracle.Packet {
	var all []oracle.Packet
	add := func(from, to *corev1.Pod, protocol model.Protocol, port int) {
		all = append(all, oracle.Packet{
			Source: netip.MustParseAddr(from.Status.PodIP), Destination: netip.MustParseAddr(to.Status.PodIP),
			Protocol: protocol, Port: uint16(port),
		})
	}
	for i, l := range local {
		for j, r := range remote {
			// The rules of a port are about each tenth group.
			add(l, r, model.TCP, 8000+j%rules)
			add(r, l, model.TCP, 8000+j%rules)
			if j%10 == i%10 {
				add(l, r, model.TCP, 8000+(j+1)%rules)
				add(r, l, model.UDP, 8000+j%rules)
			}
		}
		for _, other := range local {
			add(l, other, model.TCP, 8000)
		}
	}
	return all
}

// TestReferenceWorkload has each backend judge the same packets with the reference
// workload in force, a thousand pods and a thousand policies: the verdicts of all of
// them are those of the oracle.
func TestReferenceWorkload(t *testing.T) {
	cluster, profile := reference(t)
	local, remote := sampled(cluster)
	nodes := underlay{}
	for _, n := range cluster.Nodes {
		nodes[n.Name] = netip.MustParseAddr(n.Status.Addresses[0].Address)
	}
	var names []string
	for _, p := range local {
		names = append(names, p.Name)
	}
	packets := probesOf(local, remote, profile.RulesPerPolicy)
	paths := map[oracle.Packet][]hop{}
	for _, backend := range backends() {
		t.Run(backend, func(t *testing.T) {
			lockThread(t)
			needTools(t, backend)
			b := &testbed{sites: map[string]site{}, cluster: cluster}
			if usesBridge(backend) {
				b.sites[workload.Node] = newBridge(t, backend, workload.Node, nodes, names)
			} else {
				b.sites[workload.Node] = newRouter(t, backend, workload.Node)
			}
			d := b.sites[workload.Node].plane()
			d.become(nil, cluster)
			began := time.Now()
			done, err := d.apply()
			if err != nil || len(done.Refused) > 0 {
				t.Fatalf("%v, refused %+v", err, done.Refused)
			}
			loaded := time.Since(began)
			began = time.Now()
			verdicts := map[bool]int{}
			for batch := range slices.Chunk(packets, 200) {
				if err := b.compare(batch, paths, verdicts); err != nil {
					t.Fatal(err)
				}
			}
			t.Logf("%d writes in %s; %d packets through, %d blocked, all as the oracle says, in %s",
				done.Writes, loaded.Round(time.Millisecond), verdicts[true], verdicts[false], time.Since(began).Round(time.Millisecond))
			if verdicts[true] < 100 || verdicts[false] < 100 {
				t.Errorf("one-sided: %v", verdicts)
			}
		})
	}
}

// compare opens connections, and returns an error if one differs from the oracle.
// It keeps the paths of packets: with many pods the oracle takes its time.
func (b *testbed) compare(packets []oracle.Packet, paths map[oracle.Packet][]hop, verdicts map[bool]int) error {
	var probes []probe
	flows := map[uint16]flow{}
	for _, p := range packets {
		hops, known := paths[p]
		if !known {
			hops = b.path(p)
			paths[p] = hops
		}
		for _, h := range hops {
			f := flow{p, b.newID()}
			flows[f.id] = f
			probes = append(probes, probe{id: f.id, in: h.in, out: h.out, payload: f.opening(), want: h.allowed})
		}
	}
	through, err := forward(b.sites[workload.Node], probes, b.newID)
	if err != nil {
		return err
	}
	for _, p := range probes {
		verdicts[through[p.id]]++
		if through[p.id] != p.want {
			return fmt.Errorf("%s: through %v; the oracle says %+v", flows[p.id], through[p.id], b.cluster.Evaluate(flows[p.id].Packet))
		}
	}
	return nil
}
