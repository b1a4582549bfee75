package preview

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"pgregory.net/rapid"

	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/policy/oracle"
	"github.com/felixlike/felixlike/internal/seeded"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/policytest"
)

// TestPossiblePodsAreAll makes pods with any labels and addresses, in namespaces of a random cluster and in others. Each packet
// between such a pod and one of the cluster has a verdict that a possible pod has, too.
func TestPossiblePodsAreAll(t *testing.T) {
	allowed, denied := 0, 0
	seeded.Check(t, func(t *rapid.T) {
		draw := policytest.TieredCluster
		if rapid.Bool().Draw(t, "Antrea's kinds") {
			draw = policytest.AntreaCluster
		}
		c := draw(t)
		var prefixes []netip.Prefix
		for _, n := range c.Nodes {
			for _, text := range n.Spec.PodCIDRs {
				prefixes = append(prefixes, netip.MustParsePrefix(text))
			}
		}
		w := NewWorld(control.Objects{Nodes: c.Nodes, Namespaces: c.Namespaces, Pods: c.Pods, Policies: c.Policies, ClusterPolicies: c.ClusterPolicies, Antrea: c.Antrea}, model.Failsafe{}, prefixes)
		w.Divide(nil)
		pods := w.Ends(w.Pods())
		if len(pods) == 0 || len(prefixes) == 0 {
			return
		}
		target := rapid.SampledFrom(pods).Draw(t, "target")
		possible, err := w.Possible(t.Context(), w.Pods(), []*End{target}, false)
		if err != nil {
			t.Fatal(err)
		}
		port := uint16(rapid.SampledFrom([]int{1, 80, 81, 443, 8080, 65535}).Draw(t, "port"))
		// To judge all takes a minute: most verdicts are those of some of them.
		rand.New(rand.NewPCG(1, 2)).Shuffle(len(possible), func(i, j int) { possible[i], possible[j] = possible[j], possible[i] })
		judged := map[string]bool{}
		has := func(v oracle.Verdict) bool {
			for {
				if allowed, known := judged[because(v)]; known || len(possible) == 0 {
					return known && allowed == v.Allowed
				}
				w.Judge(possible[0], target, []model.PortRange{{Protocol: model.TCP, First: port, Last: port}}, nil, func(p Packets) { judged[p.Because()] = p.Allowed })
				possible = possible[1:]
			}
		}
		set := func(what string) map[string]string {
			all := map[string]string{}
			for _, key := range []string{"app", "tier"} {
				if v := rapid.SampledFrom([]string{"", "a", "b", "c", "unnamed"}).Draw(t, what+" "+key); v != "" {
					all[key] = v
				}
			}
			return all
		}
		for range 10 {
			with := *c
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "another", Name: "another", Labels: set("pod")}}
			if rapid.Bool().Draw(t, "existing namespace") {
				pod.Namespace = rapid.SampledFrom(c.Namespaces).Draw(t, "namespace").Name
			} else {
				with.Namespaces = append(slices.Clip(c.Namespaces), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "another", Labels: set("namespace")}})
			}
			prefix := rapid.SampledFrom(prefixes).Draw(t, "prefix")
			address := prefix.Addr().Next()
			for range rapid.IntRange(1, 200).Draw(t, "address") {
				address = address.Next()
			}
			f := model.FamilyOf(address)
			to := addressOf(target.pods[0], f)
			if !prefix.Contains(address) || !to.IsValid() || slices.ContainsFunc(c.Pods, func(p *corev1.Pod) bool { return addressOf(p, f) == address }) {
				continue
			}
			pod.Status.PodIPs = []corev1.PodIP{{IP: address.String()}}
			with.Pods = append(slices.Clip(c.Pods), pod)
			packet := oracle.Packet{Source: address, Destination: to, Protocol: model.TCP, Port: port}
			v := with.Evaluate(packet)
			if !has(v) {
				t.Fatalf("no possible pod has what %v of %s at %s has: %v %s", pod.Labels, pod.Namespace, packet, v.Allowed, because(v))
			}
			if v.Allowed {
				allowed++
			} else {
				denied++
			}
		}
	})
	t.Logf("%d allowed, %d denied", allowed, denied)
	if allowed == 0 || denied == 0 {
		t.Error("the clusters show nothing")
	}
}

// TestLabelSetsAreAll: whatever labels a pod has, one of the sets is selected by the same selectors.
func TestLabelSetsAreAll(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	keys, values := []string{"a", "b", "c"}, []string{"x", "y", "z", "unnamed", ""}
	for round := range 300 {
		var named []*metav1.LabelSelector
		for range 1 + random.IntN(4) {
			s := &metav1.LabelSelector{}
			for range random.IntN(3) {
				r := metav1.LabelSelectorRequirement{Key: keys[random.IntN(3)], Operator: []metav1.LabelSelectorOperator{"In", "NotIn", "Exists", "DoesNotExist"}[random.IntN(4)]}
				if r.Operator == "In" || r.Operator == "NotIn" {
					r.Values = values[random.IntN(2) : 2+random.IntN(2)]
				}
				s.MatchExpressions = append(s.MatchExpressions, r)
			}
			named = append(named, s)
		}
		always, taken := "", []string(nil)
		if round%2 == 0 {
			always, taken = "b", []string{"y"}
		}
		selectors := parsed(named)
		sets, err := labelSets(selectors, always, taken)
		if err != nil {
			t.Fatal(err)
		}
		selected := func(set labels.Set) string {
			by := make([]byte, len(selectors))
			for i, s := range selectors {
				by[i] = '0'
				if s.Matches(set) {
					by[i] = '1'
				}
			}
			return string(by)
		}
		known := map[string]bool{}
		for _, set := range sets {
			if always != "" && (set[always] == "" || slices.Contains(taken, set[always])) {
				t.Fatalf("%v: a value of %s cannot be", set, always)
			}
			known[selected(set)] = true
		}
		for n := range 216 {
			set := labels.Set{}
			for i, key := range keys {
				if v := []int{n % 6, n / 6 % 6, n / 36}[i]; v < 5 {
					set[key] = values[v]
				}
			}
			if always != "" && (set[always] == "" || slices.Contains(taken, set[always])) {
				continue
			}
			if !known[selected(set)] {
				t.Fatalf("round %d: no set is selected as %v is, of %v by %v", round, set, sets, selectors)
			}
		}
		if len(known) != len(sets) && always == "" {
			t.Errorf("round %d: %d sets for %d kinds", round, len(sets), len(known))
		}
	}
}
