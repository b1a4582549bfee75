// Package tenants is the module of the setting pipelineVariant: openshift. It turns NetNamespaces into the numbers of namespaces that the bridge's
// flows compare, says which namespaces have none, and to which endpoints Services may lead.
//
//	datastore -> Tenants -> tenancy.Classes -> model.TenantUpdate -> managers.MultitenantManager
//	                 +-> Reaches, by the pods of addresses -> serviceproxy
//
// Its state belongs to the loop of the driver. It is tested by tables, and with packets in test/e2e.
package tenants

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/felixlike/felixlike/felixlike/antrea"
	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/felixlike/driver"
	"github.com/felixlike/felixlike/felixlike/tenancy"
	"github.com/felixlike/felixlike/model"
)

// Reasons of Events.
const (
	// noticeNoNumber says that a namespace has no number, or none has.
	noticeNoNumber = "NoNumber"
	// noticeDNS says that the namespace of the cluster's DNS is not global.
	noticeDNS = "DNSNotGlobal"
)

// Tenants is the module.
type Tenants struct {
	// node is this node's name.
	node string
	// cluster has the addresses of all pods.
	cluster netip.Prefix
	classes *tenancy.Classes
	// objects are the namespaces with a NetNamespace, dns the pods that are the cluster's DNS.
	objects map[string]bool
	dns     map[model.PodID]bool
	// namespaces are those with an object, each with where it came from.
	namespaces map[string]string
	// reported and attached are the addresses of pods, by their status and on this node; pods are the pods of each address.
	reported, attached map[model.PodID][]netip.Addr
	pods               map[netip.Addr]map[model.PodID]int // how many of both lists have it
	// interfaces are those of attached pods: the end of an older one changes nothing.
	interfaces map[model.PodID]string
	// dirty are the namespaces, moved the addresses, that may have changed since the last updates.
	dirty map[string]bool
	moved map[netip.Addr]bool
	sent  map[string]model.TenantUpdate
	// global are the addresses of global pods in the last updates.
	global []netip.Addr
	// reconsider tells who asks Reaches what may have changed; it may be nil.
	reconsider func(changed func(namespace string, a netip.Addr) bool)
}

// New returns the module of a node, for a cluster with that prefix of pods.
func New(node string, cluster netip.Prefix) *Tenants {
	return &Tenants{
		node: node, cluster: cluster, objects: map[string]bool{}, dns: map[model.PodID]bool{}, interfaces: map[model.PodID]string{}, classes: tenancy.New(), namespaces: map[string]string{}, reported: map[model.PodID][]netip.Addr{}, attached: map[model.PodID][]netip.Addr{},
		pods: map[netip.Addr]map[model.PodID]int{}, dirty: map[string]bool{metav1.NamespaceDefault: true}, moved: map[netip.Addr]bool{}, sent: map[string]model.TenantUpdate{},
	}
}

// OnChange sets a function that is called in the loop when answers of Reaches may have changed: for Services of the namespaces, and for the
// addresses, for which changed returns true.
func (t *Tenants) OnChange(reconsider func(changed func(namespace string, a netip.Addr) bool)) {
	t.reconsider = reconsider
}

// Module returns the functions of the module. It comes before the modules that ask Reaches.
func (t *Tenants) Module() driver.Module {
	return driver.Module{OnEvent: t.onEvent, OnUpdate: t.onUpdate, Updates: t.updates, Notices: t.notices, ObjectProblems: t.problems}
}

func (t *Tenants) onEvent(e datastore.Event) {
	switch e := e.(type) {
	case datastore.NamespaceSet:
		t.namespaces[e.Namespace.Name] = e.Source
	case datastore.NamespaceDeleted:
		delete(t.namespaces, e.Name)
	case datastore.AntreaSet:
		if n, is := e.Object.(*antrea.NetNamespace); is {
			t.classes.Set(n.Name, n)
			t.objects[n.Name], t.dirty[n.Name] = true, true
		}
	case datastore.AntreaDeleted:
		if e.ID.Kind == antrea.KindNetNamespace {
			t.classes.Set(e.ID.Name, nil)
			delete(t.objects, e.ID.Name)
			t.dirty[e.ID.Name] = true
		}
	case datastore.PodSet:
		id := model.PodID{Namespace: e.Pod.Namespace, Name: e.Pod.Name}
		t.place(t.reported, id, addresses(e.Pod))
		if app := e.Pod.Labels["k8s-app"]; !e.Pod.Spec.HostNetwork && (app == "kube-dns" || app == "coredns") {
			t.dns[id] = true
		} else {
			delete(t.dns, id)
		}
	case datastore.PodDeleted:
		delete(t.dns, e.ID)
		t.place(t.reported, e.ID, nil)
	}
}

func (t *Tenants) onUpdate(u model.Update, _ uint64) {
	switch u := u.(type) {
	case model.AttachmentUpdate:
		t.interfaces[u.Attachment.Pod] = u.Attachment.Interface
		t.place(t.attached, u.Attachment.Pod, u.Attachment.Addresses)
	case model.AttachmentRemove:
		if !u.PortOnly && t.interfaces[u.Pod] == u.Interface {
			delete(t.interfaces, u.Pod)
			t.place(t.attached, u.Pod, nil)
		}
	}
}

// addresses returns the addresses of a pod of the pod network, by its status.
func addresses(p *corev1.Pod) (all []netip.Addr) {
	if p.Spec.HostNetwork || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
		return nil
	}
	for _, ip := range append(slices.Clone(p.Status.PodIPs), corev1.PodIP{IP: p.Status.PodIP}) {
		if a, err := netip.ParseAddr(ip.IP); err == nil && !slices.Contains(all, a.Unmap()) {
			all = append(all, a.Unmap())
		}
	}
	return all
}

// place replaces the addresses of a pod in a list.
func (t *Tenants) place(list map[model.PodID][]netip.Addr, id model.PodID, now []netip.Addr) {
	before := list[id]
	if slices.Equal(before, now) {
		return
	}
	for _, a := range before {
		if t.pods[a][id]--; t.pods[a][id] == 0 {
			delete(t.pods[a], id)
		}
		if len(t.pods[a]) == 0 {
			delete(t.pods, a)
		}
		t.moved[a] = true
	}
	for _, a := range now {
		if t.pods[a] == nil {
			t.pods[a] = map[model.PodID]int{}
		}
		t.pods[a][id]++
		t.moved[a] = true
	}
	if list[id] = now; len(now) == 0 {
		delete(list, id)
	}
}

// tenant returns the number of a namespace. The namespace default is global unless a NetNamespace says otherwise, as in OpenShift: the API server's
// Service is there.
func (t *Tenants) tenant(namespace string) model.TenantUpdate {
	switch c := t.classes.Of(namespace); {
	case c.Global, namespace == metav1.NamespaceDefault && !t.objects[namespace]:
		return model.TenantUpdate{Namespace: namespace, Global: true}
	case c.Number > 0 && c.Number <= tenancy.MaxNumber:
		return model.TenantUpdate{Namespace: namespace, Number: uint32(c.Number)}
	}
	return model.TenantUpdate{Namespace: namespace}
}

func has(t model.TenantUpdate) bool { return t.Global || t.Number != 0 }

// updates returns the numbers that have changed.
func (t *Tenants) updates() []model.Update {
	var all []model.Update
	changed := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(t.dirty)) {
		now := t.tenant(name)
		if now == t.sent[name] || !has(now) && !has(t.sent[name]) {
			continue
		}
		if t.sent[name] = now; !has(now) {
			delete(t.sent, name)
		}
		changed[name] = true
		all = append(all, now)
	}
	if t.reconsider != nil && len(changed)+len(t.moved) > 0 {
		t.reconsider(func(namespace string, a netip.Addr) bool {
			if changed[namespace] || t.moved[a] {
				return true
			}
			for id := range t.pods[a] {
				if changed[id.Namespace] {
					return true
				}
			}
			return false
		})
	}
	if len(changed)+len(t.moved) > 0 {
		if now := t.globals(); !slices.Equal(now, t.global) {
			t.global = now
			all = append(all, model.GlobalPodsUpdate{Addresses: now})
		}
	}
	clear(t.dirty)
	clear(t.moved)
	return all
}

// globals returns the addresses at which all pods are global, sorted.
func (t *Tenants) globals() (all []netip.Addr) {
	for a, pods := range t.pods {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(pods)), func(id model.PodID) bool { return !t.tenant(id.Namespace).Global }) {
			all = append(all, a)
		}
	}
	slices.SortFunc(all, netip.Addr.Compare)
	return all
}

// Reaches reports whether a Service of a namespace may lead to an address. The host translates connections to Services, and the packet that
// it sends on has its own number, which is global: so the pod at the address has to be one that the namespace reaches by itself. An
// address of the pod network without a pod is not known.
func (t *Tenants) Reaches(namespace string, a netip.Addr) bool {
	pods := t.pods[a.Unmap()]
	if len(pods) == 0 {
		return !t.cluster.Contains(a.Unmap())
	}
	from := t.tenant(namespace)
	for id := range pods {
		to := t.tenant(id.Namespace)
		if !has(from) || !to.Global && (from.Global || to.Number != from.Number) {
			return false
		}
	}
	return true
}

// notices says that no namespace has a number, if there are pods on this node.
func (t *Tenants) notices() []datastore.Notice {
	for name := range t.objects {
		if has(t.tenant(name)) {
			return nil
		}
	}
	if len(t.attached) == 0 {
		return nil
	}
	return []datastore.Notice{{Kind: noticeNoNumber, Known: datastore.KnownHere, Problem: model.Problem{
		Object: model.NodeRef(t.node), Field: "pipelineVariant",
		Reason: "no NetNamespace gives a namespace a number, so pods are closed: the kind has to be served, and agents need the right to create and read them",
	}}}
}

// problems returns the namespaces without a number, and those of the cluster's DNS that are not global.
func (t *Tenants) problems() (all []datastore.Notice) {
	names := maps.Clone(t.namespaces)
	for _, list := range []map[model.PodID][]netip.Addr{t.reported, t.attached} {
		for id := range list {
			if _, known := names[id.Namespace]; !known {
				names[id.Namespace] = ""
			}
		}
	}
	for name, source := range names {
		if !has(t.tenant(name)) {
			all = append(all, datastore.Notice{Kind: noticeNoNumber, Known: datastore.KnownToAll, Problem: model.Problem{
				Source: source, Object: model.ObjectRef{Kind: "Namespace", Name: name},
				Reason: "no NetNamespace gives it a number: with pipelineVariant: openshift its pods and Services are closed",
			}})
		}
	}
	dns := map[string]bool{}
	for id := range t.dns {
		dns[id.Namespace] = true
	}
	for name := range dns {
		if now := t.tenant(name); has(now) && !now.Global {
			all = append(all, datastore.Notice{Kind: noticeDNS, Known: datastore.KnownToAll, Problem: model.Problem{
				Source: t.namespaces[name], Object: model.ObjectRef{Kind: "Namespace", Name: name},
				Reason: "it has pods of the cluster's DNS, and is not global: pods of other namespaces do not reach them (felixctl netnamespace global " + name + ")",
			}})
		}
	}
	slices.SortFunc(all, func(a, b datastore.Notice) int { return strings.Compare(a.Object.Name, b.Object.Name) })
	return all
}
