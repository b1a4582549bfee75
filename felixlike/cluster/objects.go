package cluster

import (
	"maps"
	"slices"
	"strings"
	"unique"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/felixlike/felixlike/felixlike/antrea"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/model"
)

// objects are the datastore's objects, unchanged. Tools such as trace and diff judge
// packets by them instead of by the model.
type objects struct {
	nodes      map[string]*corev1.Node
	namespaces map[string]*corev1.Namespace
	pods       map[model.PodID]keptPod
	templates  map[string]*podTemplate
	policies   map[model.PodID]*networkingv1.NetworkPolicy
	// clusterPolicies are by name.
	clusterPolicies map[string]*v1alpha2.ClusterNetworkPolicy
	antrea          map[antrea.ID]antrea.Object
	// tiers are the Tiers of antrea.
	tiers map[antrea.ID]*antrea.Tier
}

func newObjects() *objects {
	return &objects{
		nodes: map[string]*corev1.Node{}, namespaces: map[string]*corev1.Namespace{},
		pods: map[model.PodID]keptPod{}, templates: map[string]*podTemplate{}, policies: map[model.PodID]*networkingv1.NetworkPolicy{},
		clusterPolicies: map[string]*v1alpha2.ClusterNetworkPolicy{}, antrea: map[antrea.ID]antrea.Object{}, tiers: map[antrea.ID]*antrea.Tier{},
	}
}

// policyOf returns the object of the policy that the event sets, as it was before.
func (o *objects) policyOf(e datastore.Event) *networkingv1.NetworkPolicy {
	if e, ok := e.(datastore.NetworkPolicySet); ok {
		return o.policies[model.PodID{Namespace: e.Policy.Namespace, Name: e.Policy.Name}]
	}
	return nil
}

// onEvent notes a change. It keeps the objects, and neither copies nor changes them.
func (o *objects) onEvent(e datastore.Event) {
	switch e := e.(type) {
	case datastore.NodeSet:
		o.nodes[e.Node.Name] = e.Node
	case datastore.NodeDeleted:
		delete(o.nodes, e.Name)
	case datastore.NamespaceSet:
		o.namespaces[e.Namespace.Name] = e.Namespace
	case datastore.NamespaceDeleted:
		delete(o.namespaces, e.Name)
	case datastore.PodSet:
		o.setPod(e.Pod)
	case datastore.PodDeleted:
		o.deletePod(e.ID)
	case datastore.NetworkPolicySet:
		o.policies[model.PodID{Namespace: e.Policy.Namespace, Name: e.Policy.Name}] = e.Policy
	case datastore.NetworkPolicyClosed:
		o.policies[model.PodID{Namespace: e.Namespace, Name: e.Name}] = closedPolicy(e)
	case datastore.NetworkPolicyDeleted:
		delete(o.policies, model.PodID{Namespace: e.Namespace, Name: e.Name})
	case datastore.ClusterNetworkPolicySet:
		o.clusterPolicies[e.Policy.Name] = e.Policy
	case datastore.ClusterNetworkPolicyDeleted:
		delete(o.clusterPolicies, e.Name)
	case datastore.AntreaSet:
		o.antrea[e.Object.ID()] = e.Object
		if t, is := e.Object.(*antrea.Tier); is {
			o.tiers[t.ID()] = t
		}
	case datastore.AntreaDeleted:
		delete(o.antrea, e.ID)
		delete(o.tiers, e.ID)
	}
}

// keptPod is a pod: its own fields, and a template that it shares with others. A cluster of
// 100,000 pods has at most a tenth as many templates.
type keptPod struct {
	*podTemplate
	node string
	// addresses are the pod's addresses from its status, each after a zero byte.
	addresses string
}

// podTemplate is an encoded pod without name, node and addresses.
type podTemplate struct {
	data string
	pods int
}

// setPod keeps a pod. It leaves out a pod that cannot be encoded; all valid ones can.
func (o *objects) setPod(p *corev1.Pod) {
	id := model.PodID{Namespace: p.Namespace, Name: p.Name}
	kept := keptPod{node: unique.Make(p.Spec.NodeName).Value()}
	common := trimmedPod(p)
	for _, a := range common.Status.PodIPs {
		kept.addresses += "\x00" + a.IP
	}
	common.Name, common.Spec.NodeName, common.Status.PodIPs = "", "", nil
	data, err := common.Marshal()
	if err != nil {
		o.deletePod(id)
		return
	}
	if kept.podTemplate = o.templates[string(data)]; kept.podTemplate == nil {
		kept.podTemplate = &podTemplate{data: string(data)}
		o.templates[kept.data] = kept.podTemplate
	}
	kept.pods++
	o.deletePod(id)
	id.Namespace = unique.Make(id.Namespace).Value()
	o.pods[id] = kept
}

func (o *objects) deletePod(id model.PodID) {
	kept, known := o.pods[id]
	if !known {
		return
	}
	delete(o.pods, id)
	if kept.pods--; kept.pods == 0 {
		delete(o.templates, kept.data)
	}
}

// pod returns a pod that is kept.
func (k keptPod) pod(id model.PodID) (*corev1.Pod, error) {
	p := &corev1.Pod{}
	if err := p.Unmarshal([]byte(k.data)); err != nil {
		return nil, err
	}
	p.Name, p.Spec.NodeName = id.Name, k.node
	for a := range strings.SplitSeq(k.addresses, "\x00") {
		if a != "" {
			p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: a})
		}
	}
	return p, nil
}

// closedPolicy is used in place of a policy that cannot be understood.
func closedPolicy(e datastore.NetworkPolicyClosed) *networkingv1.NetworkPolicy {
	p := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: e.Name}}
	p.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress}
	if e.PodSelector != nil {
		p.Spec.PodSelector = *e.PodSelector
	}
	return p
}

// all returns the objects that affect policy, sorted.
func (o *objects) all() control.Objects {
	var out control.Objects
	for _, name := range slices.Sorted(maps.Keys(o.nodes)) {
		n := o.nodes[name]
		out.Nodes = append(out.Nodes, &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, UID: n.UID, CreationTimestamp: n.CreationTimestamp, Labels: n.Labels},
			Spec:       corev1.NodeSpec{PodCIDR: n.Spec.PodCIDR, PodCIDRs: n.Spec.PodCIDRs},
			Status:     corev1.NodeStatus{Addresses: n.Status.Addresses},
		})
	}
	for _, name := range slices.Sorted(maps.Keys(o.namespaces)) {
		out.Namespaces = append(out.Namespaces, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: o.namespaces[name].Labels}})
	}
	for _, id := range slices.SortedFunc(maps.Keys(o.pods), model.PodID.Compare) {
		if p, err := o.pods[id].pod(id); err == nil { // it was encoded here
			out.Pods = append(out.Pods, p)
		}
	}
	for _, id := range slices.SortedFunc(maps.Keys(o.policies), model.PodID.Compare) {
		p := o.policies[id]
		out.Policies = append(out.Policies, &networkingv1.NetworkPolicy{
			ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name}, Spec: p.Spec,
		})
	}
	for _, name := range slices.Sorted(maps.Keys(o.clusterPolicies)) {
		out.ClusterPolicies = append(out.ClusterPolicies, &v1alpha2.ClusterNetworkPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: o.clusterPolicies[name].Spec,
		})
	}
	for _, id := range slices.SortedFunc(maps.Keys(o.antrea), antrea.ID.Compare) {
		out.Antrea.Put(o.antrea[id])
	}
	return out
}

// trimmedPod returns a pod with the fields that affect policy: labels, addresses, and named
// ports.
func trimmedPod(p *corev1.Pod) *corev1.Pod {
	out := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name, Labels: p.Labels},
		Spec:       corev1.PodSpec{NodeName: p.Spec.NodeName, HostNetwork: p.Spec.HostNetwork},
		Status:     corev1.PodStatus{Phase: p.Status.Phase, PodIPs: p.Status.PodIPs},
	}
	for _, c := range p.Spec.Containers {
		if ports := namedPorts(c.Ports); len(ports) > 0 {
			out.Spec.Containers = append(out.Spec.Containers, corev1.Container{Name: c.Name, Ports: ports})
		}
	}
	for _, c := range p.Spec.InitContainers {
		if ports := namedPorts(c.Ports); len(ports) > 0 && c.RestartPolicy != nil {
			out.Spec.InitContainers = append(out.Spec.InitContainers, corev1.Container{Name: c.Name, RestartPolicy: c.RestartPolicy, Ports: ports})
		}
	}
	return out
}

func namedPorts(all []corev1.ContainerPort) []corev1.ContainerPort {
	var named []corev1.ContainerPort
	for _, p := range all {
		if p.Name != "" {
			named = append(named, corev1.ContainerPort{Name: p.Name, ContainerPort: p.ContainerPort, Protocol: p.Protocol})
		}
	}
	return named
}
