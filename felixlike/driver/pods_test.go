package driver

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/felixlike/driver/drivertest"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/eventually"
)

// sandboxOf is the attachment of a pod's sandbox.
func sandboxOf(pod, sandbox string) *model.Attachment {
	return &model.Attachment{
		Pod: model.PodID{Namespace: "x", Name: pod}, Sandbox: sandbox, PodInterface: "eth0",
		Interface: "veth-" + pod, OFPort: 7, Addresses: []netip.Addr{netip.MustParseAddr("10.10.0.7")},
	}
}

func (f *fixture) attachSandbox(a *model.Attachment) {
	f.Updates <- func(update func(model.Update), _ func()) { update(model.AttachmentUpdate{Attachment: a}) }
}

func podWithUID(name, uid string, annotations map[string]string) datastore.Event {
	return datastore.PodSet{Pod: &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: name, UID: types.UID(uid), Annotations: annotations},
		Spec:       corev1.PodSpec{NodeName: "node1"},
	}}
}

// waits asserts that WaitPod gives up with a reason.
func waits(t *testing.T, f *fixture, a *model.Attachment, uid, reason string) {
	t.Helper()
	givesUp(t, reason, func(ctx context.Context) error { return f.WaitPod(ctx, a, uid) })
}

// givesUp asserts that a wait gives up with a reason. A wait that is too short for the
// agent to say why is tried again, longer.
func givesUp(t *testing.T, reason string, wait func(context.Context) error) {
	t.Helper()
	for long := 20 * time.Millisecond; ; long *= 4 {
		ctx, cancel := context.WithTimeout(t.Context(), long)
		err := wait(ctx)
		cancel()
		switch {
		case !errors.Is(err, context.DeadlineExceeded) || long > eventually.Patience:
			t.Fatalf("%v; want it to wait: %s", err, reason)
		case strings.Contains(err.Error(), reason):
			return
		}
	}
}

// ready asserts that WaitPod succeeds.
func ready(t *testing.T, f *fixture, a *model.Attachment, uid string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), eventually.Patience)
	defer cancel()
	if err := f.WaitPod(ctx, a, uid); err != nil {
		t.Error(err)
	}
}

func TestWaitPod(t *testing.T) {
	f := start(t)
	first, second := sandboxOf("a", "first"), sandboxOf("a", "second")
	waits(t, f, first, "", "the datastore's first listing is not complete; the attachments of the pods are not known")
	f.begin(t)
	waits(t, f, first, "", "do not have interface veth-a")
	f.attachSandbox(first)
	waits(t, f, first, "", "the datastore knows no such pod")
	f.Source.Send(true, podWithUID("a", "uid-1", nil))
	ready(t, f, first, "uid-1")
	ready(t, f, first, "")
	// The pod is made anew under its name: neither the old interface nor the old
	// object is its own.
	waits(t, f, second, "uid-2", "do not have interface veth-a")
	f.attachSandbox(second)
	waits(t, f, second, "uid-2", "another pod of this name: UID uid-1, not uid-2")
	f.Source.Send(true, podWithUID("a", "uid-2", nil))
	ready(t, f, second, "uid-2")
	waits(t, f, first, "uid-2", "do not have interface veth-a")
	f.Source.Send(true, datastore.PodDeleted{ID: second.Pod})
	waits(t, f, second, "uid-2", "the datastore knows no such pod")
}

// TestWaitPodOfUnknownNamespace: namespaces and pods come over two watches. A pod does not
// start before the namespace by which an administrator's Deny may select it.
func TestWaitPodOfUnknownNamespace(t *testing.T) {
	f := start(t)
	f.begin(t)
	a := sandboxOf("a", "first")
	f.attachSandbox(a)
	all := &v1alpha2.ClusterNetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "all"}}
	f.Source.Send(true, podWithUID("a", "uid-1", nil), datastore.ClusterNetworkPolicySet{Policy: all})
	waits(t, f, a, "uid-1", "has not reported namespace x")
	f.Source.Send(true, datastore.NamespaceSet{Namespace: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "x"}}})
	ready(t, f, a, "uid-1")
}

// TestWaitPodInOtherGroups has a pod made anew with other labels, to which the same
// policies apply: those of others know it by its labels.
func TestWaitPodInOtherGroups(t *testing.T) {
	f := start(t)
	server := podWithUID("server", "uid", nil)
	server.(datastore.PodSet).Pod.Labels = map[string]string{"app": "web"}
	client := func(uid, role string) datastore.Event {
		e := podWithUID("a", uid, nil)
		e.(datastore.PodSet).Pod.Labels = map[string]string{"role": role}
		return e
	}
	fromFriends := webPolicy().(datastore.NetworkPolicySet)
	fromFriends.Policy.Spec.PodSelector.MatchLabels = map[string]string{"app": "web"}
	fromFriends.Policy.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{
		{PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"role": "friend"}}},
	}}}
	f.begin(t, server, client("uid-1", "friend"), fromFriends)
	a := sandboxOf("a", "second")
	f.attachSandbox(a)
	ready(t, f, a, "uid-1")
	f.recorded.SetFailure("nftables", errors.New("refused"))
	f.Source.Send(true, client("uid-2", "stranger"))
	waits(t, f, a, "uid-2", "")
	f.recorded.SetFailure("nftables", nil)
	ready(t, f, a, "uid-2")
}

// TestWaitStaticPod waits for a pod with an object that has another UID than the kubelet's.
func TestWaitStaticPod(t *testing.T) {
	f := start(t)
	f.begin(t, podWithUID("a", "mirror", map[string]string{"kubernetes.io/config.hash": "static"}))
	a := sandboxOf("a", "first")
	f.attachSandbox(a)
	ready(t, f, a, "static")
	waits(t, f, a, "other", "UID mirror, static, not other")
}

func TestWaitPodThatCannotBe(t *testing.T) {
	f, table, _ := startQuarantine(t, &drivertest.LogBuffer{})
	refusal := refusedWeb()
	refusal.Reason = "no"
	refuse(t, f, table, refusal)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err := f.WaitPod(ctx, &model.Attachment{Pod: podA, Interface: "veth-a", Addresses: []netip.Addr{netip.MustParseAddr("10.10.0.2")}}, "")
	if err == nil || ctx.Err() != nil || !strings.Contains(err.Error(), "pod x/a is closed: networkpolicy/x/web is quarantined: no") {
		t.Error(err)
	}
}

func TestWaitPodWhileProgrammingFails(t *testing.T) {
	f := start(t)
	f.begin(t)
	f.recorded.SetFailure("nftables", errors.New("refused"))
	f.Source.Send(true, podWithUID("a", "uid", nil))
	a := sandboxOf("a", "first")
	f.attachSandbox(a)
	waits(t, f, a, "uid", "programming the dataplane failed: nftables: refused")
	f.recorded.SetFailure("nftables", nil)
	ready(t, f, a, "uid")
}

func TestLocalNode(t *testing.T) {
	f := start(t)
	givesUp(t, "first listing is not complete", func(ctx context.Context) error {
		_, err := f.LocalNode(ctx)
		return err
	})
	if err := f.Available(t.Context()); err == nil {
		t.Error("available before anything is known")
	}
	f.begin(t)
	n, err := f.LocalNode(t.Context())
	if err != nil || n.Name != "node1" || n.Gateway(model.IPv4).String() != "10.10.0.1" {
		t.Errorf("%+v %v", n, err)
	}
	if err := f.Available(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestServedPodsHaveTheirAttachmentsAddresses: tools judge packets by the addresses that the agent goes by.
func TestServedPodsHaveTheirAttachmentsAddresses(t *testing.T) {
	f := start(t)
	f.begin(t)
	pod := func(name, node string, onHost bool, address string) datastore.Event {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: name}, Spec: corev1.PodSpec{NodeName: node, HostNetwork: onHost}}
		p.Status.PodIPs = []corev1.PodIP{{IP: address}}
		return datastore.PodSet{Pod: p}
	}
	f.Source.Send(true, pod("far", "node2", false, "10.10.1.7"), pod("host", "node1", true, "192.168.50.11"), pod("old", "node1", false, "10.10.0.7"))
	f.Attach("old", "10.10.0.7")
	f.Detach("old", false)
	f.Attach("new", "10.10.0.7")
	f.Source.Send(true, drivertest.PodOn("new", "node1"))
	want := map[string]string{"far": "10.10.1.7", "host": "192.168.50.11", "old": "", "new": "10.10.0.7"}
	eventually.True(t, "each address belongs to one pod", func() bool {
		served, err := f.Objects(t.Context())
		got := map[string]string{}
		for _, p := range served.Pods {
			got[p.Name] = ""
			for _, ip := range p.Status.PodIPs {
				got[p.Name] += ip.IP
			}
		}
		return err == nil && maps.Equal(got, want)
	})
}
