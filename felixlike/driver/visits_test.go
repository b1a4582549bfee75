package driver

import (
	"fmt"
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/felixlike/driver/drivertest"
	"github.com/felixlike/felixlike/model"
)

// TestNoticesDoNotGrowWithTheCluster asserts that a look at the problems visits the policies and pods that have some, and
// those of this node. It runs in the loop every five seconds.
func TestNoticesDoNotGrowWithTheCluster(t *testing.T) {
	f := start(t)
	named := intstr.FromString("web")
	policyOf := func(namespace, name string) datastore.NetworkPolicySet {
		p := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		p.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{Ports: []networkingv1.NetworkPolicyPort{{Port: &named}}}}
		return datastore.NetworkPolicySet{Policy: p}
	}
	const policies, hosts = 100_000, 5_000
	events := []datastore.Event{labelled("a"), policyOf("x", "here")}
	for i := range policies {
		events = append(events, policyOf(fmt.Sprint("ns", i/100), fmt.Sprint("p", i)))
	}
	for i := range hosts {
		pod := drivertest.PodOn(fmt.Sprint("proxy", i), fmt.Sprint("node", i)).(datastore.PodSet)
		pod.Pod.Spec.HostNetwork = true
		events = append(events, pod)
	}
	f.begin(t, events...)
	const want = `networkpolicy/x/here HostNetworkPodSelected all spec.podSelector
networkpolicy/x/here NamedPortUnresolved some spec`
	visits := func() (before uint64) {
		if err := f.queue.ask(t.Context(), func() { before = f.cluster.Engine().Work().Visits }); err != nil {
			t.Fatal(err)
		}
		return before
	}
	look := func(when string, limit uint64) {
		before := visits()
		if got := noticesOf(t, f); got != want {
			t.Errorf("%s:\n%s\nwant:\n%s", when, got, want)
		}
		if n := visits() - before; n > limit {
			t.Errorf("%s: a look visits %d records among %d policies and %d pods, want at most %d", when, n, policies, hosts, limit)
		}
	}
	look("at first", 10)
	// The first pod by name, which the notice names, goes. The next one has to be found once.
	f.Source.Send(true, datastore.PodDeleted{ID: model.PodID{Namespace: "x", Name: "proxy0"}})
	if err := programmed(t, f); err != nil {
		t.Fatal(err)
	}
	look("after the first pod went", hosts+10)
	look("again", 10)
	all, err := f.Notices(t.Context())
	if err != nil || len(all) == 0 || !strings.Contains(all[0].Reason, "x/proxy1,") {
		t.Errorf("notices %v (%v) do not name the first pod that is left", all, err)
	}
}
