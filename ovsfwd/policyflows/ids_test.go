package policyflows

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
	"github.com/felixlike/felixlike/test/ovstest"
)

func ruleID(n int) RuleID {
	return RuleID{
		Policy:    model.PolicyID{Tier: model.TierNetworkPolicy, Namespace: fmt.Sprintf("ns-%d", n%97), Name: fmt.Sprintf("policy-%d", n/10)},
		Direction: model.Ingress + model.Direction(n%2), Index: n % 10,
	}
}

// TestIDsOfNamesakes: policies of one name may be of several APIs, parts and namespaces. Their rules
// have hashes and notes of their own, by which they keep their ids over a restart.
func TestIDsOfNamesakes(t *testing.T) {
	rule := func(p model.PolicyID) RuleID {
		p.Tier, p.Name = model.TierAdmin, "web"
		return RuleID{Policy: p, Direction: model.Ingress}
	}
	hashes, notes := map[uint64]RuleID{}, map[openflow.NoteText]RuleID{}
	for _, r := range []RuleID{
		rule(model.PolicyID{}), rule(model.PolicyID{API: model.AntreaCluster}), rule(model.PolicyID{API: model.Antrea}),
		rule(model.PolicyID{API: model.AntreaCluster, Part: 1}), rule(model.PolicyID{API: model.AntreaCluster, Part: 256}),
		rule(model.PolicyID{API: model.AntreaCluster, Within: "a"}), rule(model.PolicyID{API: model.AntreaCluster, Within: "b"}),
		rule(model.PolicyID{API: model.AntreaCluster, Part: 1, Within: "a"}),
	} {
		if other, is := hashes[r.hash()]; is {
			t.Errorf("%s has the hash of %s", r, other)
		}
		if other, is := notes[r.note()]; is {
			t.Errorf("%s has the note of %s", r, other)
		}
		hashes[r.hash()], notes[r.note()] = r, r
	}
	if got := rule(model.PolicyID{}).hash(); got != 0xc42295eccf921e70 {
		t.Errorf("hash %#x of a policy of Kubernetes: an update would give its rules other ids", got)
	}
}

// notesOf are the notes that the switch has.
func notesOf(a *ids) map[openflow.NoteText]uint32 {
	notes := map[openflow.NoteText]uint32{}
	for r, id := range a.have {
		if a.displaced(r) {
			notes[r.note()] = id
		}
	}
	return notes
}

// TestIDsAreKept adds and removes rules, in batches, and restarts: every rule has an id
// of its own, and keeps it.
func TestIDsAreKept(t *testing.T) {
	hashes := map[string]func(RuleID) uint32{
		"as on a node": HashID,
		"colliding":    func(r RuleID) uint32 { return HashID(r) % 4096 },
		"a few bits":   func(r RuleID) uint32 { return HashID(r) % 8 },
		"at the end":   func(r RuleID) uint32 { return ^uint32(0) - HashID(r)%4096 },
		"all in one":   func(RuleID) uint32 { return 7 },
	}
	for name, hash := range hashes {
		t.Run(name, func(t *testing.T) {
			a, random := newIDs(hash), rand.New(rand.NewPCG(1, 2))
			known := map[RuleID]uint32{}
			for n := range 200 {
				for range random.IntN(40) {
					r := ruleID(random.IntN(400))
					if a.get(r) != 0 && random.IntN(2) == 0 {
						a.remove(r)
						delete(known, r)
					} else {
						a.add(r)
					}
				}
				a.settle()
				if n%5 == 0 {
					restarted := newIDs(hash)
					for r := range a.have {
						restarted.add(r)
					}
					restarted.adopt(notesOf(a))
					a = restarted
				}
				for r, id := range known {
					if a.get(r) != id {
						t.Fatalf("%s has id %d, had %d", r, a.get(r), id)
					}
				}
				known = maps.Clone(a.have)
				owners := map[uint32]bool{}
				for r, id := range known {
					if id == 0 || owners[id] || a.taken[id] != r {
						t.Fatalf("%s: id %d is not its own", r, id)
					}
					owners[id] = true
				}
			}
		})
	}
}

// TestIDsAtOnceFollowFromTheSet adds rules at once, in any order.
func TestIDsAtOnceFollowFromTheSet(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var first map[uint32]RuleID
	for range 10 {
		a := newIDs(func(r RuleID) uint32 { return HashID(r) % 64 })
		for _, n := range random.Perm(300) {
			a.add(ruleID(n))
		}
		a.settle()
		if first == nil {
			first = a.taken
		}
		if !maps.Equal(first, a.taken) {
			t.Fatal("the ids depend on the order of arrival")
		}
	}
}

// TestLaterCollisionRewritesNothing: on a switch, two rules with one hash arrive one after
// the other, each first, the agent restarts, and one rule goes.
func TestLaterCollisionRewritesNothing(t *testing.T) {
	b := ovstest.NewBridge(t)
	policyOf := func(name string, action model.Action) *model.Policy {
		id := networkPolicy(name)
		if action != model.Allow {
			id = model.PolicyID{Tier: model.TierAdmin, Name: name}
		}
		return &model.Policy{ID: id, Ingress: []model.Rule{{Action: action, AnyPeer: true, Ports: []model.PortRange{tcp(80, 80)}}}}
	}
	for _, action := range []model.Action{model.Allow, model.Deny, model.Pass, model.Reject} {
		policies := []*model.Policy{policyOf("a", action), policyOf("b", action)}
		for first, second := range []int{1, 0} {
			var s *Store
			var conn *openflow.Conn
			var apply func() openflow.Result
			start := func(all ...*model.Policy) {
				var err error
				if conn, err = openflow.Dial(b.Context(), b.Management()); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = conn.Close() })
				table := openflow.NewFlowTable(pipeline.PolicyOwner, pipeline.Version)
				table.Connect(conn)
				s = New(Options{Flows: table, HashID: func(RuleID) uint32 { return 1000 }})
				s.SetFamilies([]model.Family{model.IPv4})
				s.SetPod(testPod(3, appliedOf(policies...), model.Applied{}))
				for _, p := range all {
					s.SetPolicy(p)
				}
				if err := s.Adopt(b.Context(), conn); err != nil {
					t.Fatal(err)
				}
				apply = func() openflow.Result {
					t.Helper()
					s.Complete()
					r, err := table.Apply(b.Context())
					if err != nil {
						t.Fatal(err)
					}
					return r
				}
			}
			id := func(n int) uint32 { return s.ids.get(RuleID{policies[n].ID, model.Ingress, 0}) }
			check := func(when string) {
				t.Helper()
				if id(first) != 1000 || id(second) != 1001 {
					t.Errorf("%s, %s: rule %d has id %d, rule %d has id %d", action, when, first, id(first), second, id(second))
				}
			}
			b.Run("ovs-ofctl", "-O", "OpenFlow15", "del-flows", "unix:"+b.Management())
			start(policies[first])
			apply()
			s.SetPolicy(policies[second])
			apply()
			check("after the second")
			start(policies...)
			if r := apply(); r.Messages != 0 {
				t.Errorf("%s: %d changes after a restart", action, r.Messages)
			}
			check("after a restart")
			if hits, err := Count(b.Context(), conn, []RuleID{{policies[0].ID, model.Ingress, 0}}); err != nil || len(hits) != 1 {
				t.Errorf("%s: hits %v, %v", action, hits, err)
			}
			s.RemovePolicy(policies[first].ID)
			apply()
			if id(second) != 1001 {
				t.Errorf("%s: id %d after the other rule has gone", action, id(second))
			}
		}
	}
}

func appliedOf(policies ...*model.Policy) model.Applied {
	var ids []model.PolicyID
	for _, p := range policies {
		ids = append(ids, p.ID)
	}
	return apply(ids...)
}

func TestIDsSpread(t *testing.T) {
	seen := map[uint32]bool{}
	for n := range 20_000 {
		seen[HashID(ruleID(n))] = true
	}
	// Some 0.05 collisions are expected of 20,000 in 2^32.
	if len(seen) < 20_000-3 {
		t.Errorf("%d collisions", 20_000-len(seen))
	}
}

func TestIDsOfRulesAreThoseOfTheStore(t *testing.T) {
	s := New(Options{Flows: newRecorder()})
	var all []RuleID
	for n := range 50 {
		r := ruleID(n * 10)
		r.Direction, r.Index = model.Egress, 0
		all = append(all, r)
		s.SetPolicy(&model.Policy{ID: r.Policy, Egress: []model.Rule{{Action: model.Allow, AnyPeer: true}}})
	}
	s.Complete()
	known := IDs(all)
	for _, r := range s.rules {
		if known[r.id] != r.RuleID {
			t.Errorf("the id of %s is that of %s", r.RuleID, known[r.id])
		}
	}
	if len(known) != len(s.rules) {
		t.Errorf("%d ids for %d rules", len(known), len(s.rules))
	}
}
