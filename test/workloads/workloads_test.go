package workloads_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/felixlike/felixlike/felixlike/policy"
	"github.com/felixlike/felixlike/felixlike/policy/oracle"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/policytest"
	"github.com/felixlike/felixlike/test/workloads"
)

// TestMain measures instead of testing in the children that Run makes.
func TestMain(m *testing.M) {
	isChild, err := workloads.Child(os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if !isChild {
		os.Exit(m.Run())
	}
}

// each runs a test for every workload and placement: in full size, or a tenth
// of it in short mode.
func each(t *testing.T, test func(*testing.T, workloads.Workload, workloads.Placement)) {
	for _, w := range workloads.All() {
		if testing.Short() {
			w = w.Scaled(w.Units / 10)
		}
		for _, p := range workloads.Placements() {
			t.Run(w.Name+"/"+string(p), func(t *testing.T) { test(t, w, p) })
		}
	}
}

// TestModelAgreesWithOracle judges packets between pods of every workload by
// the model of the local node and by the oracle.
func TestModelAgreesWithOracle(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	each(t, func(t *testing.T, w workloads.Workload, p workloads.Placement) {
		c := w.Objects(p)
		e, m := policy.New(workloads.LocalNode), policytest.NewModel()
		if err := workloads.Load(e, c); err != nil {
			t.Fatal(err)
		}
		if err := m.Apply(e.Flush()); err != nil {
			t.Fatal(err)
		}
		s := newSampler(c)
		models := map[string]*policytest.Model{workloads.LocalNode: m}
		judged, allowed := 0, 0
		for range packets(c) {
			packet, ends := s.packet(t)
			v := ends.Evaluate(packet)
			egress, ingress := policytest.Judge(models, ends, packet)
			for i, local := range []bool{s.local(packet.Source), s.local(packet.Destination)} {
				got, want := []bool{egress, ingress}[i], []bool{v.Egress.Allowed, v.Ingress.Allowed}[i]
				if !local {
					continue
				}
				judged++
				if want && v.Ingress.Why == oracle.RuleAllows {
					allowed++
				}
				if got != want {
					t.Fatalf("%s: model egress %v ingress %v, oracle %+v", packet, egress, ingress, v)
				}
			}
		}
		t.Logf("%d ends judged, %d of them allowed by a rule", judged, allowed)
		if allowed*50 < judged || (judged-allowed)*50 < judged {
			t.Error("the sample says little")
		}
	})
}

// packets returns the number of packets to judge: 2,000, or fewer if the oracle
// has to go through thousands of policies for each.
func packets(c *oracle.Cluster) int {
	budget := 2_000_000
	if testing.Short() {
		budget /= 10
	}
	return min(2000, budget*len(c.Namespaces)/len(c.Policies))
}

// sampler draws packets with at least one local end: a third between
// any pods, a third between pods of the same labels, a third between
// neighbours in the order of generation, which are often peers.
type sampler struct {
	random  *rand.Rand
	cluster *oracle.Cluster
	at      map[netip.Addr]*corev1.Pod
	locals  []int
	alike   map[string][]int
}

func newSampler(c *oracle.Cluster) *sampler {
	s := &sampler{random: rand.New(rand.NewPCG(1, 1)), cluster: c, at: map[netip.Addr]*corev1.Pod{}, alike: map[string][]int{}}
	for i, p := range c.Pods {
		s.at[netip.MustParseAddr(p.Status.PodIP)] = p
		s.alike[fmt.Sprint(p.Labels)] = append(s.alike[fmt.Sprint(p.Labels)], i)
		if p.Spec.NodeName == workloads.LocalNode {
			s.locals = append(s.locals, i)
		}
	}
	return s
}

// packet draws a packet, with the cluster for it: the oracle searches the owner of an
// address pod by pod, so the cluster has the two ends only.
func (s *sampler) packet(t *testing.T) (oracle.Packet, *oracle.Cluster) {
	local := s.locals[s.random.IntN(len(s.locals))]
	peer := s.random.IntN(len(s.cluster.Pods))
	switch s.random.IntN(3) {
	case 0:
		alike := s.alike[fmt.Sprint(s.cluster.Pods[local].Labels)]
		peer = alike[s.random.IntN(len(alike))]
	case 1:
		peer = min(max(local+s.random.IntN(3)-1, 0), len(s.cluster.Pods)-1)
	}
	ends := []*corev1.Pod{s.cluster.Pods[local], s.cluster.Pods[peer]}
	if s.random.IntN(2) == 0 {
		ends[0], ends[1] = ends[1], ends[0]
	}
	return oracle.Packet{
			Source: netip.MustParseAddr(ends[0].Status.PodIP), Destination: netip.MustParseAddr(ends[1].Status.PodIP),
			Protocol: model.TCP, Port: 80,
		}, &oracle.Cluster{
			Namespaces: s.cluster.Namespaces, Pods: ends, Policies: s.cluster.Policies,
		}
}

func (s *sampler) local(a netip.Addr) bool { return s.at[a].Spec.NodeName == workloads.LocalNode }

// TestObjects checks counts, that names and addresses are distinct, and that
// two builds are the same.
func TestObjects(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	counts := map[string][3]int{
		"SmallNamespaces": {25_000, 100_000, 75_000}, "LargeNamespaces": {100, 100_000, 10_100}, "OneNamespace": {1, 10_000, 10_000},
		"NetpolPerPod": {1, 10_000, 10_000}, "ClusterScoped": {1_000, 100_000, 10_000},
	}
	for _, w := range workloads.All() {
		c := w.Objects(workloads.OneNode)
		if got := [3]int{len(c.Namespaces), len(c.Pods), len(c.Policies)}; got != counts[w.Name] {
			t.Errorf("%s has %v objects, want %v", w.Name, got, counts[w.Name])
		}
		seen := map[string]bool{}
		for _, n := range c.Namespaces {
			seen["namespace "+n.Name] = true
		}
		for _, p := range c.Pods {
			seen["pod "+p.Namespace+"/"+p.Name], seen[p.Status.PodIP] = true, true
		}
		for _, p := range c.Policies {
			seen["policy "+p.Namespace+"/"+p.Name] = true
		}
		if want := len(c.Namespaces) + 2*len(c.Pods) + len(c.Policies); len(seen) != want {
			t.Errorf("%s has %d distinct names and addresses, want %d", w.Name, len(seen), want)
		}
	}
	w := workloads.All()[0].Scaled(10)
	one, _ := json.Marshal(w.Objects(workloads.OneNode))
	two, _ := json.Marshal(w.Objects(workloads.OneNode))
	if string(one) != string(two) {
		t.Error("two builds differ")
	}
}

// TestRun measures the smallest workload in a child.
func TestRun(t *testing.T) {
	w, err := workloads.Named("NetpolPerPod")
	if err != nil {
		t.Fatal(err)
	}
	m, err := workloads.Run(t.Context(), w, workloads.EveryPodLocal)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", m)
	if m.Result != (workloads.Result{Groups: 10_000, Members: 10_000, Policies: 10_000, Endpoints: 10_000}) {
		t.Errorf("result %+v", m.Result)
	}
	if m.PeakRSS < m.ObjectsHeap || m.EngineCPU <= 0 || m.ProcessCPU < m.EngineCPU || m.Allocations == 0 || m.EngineHeap == 0 || m.Work.Total() == 0 {
		t.Errorf("measurement %+v", m)
	}
}
