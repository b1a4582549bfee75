package preview

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/felixlike/felixlike/felixlike/antrea"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/policy/oracle"
	"github.com/felixlike/felixlike/internal/seeded"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/policytest"
	"github.com/felixlike/felixlike/test/truthtable"
)

// TestRandomTiersArePredicted changes the policies of a random cluster to those of
// another. For each packet, the verdict before the change with the differences
// applied is the oracle's verdict after it.
func TestRandomTiersArePredicted(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	changed, judged := 0, 0
	seeded.Check(t, func(t *rapid.T) {
		draw := policytest.TieredCluster
		if rapid.Bool().Draw(t, "Antrea's kinds") {
			draw = policytest.AntreaCluster
		}
		now, other := draw(t), draw(t)
		then := *now
		then.Policies, then.ClusterPolicies, then.Antrea = other.Policies, other.ClusterPolicies, other.Antrea
		then.Antrea.Isolation = now.Antrea.Isolation // a setting
		// A preview deletes no tiers and groups.
		for _, object := range referenced(now.Antrea).All() {
			if !slices.ContainsFunc(other.Antrea.All(), func(o antrea.Object) bool { return o.ID() == object.ID() }) {
				then.Antrea.Put(object)
			}
		}
		o := control.Objects{
			Node: now.Nodes[0].Name, Nodes: now.Nodes, Namespaces: now.Namespaces, Pods: now.Pods,
			Policies: now.Policies, ClusterPolicies: now.ClusterPolicies, Antrea: now.Antrea,
		}
		change := changeTo(now, &then)
		change.SetAntrea = then.Antrea.All()
		for _, p := range antreaPolicies(now.Antrea) {
			if !slices.ContainsFunc(change.SetAntrea, func(o antrea.Object) bool { return o.ID() == p.antrea.ID() }) {
				change.Delete = append(change.Delete, p.antrea.ID().Ref())
			}
		}
		p, err := Of(t.Context(), o, change)
		if err != nil {
			t.Fatal(err)
		}
		for _, packet := range policytest.Packets(t, now) {
			if nobodys(now, packet.Source) || nobodys(now, packet.Destination) {
				continue
			}
			if now.Evaluate(packet).Ingress.Why == oracle.OwnNode {
				continue // docs/reference/limits/policies.md: the preview does not list packets to the own node
			}
			want := now.Evaluate(packet).Allowed
			for _, d := range p.Verdicts {
				if d.about(now, packet) {
					want = d.Becomes == Allowed
					changed++
				}
			}
			judged++
			if got := then.Evaluate(packet).Allowed; got != want {
				t.Errorf("%s: allowed %t is predicted, and comes to be %t", packet, want, got)
			}
		}
	})
	t.Logf("%d packets, of which %d change", judged, changed)
	if changed == 0 {
		t.Error("nothing ever changes")
	}
}

// changeTo is the change from the policies of one cluster to those of another.
func changeTo(from, to *oracle.Cluster) Change {
	return difference(truthtable.Objects{Nodes: from.Nodes, Namespaces: from.Namespaces, Pods: from.Pods, Policies: from.Policies, ClusterPolicies: from.ClusterPolicies}, truthtable.Objects{Nodes: to.Nodes, Namespaces: to.Namespaces, Pods: to.Pods, Policies: to.Policies, ClusterPolicies: to.ClusterPolicies})
}

// about reports whether a difference is about a packet.
func (d Difference) about(c *oracle.Cluster, p oracle.Packet) bool {
	source, destination := podAt(c, p.Source), podAt(c, p.Destination)
	isOwn := func(a, b *corev1.Pod, e *end) bool {
		return a != nil && (a == b || e.node != nil && a.Spec.NodeName == e.node.Name)
	}
	if isOwn(source, destination, d.to) || isOwn(destination, source, d.from) {
		return false
	}
	return slices.Contains(d.Families, "IPv"+model.FamilyOf(p.Source).String()) && d.from.has(c, source, p.Source) && d.to.has(c, destination, p.Destination) &&
		slices.ContainsFunc(d.ranges, func(r model.PortRange) bool {
			return r.Protocol == p.Protocol && r.First <= p.Port && p.Port <= r.Last
		})
}

func podAt(c *oracle.Cluster, a netip.Addr) *corev1.Pod {
	for _, p := range c.Pods {
		if selectable(p) && addressOf(p, model.FamilyOf(a)) == a {
			return p
		}
	}
	return nil
}

// nobodys reports whether an address is of the nodes' pod CIDRs, and no pod's. preview does
// not speak of those.
func nobodys(c *oracle.Cluster, a netip.Addr) bool {
	return podAt(c, a) == nil && slices.ContainsFunc(c.Nodes, func(n *corev1.Node) bool {
		return slices.ContainsFunc(n.Spec.PodCIDRs, func(cidr string) bool { return netip.MustParsePrefix(cidr).Contains(a) })
	})
}

// has reports whether an end has an address, and the pod of it, if there is one.
func (e *end) has(c *oracle.Cluster, pod *corev1.Pod, a netip.Addr) bool {
	switch {
	case pod != nil || len(e.pods) > 0:
		return slices.Contains(e.pods, pod)
	case e.node != nil:
		return nodeAddress(e.node, model.FamilyOf(a)) == a
	case slices.ContainsFunc(c.Nodes, func(n *corev1.Node) bool { return nodeAddress(n, model.FamilyOf(a)) == a }):
		return false
	}
	return e.region.Contains(a) && !slices.ContainsFunc(e.inside, func(p netip.Prefix) bool { return p.Contains(a) })
}

const denyPolicy = `
apiVersion: policy.networking.k8s.io/v1alpha2
kind: ClusterNetworkPolicy
metadata: {name: keep-out}
spec:
  tier: Admin
  priority: 10
  subject: {pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: db}}}}
  ingress:
  - {action: Deny, from: [{namespaces: {}}], protocols: [{destinationNamedPort: sql}]}
`

// TestTierText: a ClusterNetworkPolicy is named with its kind, tier and rule. It is
// judged beside the policies in force, of both kinds.
func TestTierText(t *testing.T) {
	o := objects(t, shop+"---"+dbPolicy)
	c := Change{SetCluster: objects(t, denyPolicy).ClusterPolicies}
	p, err := Of(t.Context(), o, c)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Connections(o, c, &control.Model{}, nil); err != nil {
		t.Fatal(err)
	}
	because := "clusternetworkpolicy/keep-out ingress[0] denies it"
	golden(t, p, false, `clusternetworkpolicy/keep-out: created; ingress of 1 pod

Packets with another verdict
FROM                    TO       PORTS     NOW      THEN    BECAUSE
shop/web-1, shop/web-2  shop/db  tcp/5432  allowed  denied  ISOLATED

Established connections of n1
none that the new policies deny
`, because)
	golden(t, p, true, `clusternetworkpolicy/keep-out
  It would be created.
  It applies to ingress of 1 pod: shop/db.
  In its tier, Admin, the first matching rule decides, before any NetworkPolicy. Pass leaves the packet to the NetworkPolicies. Answers always pass, and so do packets from a pod's own node.

shop/web-1, shop/web-2 could no longer reach shop/db by tcp/5432: ISOLATED.

Established connections of n1
none that the new policies deny
`, because)
	// One in force counts: without the NetworkPolicy, its port stays closed.
	o.ClusterPolicies = c.SetCluster
	p, err = Of(t.Context(), o, Change{Delete: []model.ObjectRef{{Kind: networkPolicy, Namespace: "shop", Name: "db"}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range p.Verdicts {
		if slices.Contains(d.From, "shop/web-1") && !slices.Equal(d.Ports, []string{"all but", "tcp/5432"}) {
			t.Errorf("%+v", d)
		}
	}
	p, err = Of(t.Context(), o, Change{Delete: []model.ObjectRef{{Kind: clusterPolicy, Name: "keep-out"}}})
	if err != nil || len(p.Verdicts) == 0 || p.Verdicts[0].Becomes != Allowed || p.Policies[0].What != Deleted {
		t.Errorf("deleted: %+v, %v", p, err)
	}
	if _, err := Of(t.Context(), o, Change{Delete: []model.ObjectRef{{Kind: clusterPolicy, Name: "keep"}}}); err == nil || !strings.Contains(err.Error(), "clusternetworkpolicy/keep: does not exist, so it cannot be deleted") {
		t.Errorf("error %v", err)
	}
}

const groupOfWeb = "{apiVersion: crd.antrea.io/v1beta1, kind: ClusterGroup, metadata: {name: clients}, spec: {podSelector: {matchLabels: {app: web}}}}\n"

const rejectClients = `---
apiVersion: crd.antrea.io/v1beta1
kind: ClusterNetworkPolicy
metadata: {name: closed}
spec:
  tier: securityops
  priority: 5.5
  appliedTo: [{podSelector: {matchLabels: {app: db}}}]
  ingress: [{action: Reject, name: no-web, from: [{group: clients}]}]
`

// TestAntreaText: a policy of Antrea's API is named with its kind and tier. A changed group counts
// for the policies that refer to it, and one that does not exist is noted.
func TestAntreaText(t *testing.T) {
	o := objects(t, shop)
	c := Change{SetAntrea: objects(t, groupOfWeb+rejectClients).Antrea.All()}
	p, err := Of(t.Context(), o, c)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Connections(o, c, &control.Model{}, nil); err != nil {
		t.Fatal(err)
	}
	because := "clusternetworkpolicy.crd.antrea.io/closed ingress[0] (no-web) denies it"
	golden(t, p, false, `clustergroup.crd.antrea.io/clients: created; policies may refer to it
clusternetworkpolicy.crd.antrea.io/closed: created; ingress of 1 pod

Packets with another verdict
FROM                    TO       PORTS  NOW      THEN    BECAUSE
shop/web-1, shop/web-2  shop/db  all    allowed  denied  ISOLATED

Established connections of n1
none that the new policies deny
`, because)
	o.Antrea = objects(t, groupOfWeb+rejectClients).Antrea
	other := objects(t, strings.ReplaceAll(groupOfWeb, "app: web", "app: other")).Antrea.All()
	p, err = Of(t.Context(), o, Change{SetAntrea: other})
	if err != nil || len(p.Verdicts) == 0 || p.Verdicts[0].Becomes != Allowed || p.Policies[0].What != Changed {
		t.Errorf("another group: %+v, %v", p, err)
	}
	p, err = Of(t.Context(), o, Change{Delete: []model.ObjectRef{o.Antrea.ClusterPolicies[0].ID().Ref()}})
	if err != nil || len(p.Verdicts) == 0 || p.Verdicts[0].Becomes != Allowed || p.Policies[0].What != Deleted {
		t.Errorf("deleted: %+v, %v", p, err)
	}
	p, err = Of(t.Context(), objects(t, shop), Change{SetAntrea: objects(t, rejectClients).Antrea.All()})
	if err != nil || len(p.Policies) != 1 || !slices.ContainsFunc(p.Policies[0].Problems, func(text string) bool { return strings.Contains(text, `group "clients"`) }) {
		t.Errorf("without its group: %+v, %v", p, err)
	}
}

// TestNetNamespaces: a join, a number 0 and the end of a NetNamespace show the packets that they let through or deny. Without
// isolation they change nothing.
func TestNetNamespaces(t *testing.T) {
	const projects = shop + `---
apiVersion: v1
kind: Namespace
metadata: {name: ops}
---
apiVersion: v1
kind: Pod
metadata: {namespace: ops, name: mon}
spec: {nodeName: n1}
status: {phase: Running, podIPs: [{ip: 10.0.1.9}]}
---
apiVersion: network.openshift.io/v1
kind: NetNamespace
metadata: {name: shop}
netname: shop
netid: 7
`
	netNamespace := func(id int64) antrea.Object {
		n := &antrea.NetNamespace{NetName: "ops", NetID: &id}
		n.Name = "ops"
		return n
	}
	o := objects(t, projects)
	preview := func(c Change) []Difference {
		t.Helper()
		p, err := Of(t.Context(), o, c)
		if err != nil {
			t.Fatal(err)
		}
		return p.Verdicts
	}
	if all := preview(Change{SetAntrea: []antrea.Object{netNamespace(7)}}); len(all) > 0 {
		t.Errorf("without isolation: %+v", all)
	}
	reach := func(want bool) {
		t.Helper()
		r, err := ReachOf(t.Context(), o, Question{From: "ops/mon", To: "shop/db"})
		if err != nil || r.Passes() != want || !want && !strings.Contains(r.Ways[0].Because, "isolation/shop") {
			t.Errorf("reach: %+v, %v; want %t", r, err, want)
		}
	}
	reach(true)
	o.Antrea.Isolation = true
	reach(false)
	for name, id := range map[string]int64{"join": 7, "global": 0} {
		toOps, fromOps := false, false
		for _, d := range preview(Change{SetAntrea: []antrea.Object{netNamespace(id)}}) {
			if d.Becomes != Allowed {
				t.Errorf("%s: %+v", name, d)
			}
			toOps = toOps || slices.Contains(d.To, "ops/mon")
			fromOps = fromOps || slices.Contains(d.From, "ops/mon")
		}
		if !toOps || !fromOps {
			t.Errorf("%s: to ops %t, from ops %t", name, toOps, fromOps)
		}
	}
	o.Antrea.Put(netNamespace(7))
	reach(true)
	all := preview(Change{Delete: []model.ObjectRef{netNamespace(7).ID().Ref()}})
	if len(all) == 0 || slices.ContainsFunc(all, func(d Difference) bool { return d.Becomes != Denied || !strings.Contains(d.Because, "isolation/") }) {
		t.Errorf("isolated again: %+v", all)
	}
}

// TestEgressNetworkPolicies: a preview shows what an EgressNetworkPolicy denies, and what a conflict with another one does, in a
// namespace and by a join. Pods of the cluster are no matter of it.
func TestEgressNetworkPolicies(t *testing.T) {
	o := objects(t, shop)
	o.Antrea.Isolation = true
	leaving := func(name, cidr string) *antrea.EgressNetworkPolicy {
		p := &antrea.EgressNetworkPolicy{}
		p.Namespace, p.Name = "shop", name
		p.Spec.Egress = []antrea.EgressNetworkPolicyRule{{Type: antrea.EgressDeny, To: antrea.EgressNetworkPolicyPeer{CIDRSelector: cidr}}}
		return p
	}
	preview := func(c Change) (to []string, because string) {
		t.Helper()
		p, err := Of(t.Context(), o, c)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range p.Verdicts {
			if d.Becomes != Denied {
				t.Errorf("%+v", d)
			}
			to, because = append(to, d.To...), d.Because
		}
		slices.Sort(to)
		return slices.Compact(to), because
	}
	first, second := leaving("first", "198.51.100.0/24"), leaving("second", "198.51.100.0/24")
	to, because := preview(Change{SetAntrea: []antrea.Object{first}})
	if len(to) != 1 || to[0] != "198.51.100.0/24" || !strings.Contains(because, "egressnetworkpolicy.network.openshift.io/shop/first egress[0]") {
		t.Errorf("%q %s", to, because)
	}
	o.Antrea.Put(first)
	all := []string{"anyone else outside", "node n1", "node n2"}
	to, because = preview(Change{SetAntrea: []antrea.Object{second}})
	if !slices.Equal(to, all) || !strings.Contains(because, "in conflict") {
		t.Errorf("two: %q %s", to, because)
	}
	if to, because = preview(Change{SetAntrea: []antrea.Object{project("shop", 7), project("ops", 7)}}); !slices.Equal(to, all) || !strings.Contains(because, "in conflict") {
		t.Errorf("joined: %q %s", to, because)
	}
	p, join := &Preview{}, Change{SetAntrea: []antrea.Object{project("shop", 7), project("ops", 7)}}
	pod := o.Pods[slices.IndexFunc(o.Pods, func(p *corev1.Pod) bool { return p.Namespace == "shop" })]
	connection := control.Connection{Source: addressOf(pod, model.IPv4), Destination: netip.MustParseAddr("203.0.113.1"), Protocol: model.TCP, Port: 443}
	if err := p.Connections(o, join, &control.Model{}, []control.Connection{connection}); err != nil || len(p.Outlived) != 1 {
		t.Errorf("connections that a join denies: %+v, %v", p.Outlived, err)
	}
	o.Antrea.Isolation = false
	if to, _ = preview(Change{SetAntrea: []antrea.Object{second}}); len(to) > 0 {
		t.Errorf("without isolation: %q", to)
	}
}

func project(name string, id int64) *antrea.NetNamespace {
	n := &antrea.NetNamespace{NetName: name, NetID: &id}
	n.Name = name
	return n
}
