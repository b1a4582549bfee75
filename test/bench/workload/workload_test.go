package workload_test

import (
	"fmt"
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/felixlike/policy"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/bench/workload"
)

// counts are the numbers of updates.
type counts struct {
	nodes, groups, added, removed, policies, rules, endpoints, gone int
}

func count(t *testing.T, updates []model.Update) counts {
	t.Helper()
	var c counts
	for _, u := range updates {
		switch u := u.(type) {
		case model.NodeUpdate:
			c.nodes++
		case model.GroupUpdate:
			c.groups++
			c.added += len(u.Added)
			c.removed += len(u.Removed)
		case model.PolicyUpdate:
			c.policies++
			c.rules += len(u.Policy.Ingress) + len(u.Policy.Egress)
		case model.EndpointUpdate:
			c.endpoints++
		case model.EndpointRemove, model.PolicyRemove:
			c.gone++
		default:
			t.Errorf("unexpected update %+v", u)
		}
	}
	return c
}

// load feeds a workload to an engine and returns its first updates.
func load(t *testing.T, w workload.Workload) (*policy.Engine, []model.Update) {
	t.Helper()
	return loadObjects(t, w.Attachments(), w.Events())
}

func loadObjects(t *testing.T, attachments []model.Attachment, events []datastore.Event) (*policy.Engine, []model.Update) {
	t.Helper()
	e := policy.New(workload.Node)
	for _, a := range attachments {
		e.SetLocalAddresses(a.Pod, a.Addresses)
	}
	for _, event := range events {
		var problems []model.Problem
		switch o := event.(type) {
		case datastore.NodeSet:
			problems = e.SetNode(o.Node)
		case datastore.NamespaceSet:
			e.SetNamespace(o.Namespace)
		case datastore.PodSet:
			problems = e.SetPod(o.Pod)
		case datastore.NetworkPolicySet:
			problems = e.SetNetworkPolicy(o.Policy)
		default:
			t.Fatalf("unexpected event %T", event)
		}
		if len(problems) > 0 {
			t.Fatal(problems)
		}
	}
	return e, e.Flush()
}

func TestModelFollowsTheProfile(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	for _, p := range workload.Profiles() {
		t.Run(p.Name, func(t *testing.T) {
			w := workload.New(p)
			_, updates := load(t, w)
			peerNodes := (p.Groups*p.GroupSize + 99) / 100
			want := counts{
				nodes: 1 + peerNodes, groups: p.Groups, added: p.Groups * p.GroupSize,
				policies: p.Policies, rules: p.Policies * p.RulesPerPolicy, endpoints: p.Endpoints,
			}
			if got := count(t, updates); got != want {
				t.Errorf("updates %+v, want %+v", got, want)
			}
			lists := map[string]bool{}
			for _, u := range updates {
				switch u := u.(type) {
				case model.GroupUpdate:
					if len(u.Added) != p.GroupSize {
						t.Errorf("group %s has %d members", u.Group.Description, len(u.Added))
					}
				case model.PolicyUpdate:
					if len(u.Policy.Ingress) != p.RulesPerPolicy/2 || len(u.Policy.Egress) != p.RulesPerPolicy/2 {
						t.Errorf("policy %s has %d and %d rules", u.Policy.ID, len(u.Policy.Ingress), len(u.Policy.Egress))
					}
				case model.EndpointUpdate:
					in, out := u.Endpoint.Ingress.NetworkPolicies, u.Endpoint.Egress.NetworkPolicies
					if len(in) != p.PoliciesPerEndpoint || len(out) != p.PoliciesPerEndpoint {
						t.Errorf("endpoint %s has %d and %d policies", u.Endpoint.ID, len(in), len(out))
					}
					lists[fmt.Sprint(in)] = true
				}
			}
			if len(lists) != p.Endpoints {
				t.Errorf("%d distinct lists of policies for %d endpoints", len(lists), p.Endpoints)
			}
			if n := len(w.Attachments()); n != p.Endpoints {
				t.Errorf("%d attachments", n)
			}
		})
	}
}

func TestSameProfileSameObjects(t *testing.T) {
	p := workload.Profiles()[0]
	if a, b := workload.New(p), workload.New(p); !reflect.DeepEqual(a.Events(), b.Events()) || !reflect.DeepEqual(a.Attachments(), b.Attachments()) {
		t.Error("two runs give different objects")
	}
}

// TestChanges makes each change and takes it back, several times over, and
// counts the engine's updates.
func TestChanges(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	for _, p := range workload.Profiles() {
		t.Run(p.Name, func(t *testing.T) {
			w := workload.New(p)
			e, _ := load(t, w)
			check := func(what string, i int, want counts) {
				t.Helper()
				if got := count(t, e.Flush()); got != want {
					t.Errorf("%s %d: updates %+v, want %+v", what, i, got, want)
				}
			}
			users := p.Endpoints * p.PoliciesPerEndpoint / p.Policies
			for i := range 60 {
				changed, before := w.ChangedPolicy(i)
				for _, o := range []*networkingv1.NetworkPolicy{changed, before} {
					e.SetNetworkPolicy(o)
					check("rule changed", i, counts{policies: 1, rules: p.RulesPerPolicy})
				}
			}
			var members, endpoints []*corev1.Pod
			for i := range 60 {
				members = append(members, w.Member(i))
				e.SetPod(members[i])
				check("member", i, counts{groups: 1, added: 1})
				added := w.AddedPolicy(i)
				e.SetNetworkPolicy(added)
				check("policy", i, counts{policies: 1, rules: p.RulesPerPolicy, endpoints: users})
				e.DeleteNetworkPolicy(added.Namespace, added.Name)
				check("policy removed", i, counts{endpoints: users, gone: 1})
			}
			for i := range 60 {
				pod, a := w.Endpoint(i)
				endpoints = append(endpoints, pod)
				e.SetLocalAddresses(a.Pod, a.Addresses)
				e.SetPod(pod)
				check("endpoint", i, counts{endpoints: 1})
			}
			for i, o := range members {
				e.DeletePod(model.PodID{Namespace: o.Namespace, Name: o.Name})
				check("member removed", i, counts{groups: 1, removed: 1})
			}
			for i, o := range endpoints {
				e.DeletePod(model.PodID{Namespace: o.Namespace, Name: o.Name})
				check("endpoint removed", i, counts{gone: 1})
			}
		})
	}
}
