package tenants

import (
	"net/netip"
	"reflect"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/felixlike/felixlike/felixlike/antrea"
	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/model"
)

func newTenants() *Tenants { return New("node1", netip.MustParsePrefix("10.128.0.0/14")) }

func (t *Tenants) number(name string, number int64) {
	t.onEvent(datastore.AntreaSet{Object: &antrea.NetNamespace{ObjectMeta: metav1.ObjectMeta{Name: name}, NetName: name, NetID: &number}})
}

func (t *Tenants) pod(namespace, name, address string, phase corev1.PodPhase) {
	t.onEvent(datastore.PodSet{Pod: &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Status: corev1.PodStatus{Phase: phase, PodIP: address},
	}})
}

// TestUpdates: a namespace has the number of its NetNamespace, and none without one that is understood.
func TestUpdates(t *testing.T) {
	x := newTenants()
	want := func(what string, want ...model.Update) {
		t.Helper()
		if got := x.updates(); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, want %+v", what, got, want)
		}
	}
	x.onEvent(datastore.NamespaceSet{Namespace: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}})
	want("a namespace without a number", model.TenantUpdate{Namespace: "default", Global: true})
	if all := x.problems(); len(all) != 1 || all[0].Object.Name != "shop" {
		t.Errorf("problems: %+v", all)
	}
	x.number("shop", 7)
	x.number("dns", 0)
	want("numbers", model.TenantUpdate{Namespace: "dns", Global: true}, model.TenantUpdate{Namespace: "shop", Number: 7})
	if all := x.problems(); len(all) != 0 {
		t.Errorf("problems: %+v", all)
	}
	x.number("shop", 7)
	want("the same again")
	x.number("shop", 1<<24)
	want("no number of a VXLAN", model.TenantUpdate{Namespace: "shop"})
	x.number("shop", 8)
	want("another number", model.TenantUpdate{Namespace: "shop", Number: 8})
	x.onEvent(datastore.AntreaDeleted{ID: antrea.ID{Kind: antrea.KindNetNamespace, Name: "dns"}})
	want("no longer global", model.TenantUpdate{Namespace: "dns"})
}

// TestReaches: a Service leads to pods that its namespace reaches by itself, and to addresses that belong to no pod network.
func TestReaches(t *testing.T) {
	x := newTenants()
	for name, number := range map[string]int64{"own": 7, "joined": 7, "global": 0, "other": 9} {
		x.number(name, number)
	}
	for namespace, address := range map[string]string{"own": "10.128.0.1", "joined": "10.128.0.2", "global": "10.128.0.3", "other": "10.128.0.4", "none": "10.128.0.5"} {
		x.pod(namespace, "pod", address, corev1.PodRunning)
	}
	x.pod("own", "claims", "10.128.0.4", corev1.PodRunning)
	x.pod("other", "ended", "10.128.0.1", corev1.PodSucceeded)
	x.onUpdate(model.AttachmentUpdate{Attachment: &model.Attachment{Pod: model.PodID{Namespace: "own", Name: "new"}, Addresses: []netip.Addr{netip.MustParseAddr("10.128.0.6")}}}, 0)
	check := func(from, address string, want bool) {
		t.Helper()
		if got := x.Reaches(from, netip.MustParseAddr(address)); got != want {
			t.Errorf("%s to %s: %t", from, address, got)
		}
	}
	for address, want := range map[string]map[string]bool{
		"10.128.0.1":  {"own": true, "joined": true, "global": false, "other": false, "none": false},
		"10.128.0.2":  {"own": true, "joined": true, "global": false, "other": false, "none": false},
		"10.128.0.3":  {"own": true, "joined": true, "global": true, "other": true, "none": false},
		"10.128.0.4":  {"own": false, "joined": false, "global": false, "other": false, "none": false}, // two pods claim it
		"10.128.0.5":  {"own": false, "joined": false, "global": false, "other": false, "none": false},
		"10.128.0.6":  {"own": true, "other": false},
		"10.128.0.9":  {"own": false, "global": false}, // no pod
		"192.0.2.1":   {"own": true, "none": true},
		"fd00:10::1":  {"own": true},
		"10.128.0.10": {"own": false},
	} {
		for from, want := range want {
			check(from, address, want)
		}
	}
	if all := x.updates(); !slices.ContainsFunc(all, func(u model.Update) bool {
		return reflect.DeepEqual(u, model.GlobalPodsUpdate{Addresses: []netip.Addr{netip.MustParseAddr("10.128.0.3")}})
	}) {
		t.Errorf("no update of global pods in %+v", all)
	}
	asked := false
	x.OnChange(func(changed func(string, netip.Addr) bool) {
		asked = true
		for _, test := range []struct {
			namespace, address string
			want               bool
		}{{"joined", "192.0.2.1", true}, {"own", "10.128.0.2", true}, {"own", "10.128.0.1", false}} {
			if got := changed(test.namespace, netip.MustParseAddr(test.address)); got != test.want {
				t.Errorf("changed for %s, %s: %t", test.namespace, test.address, got)
			}
		}
	})
	x.number("joined", 10)
	x.updates()
	if !asked {
		t.Error("nobody was told of the change")
	}
	check("own", "10.128.0.2", false)
}

// TestDefault: the namespace default is global without a NetNamespace, and has the number of the one that it has.
func TestDefault(t *testing.T) {
	x := newTenants()
	want := func(want model.TenantUpdate) {
		t.Helper()
		if got := x.updates(); !reflect.DeepEqual(got, []model.Update{want}) {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
	want(model.TenantUpdate{Namespace: "default", Global: true})
	x.number("default", 7)
	want(model.TenantUpdate{Namespace: "default", Number: 7})
	x.onEvent(datastore.AntreaDeleted{ID: antrea.ID{Kind: antrea.KindNetNamespace, Name: "default"}})
	want(model.TenantUpdate{Namespace: "default", Global: true})
}

// TestNotices: a node with pods says so while no namespace has a number, and the namespace of the cluster's DNS is named until it is global.
func TestNotices(t *testing.T) {
	x := newTenants()
	x.onEvent(datastore.PodSet{Pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "dns", Labels: map[string]string{"k8s-app": "kube-dns"}}}})
	named := func() bool {
		return slices.ContainsFunc(x.problems(), func(n datastore.Notice) bool { return n.Kind == noticeDNS && n.Object.Name == "kube-system" })
	}
	if all := x.notices(); len(all) > 0 {
		t.Errorf("no pods: %v", all)
	}
	x.onUpdate(model.AttachmentUpdate{Attachment: &model.Attachment{Pod: model.PodID{Namespace: "own", Name: "new"}, Addresses: []netip.Addr{netip.MustParseAddr("10.128.0.6")}}}, 0)
	if all := x.notices(); len(all) != 1 || all[0].Object != model.NodeRef("node1") {
		t.Errorf("no numbers: %v", all)
	}
	if x.number("kube-system", 7); !named() || len(x.notices()) > 0 {
		t.Errorf("DNS of one tenant: %v, %v", x.problems(), x.notices())
	}
	if x.number("kube-system", 0); named() {
		t.Errorf("DNS is global: %v", x.problems())
	}
}

// TestOldInterface: the end of an older interface of a pod leaves the addresses of the newer one.
func TestOldInterface(t *testing.T) {
	x, address := newTenants(), netip.MustParseAddr("10.128.0.6")
	x.number("own", 7)
	id := model.PodID{Namespace: "own", Name: "new"}
	x.onUpdate(model.AttachmentUpdate{Attachment: &model.Attachment{Pod: id, Interface: "v1", Addresses: []netip.Addr{netip.MustParseAddr("10.128.0.5")}}}, 0)
	x.onUpdate(model.AttachmentUpdate{Attachment: &model.Attachment{Pod: id, Interface: "v2", Addresses: []netip.Addr{address}}}, 0)
	if x.onUpdate(model.AttachmentRemove{Pod: id, Interface: "v1"}, 0); !x.Reaches("own", address) {
		t.Error("the address of the newer interface is gone")
	}
	if x.onUpdate(model.AttachmentRemove{Pod: id, Interface: "v2"}, 0); x.Reaches("own", address) {
		t.Error("the address stays")
	}
}
