package driver

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/felixlike/driver/drivertest"
)

// noticesOf returns the driver's notices as lines.
func noticesOf(t *testing.T, f *fixture) string {
	t.Helper()
	all, err := f.Notices(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	known := map[datastore.Known]string{datastore.KnownHere: "here", datastore.KnownToSome: "some", datastore.KnownToAll: "all"}
	var lines []string
	for _, n := range all {
		lines = append(lines, strings.Join([]string{n.Object.String(), n.Kind, known[n.Known], n.Field}, " "))
	}
	return strings.Join(lines, "\n")
}

func TestNotices(t *testing.T) {
	f, table, _ := startQuarantine(t, &drivertest.LogBuffer{})
	if got := noticesOf(t, f); got != "" {
		t.Errorf("nothing is wrong: %s", got)
	}
	p := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "bad"}}
	port, protocol := intstr.FromString("web"), corev1.Protocol("QUIC")
	p.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{Ports: []networkingv1.NetworkPolicyPort{{Port: &port}, {Protocol: &protocol}}}}
	host := drivertest.PodOn("host", "node2").(datastore.PodSet)
	host.Pod.Spec.HostNetwork = true
	another := drivertest.PodOn("host2", "node2").(datastore.PodSet)
	another.Pod.Spec.HostNetwork = true
	f.Source.Send(true, datastore.NetworkPolicySet{Policy: p}, host, another)
	if err := programmed(t, f); err != nil {
		t.Fatal(err)
	}
	const bad = `networkpolicy/x/bad HostNetworkPodSelected all spec.podSelector
networkpolicy/x/bad NamedPortUnresolved some spec
networkpolicy/x/bad NotUnderstood all spec.ingress[0].ports[1].protocol`
	if got := noticesOf(t, f); got != bad {
		t.Errorf("got:\n%s\nwant:\n%s", got, bad)
	}
	refuse(t, f, table, refusedWeb())
	want := bad + `
networkpolicy/x/web Quarantined here 
pod/x/a TrafficDropped here `
	if got := noticesOf(t, f); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

// TestNoNoticeBeforeInSync: an object that seems to be missing may still come.
func TestNoNoticeBeforeInSync(t *testing.T) {
	f := start(t)
	host := drivertest.PodOn("host", "node2").(datastore.PodSet)
	host.Pod.Spec.HostNetwork = true
	f.Source.Send(false, host, webPolicy())
	if got := noticesOf(t, f); got != "" {
		t.Errorf("notices: %s", got)
	}
}
