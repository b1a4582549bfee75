package property

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/felixlike/felixlike/felixlike/policy/oracle"
	"github.com/felixlike/felixlike/test/measure"
)

// hostile are objects that one tenant may create, of sizes that an API server accepts.
// docs/results/large-objects.md has their costs.
type hostile struct {
	name     string
	policies func() []*networkingv1.NetworkPolicy
	// closed: the policy exceeds a limit of all backends. closedInSwitch: it exceeds
	// the limit of openflow only.
	closed, closedInSwitch bool
}

func hostiles() []hostile { return hostilesOf(0) }

// hostilesOf returns objects that share no group with those of another number.
func hostilesOf(number int) []hostile {
	one := func(rules ...networkingv1.NetworkPolicyIngressRule) []*networkingv1.NetworkPolicy {
		p := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "evil", Name: "evil"}}
		p.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
		p.Spec.Ingress = rules
		return []*networkingv1.NetworkPolicy{p}
	}
	ports := func(n int) []networkingv1.NetworkPolicyPort {
		var all []networkingv1.NetworkPolicyPort
		for i := range n {
			port := intstr.FromInt32(int32(2*i + 1))
			all = append(all, networkingv1.NetworkPolicyPort{Port: &port})
		}
		return all
	}
	from := func(n int, peer func(i int) networkingv1.NetworkPolicyPeer) []networkingv1.NetworkPolicyPeer {
		var all []networkingv1.NetworkPolicyPeer
		for i := range n {
			all = append(all, peer(i))
		}
		return all
	}
	exceptions := func(n int) []networkingv1.NetworkPolicyPeer {
		r := rand.New(rand.NewPCG(1, uint64(number)))
		b := &networkingv1.IPBlock{CIDR: "::/0"}
		for range n {
			var a [16]byte
			binary.BigEndian.PutUint64(a[:], r.Uint64())
			binary.BigEndian.PutUint64(a[8:], r.Uint64())
			b.Except = append(b.Except, netip.AddrFrom16(a).String()+"/128")
		}
		return []networkingv1.NetworkPolicyPeer{{IPBlock: b}}
	}
	cidr := func(i int) networkingv1.NetworkPolicyPeer {
		return networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: fmt.Sprintf("%d.%d.%d.%d/32", 20+i>>16, i>>8&255, i&255, 1+number)}}
	}
	selector := func(i int) networkingv1.NetworkPolicyPeer {
		return networkingv1.NetworkPolicyPeer{PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{fmt.Sprint("app", number): fmt.Sprint("a", i)}}}
	}
	return []hostile{
		{"10,000 exceptions of ::/0", func() []*networkingv1.NetworkPolicy {
			return one(networkingv1.NetworkPolicyIngressRule{From: exceptions(10_000)})
		}, false, true},
		{"200 exceptions of ::/0", func() []*networkingv1.NetworkPolicy {
			return one(networkingv1.NetworkPolicyIngressRule{From: exceptions(200)})
		}, false, false},
		{"20,000 CIDRs", func() []*networkingv1.NetworkPolicy {
			return one(networkingv1.NetworkPolicyIngressRule{From: from(20_000, cidr)})
		}, false, false},
		{"30,000 CIDRs", func() []*networkingv1.NetworkPolicy {
			return one(networkingv1.NetworkPolicyIngressRule{From: from(30_000, cidr)})
		}, false, true},
		{"100,000 CIDRs", func() []*networkingv1.NetworkPolicy {
			return one(networkingv1.NetworkPolicyIngressRule{From: from(100_000, cidr)})
		}, true, true},
		{"5,000 ports", func() []*networkingv1.NetworkPolicy {
			return one(networkingv1.NetworkPolicyIngressRule{Ports: ports(5000)})
		}, false, false},
		{"5,000 ports of 3 selectors", func() []*networkingv1.NetworkPolicy {
			return one(networkingv1.NetworkPolicyIngressRule{Ports: ports(5000), From: from(3, selector)})
		}, true, true},
		{"10,000 rules", func() []*networkingv1.NetworkPolicy {
			var rules []networkingv1.NetworkPolicyIngressRule
			for _, p := range ports(10_000) {
				rules = append(rules, networkingv1.NetworkPolicyIngressRule{Ports: []networkingv1.NetworkPolicyPort{p}})
			}
			return one(rules...)
		}, false, true},
		{"1,000 selectors", func() []*networkingv1.NetworkPolicy {
			return one(networkingv1.NetworkPolicyIngressRule{From: from(1000, selector)})
		}, false, false},
		{"1,000 policies for everything", func() []*networkingv1.NetworkPolicy {
			var all []*networkingv1.NetworkPolicy
			for i := range 1000 {
				p := one(networkingv1.NetworkPolicyIngressRule{From: []networkingv1.NetworkPolicyPeer{{NamespaceSelector: &metav1.LabelSelector{}}}})[0]
				p.Name = fmt.Sprint("evil-", i)
				all = append(all, p)
			}
			return all
		}, false, false},
		{"5,000 labels of 63 characters", func() []*networkingv1.NetworkPolicy {
			s := &metav1.LabelSelector{}
			e := metav1.LabelSelectorRequirement{Key: strings.Repeat("d", 63) + "." + strings.Repeat("e", 63) + "/" + strings.Repeat("n", 63), Operator: metav1.LabelSelectorOpNotIn}
			for i := range 5000 {
				e.Values = append(e.Values, fmt.Sprintf("%063d", i))
			}
			s.MatchExpressions = append(s.MatchExpressions, e)
			return one(networkingv1.NetworkPolicyIngressRule{From: []networkingv1.NetworkPolicyPeer{{PodSelector: s, NamespaceSelector: s}}})
		}, false, false},
	}
}

// hostileCluster is a node with a pod of the tenant of such objects, and one of
// another tenant.
func hostileCluster() *oracle.Cluster {
	c := &oracle.Cluster{}
	for i, name := range []string{"node1", "node2"} {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		n.Spec.PodCIDRs = []string{fmt.Sprintf("10.10.%d.0/24", i), fmt.Sprintf("fd00:10:0:%d::/64", i)}
		n.Spec.PodCIDR = n.Spec.PodCIDRs[0]
		n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("192.168.50.%d", 11+i)}}
		c.Nodes = append(c.Nodes, n)
	}
	for i, ns := range []string{"evil", "good"} {
		c.Namespaces = append(c.Namespaces, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}})
		a, b := fmt.Sprintf("10.10.0.%d", 10+i), fmt.Sprintf("fd00:10::%d", 10+i)
		c.Pods = append(c.Pods, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: fmt.Sprint("pod", i)}, Spec: corev1.PodSpec{NodeName: "node1"},
			Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: a, PodIPs: []corev1.PodIP{{IP: a}, {IP: b}}},
		})
	}
	return c
}

// TestHostileObjects gives each backend one hostile object after the other, each
// together with a policy of another tenant. By its limits the object is programmed, or
// closed and named. The other tenant's policy is in force in the same apply. Deletion of
// the object leaves nothing.
//
// With -v it prints the cost of each object, from its arrival to the end of the apply.
// The peak is how far the resident memory of this process, which is the agent's, rises
// above that before the object.
func TestHostileObjects(t *testing.T) {
	for _, backend := range backends() {
		t.Run(backend, func(t *testing.T) {
			lockThread(t)
			needTools(t, backend)
			k := newKernel(t, backend, "node1", randomNodes())
			if k.bridge != nil {
				for _, name := range randomPods()[:2] {
					k.bridge.pool[name] = k.bridge.attach(name)
				}
			}
			d, err := newDataplane(backend, "node1", k)
			if err != nil {
				t.Fatal(err)
			}
			d.become(nil, hostileCluster())
			apply := func() (writes int, refused []string) {
				t.Helper()
				done, err := d.apply()
				if err != nil {
					t.Fatal(err)
				}
				for _, r := range done.Refused {
					refused = append(refused, r.Name+": "+r.Reason)
				}
				return done.Writes, refused
			}
			apply()
			for _, h := range hostiles() {
				t.Run(h.name, func(t *testing.T) { d.applyHostile(t, h, usesBridge(backend), apply) })
			}
			if err := d.close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// resetPeak makes the peak of the resident memory its present value, which it returns.
func resetPeak(t *testing.T) uint64 {
	t.Helper()
	if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0); err != nil {
		t.Fatal(err)
	}
	return usage(t).RSS
}

func usage(t *testing.T) measure.ProcessUsage {
	t.Helper()
	u, err := measure.ProcessUsageOf(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func (d *dataplane) applyHostile(t *testing.T, h hostile, inSwitch bool, apply func() (int, []string)) {
	policies := h.policies()
	size := 0
	for _, p := range policies {
		size += p.Size()
	}
	good := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "good", Name: "good"}}
	good.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{}}
	debug.FreeOSMemory()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	resident := resetPeak(t)
	began := time.Now()
	problems := 0
	for _, p := range policies {
		found := d.engine.SetNetworkPolicy(p)
		problems += len(found)
		for _, one := range found {
			if one.Field != "spec.ingress" {
				t.Errorf("%+v", one)
			}
		}
	}
	compiled := time.Since(began)
	d.engine.SetNetworkPolicy(good)
	writes, refused := apply()
	took := time.Since(began)
	peak := usage(t).Peak
	runtime.GC()
	runtime.ReadMemStats(&after)
	closed := problems > 0 || len(refused) > 0
	t.Logf("%d kB: closed %t; %d ms, of which %d ms compiling; %d MB kept, peak %d MB", size/1000, closed, took.Milliseconds(), compiled.Milliseconds(),
		(int64(after.HeapAlloc)-int64(before.HeapAlloc))>>20, (int64(peak)-int64(resident))>>20)
	if limit := uint64(256 << 20); peak > resident+limit {
		t.Errorf("the resident memory rose from %d MB to %d MB", resident>>20, peak>>20)
	}
	if want := h.closed || inSwitch && h.closedInSwitch; closed != want {
		t.Errorf("closed %t, want %t: %d problems, refused %v", closed, want, problems, refused)
	}
	if writes == 0 {
		t.Error("nothing was programmed for the other tenant")
	}
	for _, p := range policies {
		d.engine.DeleteNetworkPolicy(p.Namespace, p.Name)
	}
	d.engine.DeleteNetworkPolicy("good", "good")
	began = time.Now()
	apply()
	t.Logf("gone after %d ms", time.Since(began).Milliseconds())
	if writes, refused := apply(); writes > 0 || len(refused) > 0 {
		t.Errorf("afterwards %d writes, refused %v", writes, refused)
	}
}
