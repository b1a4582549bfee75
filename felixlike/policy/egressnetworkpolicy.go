package policy

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/felixlike/felixlike/felixlike/antrea"
	"github.com/felixlike/felixlike/felixlike/policy/compile"
	"github.com/felixlike/felixlike/felixlike/tenancy"
	"github.com/felixlike/felixlike/model"
)

// egressPolicyStore has the EgressNetworkPolicies, of which a class of namespaces has at most one in force. They mean nothing while
// namespaces are not isolated.
type egressPolicyStore struct {
	isolation *isolationStore
	policies  *policyStore
	nodes     *nodeStore
	peers     *nodePeers
	// objects are those with rules, by namespace and name. OpenShift SDN ignores others.
	objects map[string]map[string]*antrea.EgressNetworkPolicy
	// compiled are the policies of classes with objects, and dirty the classes that may have changed.
	compiled map[tenancy.Class]classPolicy
	dirty    map[tenancy.Class]struct{}
	// dns are the DNS servers in the network of their host, by pod.
	dns map[model.PodID]dnsServer
	// found are the problems of the compiled policies with the places that pods needed then; nil if a policy has changed.
	found    []model.Problem
	foundFor []neededPlace
}

// classPolicy is the policy of a class. It has none if the class is global.
type classPolicy struct {
	policy   *compile.Policy
	problems []model.Problem
	// only is the object whose rules are in force, nil in a conflict.
	only *antrea.EgressNetworkPolicy
}

// dnsServer is a DNS server at the address of a node, or at one that all nodes have.
type dnsServer struct {
	node  string
	local netip.Addr
}

func (x *egressPolicyStore) set(id antrea.ID, object *antrea.EgressNetworkPolicy) {
	x.note(x.isolation.classes.Of(id.Namespace))
	delete(x.objects[id.Namespace], id.Name)
	if object != nil && len(object.Spec.Egress) > 0 {
		if x.objects[id.Namespace] == nil {
			x.objects[id.Namespace] = map[string]*antrea.EgressNetworkPolicy{}
		}
		x.objects[id.Namespace][id.Name] = object
	}
	if len(x.objects[id.Namespace]) == 0 {
		delete(x.objects, id.Namespace)
	}
}

// note notes that what classes have may have changed.
func (x *egressPolicyStore) note(classes ...tenancy.Class) {
	for _, c := range classes {
		x.dirty[c] = struct{}{}
	}
}

// noteAll notes that isolation was turned on or off.
func (x *egressPolicyStore) noteAll() {
	for namespace := range x.objects {
		x.note(x.isolation.classes.Of(namespace))
	}
}

// onPod notes a DNS server in the network of its host.
func (x *egressPolicyStore) onPod(id model.PodID, pod *corev1.Pod) {
	delete(x.dns, id)
	if pod == nil || !pod.Spec.HostNetwork {
		return
	}
	switch app := pod.Labels["k8s-app"]; app {
	case "kube-dns", "coredns":
		x.dns[id] = dnsServer{node: pod.Spec.NodeName}
	case "node-local-dns":
		x.dns[id] = dnsServer{local: netip.AddrFrom4([4]byte{169, 254, 20, 10})}
	}
}

// resolve compiles the policies of the classes that changes concern.
func (x *egressPolicyStore) resolve() {
	if len(x.dirty) > 0 {
		x.found = nil
	}
	removed, set := map[model.PolicyID]struct{}{}, map[model.PolicyID]*compile.Policy{}
	for class := range x.dirty {
		if old := x.compiled[class].policy; old != nil {
			removed[old.Model.ID] = struct{}{}
		}
		delete(x.compiled, class)
		if now := x.ofClass(class); now.policy != nil || len(now.problems) > 0 {
			x.compiled[class] = now
		}
		if now := x.compiled[class].policy; now != nil {
			set[now.Model.ID] = now
		}
	}
	clear(x.dirty)
	for id := range removed {
		if set[id] == nil {
			x.policies.remove(id)
		}
	}
	for _, p := range set {
		x.policies.index.work.Policies++
		x.policies.set(p)
	}
}

// ofClass compiles the policy of a class.
func (x *egressPolicyStore) ofClass(class tenancy.Class) classPolicy {
	namespaces := x.isolation.classes.Members(class)
	var objects []*antrea.EgressNetworkPolicy
	for _, n := range namespaces {
		for _, name := range slices.Sorted(maps.Keys(x.objects[n])) {
			objects = append(objects, x.objects[n][name])
		}
	}
	var out classPolicy
	if !x.isolation.on || len(objects) == 0 {
		return out
	}
	conflict := len(objects) > 1 || len(namespaces) > 1
	if !conflict {
		out.only = objects[0]
	}
	names := make([]string, len(objects))
	for i, o := range objects {
		names[i] = o.Namespace + "/" + o.Name
	}
	for i, o := range objects {
		add := func(format string, args ...any) {
			out.problems = append(out.problems, model.Problem{Object: o.ID().Ref(), Field: "spec.egress", Reason: fmt.Sprintf(format, args...)})
		}
		switch {
		case class.Global:
			add("ignored: namespace %s is global (netid 0)", o.Namespace)
			continue
		case len(namespaces) > 1:
			add("namespaces %s are joined: everything that their pods send out of the cluster is denied until %s is isolated, or none of them has an EgressNetworkPolicy", tenancy.Listed(namespaces), o.Namespace)
		}
		if len(objects) > 1 {
			others := slices.Concat(names[:i], names[i+1:])
			add("%s applies to the same pods: everything that they send out of the cluster is denied until only one is left", tenancy.Listed(others))
		}
		p, problems := compile.EgressNetworkPolicy(o, namespaces, conflict, x.isolation.ids)
		if out.problems = append(out.problems, problems...); out.policy == nil {
			out.policy = p
		}
	}
	return out
}

// problems returns the problems of the objects, in order.
func (x *egressPolicyStore) problems() []model.Problem {
	x.resolve()
	if len(x.compiled) == 0 {
		return nil
	}
	needed := x.needed()
	if x.found != nil && slices.Equal(needed, x.foundFor) {
		return x.found
	}
	all := []model.Problem{}
	for class, c := range x.compiled {
		all = append(all, c.problems...)
		if !class.Global && c.only != nil {
			all = append(all, cutsOff(c.only, needed)...)
		}
	}
	slices.SortStableFunc(all, func(a, b model.Problem) int {
		return cmp.Or(cmp.Compare(a.Object.Namespace, b.Object.Namespace), cmp.Compare(a.Object.Name, b.Object.Name))
	})
	x.found, x.foundFor = all, needed
	return all
}

// neededPlace is an address that pods need.
type neededPlace struct {
	address   netip.Addr
	what, why string
}

// needed returns the addresses outside of the pod prefixes where pods find the API server and DNS, as far as objects tell, in order.
func (x *egressPolicyStore) needed() []neededPlace {
	var all []neededPlace
	add := func(node, what, why string) {
		if n := x.nodes.byName[node]; n != nil {
			for _, a := range n.addresses {
				all = append(all, neededPlace{a, what, why})
			}
		}
	}
	for name, n := range x.peers.byName {
		_, is := n.labels.Get("node-role.kubernetes.io/control-plane")
		_, was := n.labels.Get("node-role.kubernetes.io/master")
		if is || was {
			add(name, "the API server", "node "+name)
		}
	}
	for id, server := range x.dns {
		if server.local.IsValid() {
			all = append(all, neededPlace{server.local, "DNS", "its cache of each node"})
			continue
		}
		add(server.node, "DNS", "pod "+id.String())
	}
	slices.SortFunc(all, func(a, b neededPlace) int {
		return cmp.Or(cmp.Compare(a.what, b.what), a.address.Compare(b.address), cmp.Compare(a.why, b.why))
	})
	return all
}

// cutsOff names the first address of the API server, and of DNS, that an object denies.
func cutsOff(o *antrea.EgressNetworkPolicy, needed []neededPlace) []model.Problem {
	var all []model.Problem
	last := ""
	for _, n := range needed {
		if n.what == last {
			continue
		}
		if i, denies := compile.EgressDenial(o, n.address); denies {
			last = n.what
			all = append(all, model.Problem{
				Object: o.ID().Ref(), Field: fmt.Sprintf("spec.egress[%d]", i),
				Reason: fmt.Sprintf("denies %s at %s (%s): put a rule that allows it before, unless the pods do without", n.what, n.address, n.why),
			})
		}
	}
	return all
}
