package managers

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	engine "github.com/felixlike/felixlike/felixlike/policy"
	"github.com/felixlike/felixlike/felixlike/policy/oracle"
	"github.com/felixlike/felixlike/internal/seeded"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/rules"
	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/test/policytest"
)

// Pairs that shared a chain while names had 40 bits of hash: one opened the pods of
// the other.
func TestPoliciesOfOneShortHashDoNotShareAChain(t *testing.T) {
	for name, pair := range map[string][2]model.PolicyID{
		"one namespace": {
			{Tier: model.TierNetworkPolicy, Namespace: "shop", Name: "payments-frontend-to-backend-allow-internal-traffic-v1145861"},
			{Tier: model.TierNetworkPolicy, Namespace: "shop", Name: "payments-frontend-to-backend-allow-internal-traffic-v1394388"},
		},
		"two tenants": {
			{Tier: model.TierNetworkPolicy, Namespace: "production-a", Name: "p404936"},
			{Tier: model.TierNetworkPolicy, Namespace: "production-b", Name: "p1138324"},
		},
		"two kinds": {
			{Tier: model.TierAdmin, Name: "shared"},
			{Tier: model.TierBaseline, Name: "shared"},
		},
	} {
		for backend, r := range renderers() {
			t.Run(name+" "+backend, func(t *testing.T) {
				j := newJudge(t, "node1", backend, r)
				closing, opening := pair[0], pair[1]
				j.send(
					model.PolicyUpdate{Policy: &model.Policy{ID: closing, Ingress: []model.Rule{{Name: "ingress[0]", Action: deniesIn(closing), AnyPeer: true, Ports: []model.PortRange{{Protocol: model.TCP, First: 80, Last: 80}}}}}},
					model.PolicyUpdate{Policy: &model.Policy{ID: opening, Ingress: []model.Rule{{Name: "ingress[0]", Action: model.Allow, AnyPeer: true, AnyPort: true}}}},
					model.EndpointUpdate{Endpoint: &model.Endpoint{ID: pod("a"), Ingress: appliedOf(closing)}},
					model.EndpointUpdate{Endpoint: &model.Endpoint{ID: pod("b"), Ingress: appliedOf(opening)}},
					attachment("a", "veth-a", "10.10.0.2"), attachment("b", "veth-b", "10.10.0.3"),
				)
				if refused := j.endpoints.Refusals(); len(refused) > 0 {
					t.Errorf("refused: %+v", refused)
				}
				for to, want := range map[string]bool{"10.10.0.2": closing.Tier == model.TierNetworkPolicy, "10.10.0.3": true} {
					p := oracle.Packet{Source: addr("203.0.113.7"), Destination: addr(to), Protocol: model.TCP, Port: 80}
					if got := j.allows(model.Ingress, p); got != want {
						t.Errorf("%v: allowed %t", p, got)
					}
					p.Port = 81
					want = want && to == "10.10.0.3" || closing.Tier == model.TierAdmin
					if got := j.allows(model.Ingress, p); got != want {
						t.Errorf("%v: allowed %t", p, got)
					}
				}
			})
		}
	}
}

// deniesIn returns the action of a policy's rule for port 80.
func deniesIn(id model.PolicyID) model.Action {
	if id.Tier == model.TierAdmin {
		return model.Deny
	}
	return model.Allow
}

func appliedOf(ids ...model.PolicyID) (a model.Applied) {
	for _, id := range ids {
		switch id.Tier {
		case model.TierAdmin:
			a.Admin = append(a.Admin, id)
		case model.TierNetworkPolicy:
			a.NetworkPolicies = append(a.NetworkPolicies, id)
		default:
			a.Baseline = append(a.Baseline, id)
		}
	}
	return a
}

// collidingNode is a node with a backend whose names have few bits, and its model.
type collidingNode struct {
	name   string
	engine *engine.Engine
	model  *policytest.Model
	judge  *judge
	// attached are the pods with an interface.
	attached map[model.PodID][]netip.Addr
}

// become leads the node to another cluster by differences, in a drawn order and in
// drawn pieces.
func (n *collidingNode) become(t *rapid.T, before, after *oracle.Cluster) {
	policies, pods, namespaces := map[string]bool{}, map[model.PodID]bool{}, map[string]bool{}
	for _, p := range after.ClusterPolicies {
		policies[p.Name] = true
	}
	for _, p := range after.Policies {
		policies[p.Namespace+"/"+p.Name] = true
	}
	for _, p := range before.ClusterPolicies {
		if !policies[p.Name] {
			n.engine.DeleteClusterNetworkPolicy(p.Name)
		}
	}
	for _, p := range after.Pods {
		pods[policytest.PodID(p)] = true
	}
	for _, s := range after.Namespaces {
		namespaces[s.Name] = true
	}
	for _, p := range before.Policies {
		if !policies[p.Namespace+"/"+p.Name] {
			n.engine.DeleteNetworkPolicy(p.Namespace, p.Name)
		}
	}
	for _, p := range before.Pods {
		if !pods[policytest.PodID(p)] {
			n.engine.DeletePod(policytest.PodID(p))
		}
	}
	for _, s := range before.Namespaces {
		if !namespaces[s.Name] {
			n.engine.DeleteNamespace(s.Name)
		}
	}
	for _, o := range after.Nodes {
		n.engine.SetNode(o)
	}
	for _, s := range after.Namespaces {
		n.engine.SetNamespace(s)
	}
	for _, p := range after.Pods {
		n.engine.SetPod(p)
	}
	n.flush(t)
	for _, p := range after.ClusterPolicies {
		n.engine.SetClusterNetworkPolicy(p)
		if rapid.Bool().Draw(t, "flush") {
			n.flush(t)
		}
	}
	for _, p := range after.Policies {
		n.engine.SetNetworkPolicy(p)
		if rapid.Bool().Draw(t, "flush") {
			n.flush(t)
		}
	}
	n.flush(t)
	var links []model.Update
	now := attachedOn(after, n.name)
	for id := range n.attached {
		if now[id] == nil {
			links = append(links, model.AttachmentRemove{Pod: id, Interface: "veth-" + id.Name})
		}
	}
	for id, addrs := range now {
		if !slices.Equal(addrs, n.attached[id]) {
			links = append(links, model.AttachmentUpdate{Attachment: &model.Attachment{Pod: id, Interface: "veth-" + id.Name, Addresses: addrs}})
		}
	}
	n.attached = now
	n.judge.send(links...)
}

// flush applies the changes. It fails if a programmed chain changes its owner while the
// old owner still wants it.
func (n *collidingNode) flush(t *rapid.T) {
	before := n.owners()
	updates := n.engine.Flush()
	if err := n.model.Apply(updates); err != nil {
		t.Fatal(err)
	}
	n.judge.send(updates...)
	after := n.owners()
	for chain, owner := range before {
		if now := after[chain]; now != owner && n.wants(owner) {
			t.Fatalf("%s: chain %s of %v was given to %v", n.name, chain, owner, now)
		}
	}
}

// owners returns which object has each chain.
func (n *collidingNode) owners() map[string]any {
	all := map[string]any{}
	for id, p := range n.model.Policies {
		for _, d := range model.Directions() {
			chain := n.judge.renderer.PolicyChain(id, d)
			side := rules.PolicySide{ID: id, Direction: d}
			if n.judge.renderer.Policies().Has(chain, side) && len(p.Rules(d)) > 0 {
				all[chain] = side
			}
		}
	}
	for key, c := range n.judge.endpoints.applied.byKey {
		if n.judge.endpoints.applied.claims.Has(c.name, key) {
			all[c.name] = key
		}
	}
	return all
}

// wants reports whether an object still wants a chain.
func (n *collidingNode) wants(owner any) bool {
	switch o := owner.(type) {
	case rules.PolicySide:
		p := n.model.Policies[o.ID]
		return p != nil && len(p.Rules(o.Direction)) > 0
	case string:
		return n.judge.endpoints.applied.byKey[o] != nil
	}
	return false
}

// check fails unless every chain is the rendering of its one owner.
func (n *collidingNode) check(t *rapid.T) {
	owners := n.owners()
	for chain, owner := range owners {
		var want tables.Chain
		switch o := owner.(type) {
		case rules.PolicySide:
			want = n.judge.renderer.PolicyRules(n.model.Policies[o.ID], o.Direction, model.Families())
		case string:
			c := n.judge.endpoints.applied.byKey[o]
			want, _ = n.judge.renderer.Applied(c.direction, c.applied, func(id model.PolicyID) bool {
				p := n.model.Policies[id]
				return p != nil && len(p.Rules(c.direction)) > 0
			})
		}
		got := n.judge.kept[chain]
		if d := cmp.Diff(want.Text(), got.Text()); d != "" {
			t.Fatalf("%s: chain %s of %v (-want +got):\n%s", n.name, chain, owner, d)
		}
	}
	for id, held := range n.judge.endpoints.held {
		for d, ref := range map[model.Direction]appliedRef{model.Ingress: held.ingress, model.Egress: held.egress} {
			for _, a := range n.attached[id] {
				if got, want := n.judge.verdicts[d][a], n.judge.endpoints.applied.verdict(d, ref); n.judge.endpoints.owners.owner(a).Pod == id && got != want {
					t.Fatalf("%s: %s of %s: %v, want %v", n.name, d, a, got, want)
				}
			}
		}
	}
	for chain := range n.judge.kept {
		prefix, _, _ := strings.Cut(chain, "-")
		if _, owned := owners[chain]; !owned && slices.Contains([]string{"pin", "pout", "pods", "in", "out"}, prefix) {
			t.Fatalf("%s: chain %s belongs to no object", n.name, chain)
		}
	}
}

// restart returns the node as a new agent finds it, with all updates at once in a drawn
// order.
func (n *collidingNode) restart(t *rapid.T, backend string, narrow func(*rules.Renderer) *rules.Renderer) *judge {
	j := newJudge(t, n.name, backend, narrow(renderers()[backend]))
	updates := n.engine.Snapshot()
	for id, addrs := range n.attached {
		updates = append(updates, model.AttachmentUpdate{Attachment: &model.Attachment{Pod: id, Interface: "veth-" + id.Name, Addresses: addrs}})
	}
	j.send(rapid.Permutation(updates).Draw(t, "order")...)
	return j
}

func attachedOn(c *oracle.Cluster, node string) map[model.PodID][]netip.Addr {
	all := map[model.PodID][]netip.Addr{}
	for _, p := range c.Pods {
		if p.Spec.NodeName != node || p.Spec.HostNetwork || p.Status.Phase != corev1.PodRunning {
			continue
		}
		for _, ip := range p.Status.PodIPs {
			if a, err := netip.ParseAddr(ip.IP); err == nil {
				all[policytest.PodID(p)] = append(all[policytest.PodID(p)], a)
			}
		}
	}
	return all
}

// With hashes of so few bits that names collide all the time: no two objects share a
// chain, an object that is in force keeps its chain whatever comes later, a restart has
// the same names in any order of updates, and no packet passes that policy denies.
// Packets of pods that no collision closes are judged as ever.
func TestCollidingNames(t *testing.T) {
	for backend := range renderers() {
		t.Run(backend, func(t *testing.T) {
			refused, compared := 0, 0
			seeded.Check(t, func(rt *rapid.T) {
				hash := rapid.IntRange(0, 1).Draw(rt, "characters of hash")
				narrow := func(r *rules.Renderer) *rules.Renderer { return r.Narrowed(0, hash) }
				nodes, models := map[string]*collidingNode{}, map[string]*policytest.Model{}
				for _, name := range []string{"node1", "node2"} {
					models[name] = policytest.NewModel()
					nodes[name] = &collidingNode{
						name: name, engine: engine.New(name), model: models[name],
						judge: newJudge(rt, name, backend, narrow(renderers()[backend])),
					}
				}
				before := &oracle.Cluster{}
				for range rapid.IntRange(1, 4).Draw(rt, "steps") {
					after := nextCluster(rt, before)
					for _, name := range slices.Sorted(maps.Keys(nodes)) {
						n := nodes[name]
						n.become(rt, before, after)
						n.check(rt)
						again, shuffled := n.restart(rt, backend, narrow), n.restart(rt, backend, narrow)
						if d := cmp.Diff(again.kept.text(), shuffled.kept.text()); d != "" {
							rt.Fatalf("%s: chains depend on the order of updates:\n%s", name, d)
						}
						if d := cmp.Diff(slices.Sorted(maps.Keys(n.judge.kept)), slices.Sorted(maps.Keys(again.kept))); d != "" {
							rt.Fatalf("%s: a restart has other names:\n%s", name, d)
						}
						refused += len(n.judge.endpoints.Refusals())
					}
					for _, p := range policytest.Packets(rt, after) {
						egress, ingress := policytest.Judge(models, after, p)
						for d, want := range map[model.Direction]bool{model.Egress: egress, model.Ingress: ingress} {
							compared += compareVerdict(rt, nodes, after, d, p, want)
						}
					}
					before = after
				}
			})
			if refused == 0 || compared == 0 {
				t.Errorf("%d objects were refused, %d verdicts of open pods compared", refused, compared)
			}
		})
	}
}

// nextCluster draws a cluster, or removes one policy from the previous one. Then only
// objects that waited for its names change.
func nextCluster(t *rapid.T, before *oracle.Cluster) *oracle.Cluster {
	policies := len(before.Policies)
	all := policies + len(before.ClusterPolicies)
	if all == 0 || rapid.Bool().Draw(t, "new cluster") {
		return policytest.TieredCluster(t)
	}
	after := *before
	if i := rapid.IntRange(0, all-1).Draw(t, "removed"); i < policies {
		after.Policies = slices.Delete(slices.Clone(before.Policies), i, i+1)
	} else {
		after.ClusterPolicies = slices.Delete(slices.Clone(before.ClusterPolicies), i-policies, i-policies+1)
	}
	return &after
}

// compareVerdict compares the verdict of the local pod's node with that of the model,
// and returns 1 if they have to be the same.
func compareVerdict(t *rapid.T, nodes map[string]*collidingNode, c *oracle.Cluster, d model.Direction, p oracle.Packet, want bool) int {
	local, peer := p.Destination, p.Source
	if d == model.Egress {
		local, peer = peer, local
	}
	for _, n := range nodes {
		for id, addrs := range n.attached {
			if !slices.Contains(addrs, local) || slices.Contains(addrs, peer) || ownAddress(n.model.Nodes[n.name], peer) {
				continue
			}
			got := n.judge.allows(d, p)
			closed := n.judge.closed(d, id)
			if got && !want || got != want && !closed {
				t.Fatalf("%s: %s of %v: allowed %t, policy says %t, closed %t", n.name, d, fmt.Sprint(p), got, want, closed)
			}
			if !closed {
				return 1
			}
		}
	}
	return 0
}

func ownAddress(n *model.Node, a netip.Addr) bool {
	f := model.FamilyOf(a)
	return n != nil && (n.Address(f) == a || n.Gateway(f) == a)
}
