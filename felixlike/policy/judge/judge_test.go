package judge_test

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/felixlike/felixlike/felixlike/policy"
	"github.com/felixlike/felixlike/felixlike/policy/judge"
	"github.com/felixlike/felixlike/felixlike/policy/oracle"
	"github.com/felixlike/felixlike/internal/seeded"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/policytest"
)

// node is the judge of one node, and the engine that feeds it.
type node struct {
	engine    *policy.Engine
	judge     *judge.Judge
	endpoints map[model.PodID]*model.Endpoint
	policies  map[model.PolicyID]*model.Policy
	staged    model.StagedUpdate
}

// become makes the node one of a cluster, by updates of the engine.
func (n *node) become(c, before *oracle.Cluster) {
	for _, o := range before.Policies {
		n.engine.DeleteNetworkPolicy(o.Namespace, o.Name)
	}
	for _, o := range before.ClusterPolicies {
		n.engine.DeleteClusterNetworkPolicy(o.Name)
	}
	for _, o := range before.Antrea.All() {
		n.engine.DeleteAntrea(o.ID())
	}
	for _, o := range before.Pods {
		n.engine.DeletePod(policytest.PodID(o))
	}
	for _, o := range c.Nodes {
		n.engine.SetNode(o)
	}
	for _, o := range c.Namespaces {
		n.engine.SetNamespace(o)
	}
	for _, o := range c.Pods {
		n.engine.SetPod(o)
	}
	for _, o := range c.Policies {
		n.engine.SetNetworkPolicy(o)
	}
	for _, o := range c.ClusterPolicies {
		n.engine.SetClusterNetworkPolicy(o)
	}
	n.engine.SetIsolation(c.Antrea.Isolation)
	for _, o := range c.Antrea.All() {
		n.engine.SetAntrea(o)
	}
	for _, u := range n.engine.Flush() {
		n.judge.OnUpdate(u)
		switch u := u.(type) {
		case model.EndpointUpdate:
			n.endpoints[u.Endpoint.ID] = u.Endpoint
		case model.EndpointRemove:
			delete(n.endpoints, u.ID)
		case model.PolicyUpdate:
			n.policies[u.Policy.ID] = u.Policy
		case model.PolicyRemove:
			delete(n.policies, u.ID)
		case model.StagedUpdate:
			n.staged = u
		}
	}
}

// withStaged returns a judge that has the staged policies too, and the policies of a pod if they were enforced.
func (n *node) withStaged(id model.PodID) (*judge.Judge, *model.Endpoint) {
	j, e := judge.New(), n.endpoints[id]
	for _, u := range n.engine.Snapshot() {
		j.OnUpdate(u)
	}
	for _, p := range n.staged.Policies {
		j.OnUpdate(model.PolicyUpdate{Policy: p})
	}
	for _, s := range n.staged.Endpoints {
		if s.ID == id {
			e = s
		}
	}
	return j, e
}

// ofPacket returns a judge that has only the members of groups that concern a packet.
func (n *node) ofPacket(p judge.Packet) *judge.Judge {
	j := judge.New()
	for _, policy := range n.policies {
		j.OnUpdate(model.PolicyUpdate{Policy: policy})
		for _, d := range model.Directions() {
			for _, r := range policy.Rules(d) {
				for _, id := range slices.Concat(r.Peers, r.NamedPorts) {
					members := slices.Concat(n.engine.MembersAt(id, p.Source, p.Protocol, p.Port), n.engine.MembersAt(id, p.Destination, p.Protocol, p.Port))
					j.OnUpdate(model.GroupUpdate{Group: model.Group{ID: id}, Added: members})
				}
			}
		}
	}
	return j
}

// TestAgreesWithOracle judges packets of random clusters as the oracle does, at both ends, and again after the
// updates from one cluster to another. The members that policy.Engine.MembersAt returns are enough for that.
func TestAgreesWithOracle(t *testing.T) {
	judged, denied := 0, 0
	seeded.Check(t, func(t *rapid.T) {
		clusters := []*oracle.Cluster{policytest.AntreaCluster(t), policytest.AntreaCluster(t)}
		nodes := map[string]*node{}
		before := &oracle.Cluster{}
		for _, c := range clusters {
			for _, o := range c.Nodes {
				if nodes[o.Name] == nil {
					nodes[o.Name] = &node{policy.New(o.Name), judge.New(), map[model.PodID]*model.Endpoint{}, map[model.PolicyID]*model.Policy{}, model.StagedUpdate{}}
				}
			}
			for _, n := range nodes {
				n.become(c, before)
			}
			before = c
			for _, p := range policytest.Packets(t, c) {
				v := c.Evaluate(p)
				for d, want := range map[model.Direction]oracle.Decision{model.Egress: v.Egress, model.Ingress: v.Ingress} {
					if !asksPolicy(want) {
						continue
					}
					pod := podAt(c, p, d)
					e := nodes[pod.Spec.NodeName].endpoints[policytest.PodID(pod)]
					if e == nil {
						continue // of a node that the cluster does not have
					}
					got := nodes[pod.Spec.NodeName].judge.Decide(e.Applied(d), d, judge.Packet(p))
					if got.Action.Denies() == want.Allowed || got.Isolated != (want.Why == oracle.Isolated) {
						t.Fatalf("%s, %s: %+v, the oracle says %+v", p, d, got, want)
					}
					if few := nodes[pod.Spec.NodeName].ofPacket(judge.Packet(p)).Decide(e.Applied(d), d, judge.Packet(p)); few != got {
						t.Fatalf("%s, %s: with the members at its addresses %+v, with all members %+v", p, d, few, got)
					}
					judged++
					if !want.Allowed {
						denied++
					}
				}
			}
		}
	})
	t.Logf("%d packets judged, %d denied", judged, denied)
	if judged < 100 || denied < 10 {
		t.Error("too few packets: the test shows nothing")
	}
}

// podAt returns the pod whose policies are asked.
func podAt(c *oracle.Cluster, p oracle.Packet, d model.Direction) *corev1.Pod {
	at := p.Destination
	if d == model.Egress {
		at = p.Source
	}
	for _, pod := range c.Pods {
		if pod.Spec.HostNetwork || pod.Status.Phase != corev1.PodRunning {
			continue
		}
		for _, ip := range pod.Status.PodIPs {
			if ip.IP == at.String() {
				return pod
			}
		}
	}
	return nil
}

// TestUsersOf: the policies that name a group, by its peers or named ports.
func TestUsersOf(t *testing.T) {
	j := judge.New()
	for name, r := range map[string]model.Rule{
		"peers": {Peers: []model.GroupID{"a1"}}, "ports": {NamedPorts: []model.GroupID{"p1"}}, "none": {AnyPeer: true},
	} {
		j.OnUpdate(model.PolicyUpdate{Policy: &model.Policy{ID: model.PolicyID{Name: name}, Egress: []model.Rule{r}}})
	}
	if all := j.UsersOf(map[model.GroupID]bool{"a1": true, "p1": true, "a2": true}); len(all) != 2 {
		t.Errorf("%v", all)
	}
	if all := j.UsersOf(nil); all != nil {
		t.Errorf("%v", all)
	}
}

// TestStagedAgreesWithOracle stages policies of random clusters, and enforces some again: they are not enforced, and the engine's list of them
// judges as the oracle does if they were.
func TestStagedAgreesWithOracle(t *testing.T) {
	denied, more := 0, 0
	seeded.Check(t, func(t *rapid.T) {
		c := policytest.AntreaCluster(t)
		nodes := map[string]*node{}
		before := &oracle.Cluster{}
		for range 2 {
			policytest.Stage(t, c)
			for _, o := range c.Nodes {
				if nodes[o.Name] == nil {
					nodes[o.Name] = &node{policy.New(o.Name), judge.New(), map[model.PodID]*model.Endpoint{}, map[model.PolicyID]*model.Policy{}, model.StagedUpdate{}}
				}
				nodes[o.Name].become(c, before)
			}
			before = &oracle.Cluster{} // the objects are replaced
			all := *c
			all.EnforceStaged = true
			for _, p := range policytest.Packets(t, c) {
				enforced, together := c.Evaluate(p), all.Evaluate(p)
				for _, d := range model.Directions() {
					now, then := enforced.Egress, together.Egress
					if d == model.Ingress {
						now, then = enforced.Ingress, together.Ingress
					}
					if !asksPolicy(now) || !asksPolicy(then) {
						continue
					}
					pod := podAt(c, p, d)
					n := nodes[pod.Spec.NodeName]
					if n == nil || n.endpoints[policytest.PodID(pod)] == nil {
						continue
					}
					id := policytest.PodID(pod)
					if got := n.judge.Decide(n.endpoints[id].Applied(d), d, judge.Packet(p)); got.Action.Denies() == now.Allowed {
						t.Fatalf("%s, %s: enforced %+v, the oracle says %+v", p, d, got, now)
					}
					j, e := n.withStaged(id)
					if got := j.Decide(e.Applied(d), d, judge.Packet(p)); got.Action.Denies() == then.Allowed {
						t.Fatalf("%s, %s: with staged policies %+v, the oracle says %+v", p, d, got, then)
					}
					if !then.Allowed {
						denied++
						if now.Allowed {
							more++
						}
					}
				}
			}
		}
	})
	t.Logf("with staged policies %d packets are denied, %d of them only by these", denied, more)
	if more < 10 {
		t.Error("too few packets: the test shows nothing")
	}
}

// asksPolicy reports whether policies decided.
func asksPolicy(d oracle.Decision) bool {
	return slices.Contains([]oracle.Why{oracle.NotIsolated, oracle.RuleAllows, oracle.RuleDenies, oracle.Isolated}, d.Why)
}
