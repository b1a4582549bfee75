package policyflows

import (
	"context"
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
	"github.com/felixlike/felixlike/test/ovstest"
)

// shape is a workload: every policy has half of its rules for each direction,
// each rule one group and one port, and every pod a row of policies.
type shape struct{ pods, policies, rules, groups, members, perPod int }

// w1 is the workload that all backends are measured with.
func w1() shape { return shape{1000, 1000, 10, 500, 20, 10} }

func nth(base netip.Addr, n int) netip.Addr {
	b := base.As4()
	n += int(b[2])<<8 | int(b[3])
	b[1] += byte(n >> 16)
	b[2], b[3] = byte(n>>8), byte(n)
	return netip.AddrFrom4(b)
}

func groupID(n int) model.GroupID { return model.GroupID(fmt.Sprintf("a%d", n)) }

func (w shape) member(n int) model.Member {
	return model.AddressMember(nth(netip.MustParseAddr("10.64.0.0"), n))
}

func (w shape) policy(n int) *model.Policy {
	p := &model.Policy{ID: networkPolicy(fmt.Sprintf("policy-%d", n))}
	for i := range w.rules {
		r := model.Rule{
			Action: model.Allow, Peers: []model.GroupID{groupID((n*w.rules + i) % w.groups)},
			Ports: []model.PortRange{tcp(uint16(8000+i), uint16(8000+i))},
		}
		if i < w.rules/2 {
			p.Ingress = append(p.Ingress, r)
		} else {
			p.Egress = append(p.Egress, r)
		}
	}
	return p
}

func (w shape) pod(n int) Pod {
	var applied model.Applied
	for i := range w.perPod {
		applied.NetworkPolicies = append(applied.NetworkPolicies, networkPolicy(fmt.Sprintf("policy-%d", (n+i)%w.policies)))
	}
	return Pod{
		Interface: fmt.Sprintf("fx-%04d", n), ID: model.PodID{Namespace: "default", Name: fmt.Sprintf("pod-%d", n)}, Port: uint32(n + 10),
		Addresses: []netip.Addr{nth(netip.MustParseAddr("10.10.0.2"), n)}, Open: true, Ingress: applied, Egress: applied,
	}
}

func (w shape) load(s *Store) {
	for g := range w.groups {
		var all []model.Member
		for i := range w.members {
			all = append(all, w.member(i*w.groups+g))
		}
		s.UpdateGroup(groupID(g), all, nil)
	}
	for n := range w.policies {
		s.SetPolicy(w.policy(n))
	}
	for n := range w.pods {
		s.SetPod(w.pod(n))
	}
	s.Complete()
}

// TestFlowsAreTheSumOfTheDimensions loads growing numbers of policies and
// compares the flows with what the dimensions have in sum: a clause for each pod
// and each member in each direction and lane, the ports, for each rule where it
// leads and what counts it, and for each pod what isolates and what closes it.
func TestFlowsAreTheSumOfTheDimensions(t *testing.T) {
	for _, policies := range []int{1, 10, 100, 400, 1600} {
		w := shape{pods: 200, policies: policies, rules: 10, groups: 50, members: 20, perPod: min(policies, 10)}
		s, r := newStore(model.IPv4)
		w.load(s)
		rules := policies * w.rules
		lanes := s.placer.layers[ruleIngress].lanes
		constant := len(deniedFlows(nil)) + len(pipeline.Judged())
		bound := 2*lanes*(w.pods+w.groups*w.members+w.rules/2) + 4*w.pods + 3*rules + constant
		if got := len(r.all()); got > bound {
			t.Errorf("%d policies: %d flows, more than %d", policies, got, bound)
		} else {
			t.Logf("%d policies of %d rules in %d lanes: %d flows, bound %d", policies, w.rules, lanes, got, bound)
		}
	}
}

// TestNoCrossProducts has one policy between many pods: flows grow by one for
// each pod and direction, not with pairs.
func TestNoCrossProducts(t *testing.T) {
	for _, pods := range []int{10, 100, 1000} {
		w := shape{pods: pods, policies: 1, rules: 2, groups: 1, members: pods, perPod: 1}
		s, r := newStore(model.IPv4)
		w.load(s)
		// Applied to, peer, isolated, and twice closed in IPv6; ports, actions, counters, what is always there.
		if got, want := len(r.all()), 2*4*pods+2+2*3+len(deniedFlows(nil))+len(pipeline.Judged()); got != want {
			t.Errorf("%d pods: %d flows, want %d", pods, got, want)
		}
	}
}

// touched is a Flows that counts how much is set.
type touched struct {
	*openflow.FlowTable
	groups int
}

func (f *touched) SetFlows(key string, render func() []openflow.Flow) {
	f.groups++
	f.FlowTable.SetFlows(key, render)
}

// TestChangesTouchOnlyTheirClauses counts the flows that are sent at the size of
// W1.
func TestChangesTouchOnlyTheirClauses(t *testing.T) {
	w := w1()
	b := ovstest.NewBridge(t)
	s, p := onSwitch(t, b)
	w.load(s)
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	t.Cleanup(cancel)
	var took []time.Duration
	apply := func(what string, least, most int, change func()) {
		t.Helper()
		began := time.Now()
		change()
		s.Complete()
		got, err := p.Apply(ctx)
		if err != nil {
			t.Fatal(err)
		}
		took = append(took, time.Since(began))
		t.Logf("%s: %d messages, %d flows, %v", what, got.Messages, got.Rules, took[len(took)-1])
		if got.Messages < least || got.Messages > most {
			t.Errorf("%s: %d messages, want %d to %d", what, got.Messages, least, most)
		}
	}
	apply("load", 30_000, 90_000, func() {})
	apply("nothing", 0, 0, func() {})
	// A member is in a lane of each direction that its group's rules are in.
	fresh := model.AddressMember(netip.MustParseAddr("10.99.0.1"))
	lanes := s.placer.layers[ruleIngress].lanes
	took = nil
	for range 10 {
		apply("a pod into a group", 1, 2*lanes, func() { s.UpdateGroup(groupID(7), []model.Member{fresh}, nil) })
		apply("a pod out of a group", 1, 2*lanes, func() { s.UpdateGroup(groupID(7), nil, []model.Member{fresh}) })
	}
	slices.Sort(took)
	t.Logf("median of %d changes of a group, until the switch has answered: %v", len(took), took[len(took)/2])
	// The rule's port, of the old and of the new number.
	apply("a rule's port", 1, 2, func() {
		changed := w.policy(3)
		changed.Ingress[2].Ports[0] = tcp(8003, 8003)
		s.SetPolicy(changed)
	})
	// Its members, of the old and of the new group.
	apply("a rule's peers", 2*w.members, 2*w.members, func() {
		changed := w.policy(4)
		changed.Ingress[2].Peers[0] = groupID(499)
		s.SetPolicy(changed)
	})
	// A restart, of the agent alone: nothing is written.
	s, p = onSwitch(t, b)
	w.load(s)
	changed := w.policy(3)
	changed.Ingress[2].Ports[0] = tcp(8003, 8003)
	s.SetPolicy(changed)
	changed = w.policy(4)
	changed.Ingress[2].Peers[0] = groupID(499)
	s.SetPolicy(changed)
	apply("restart", 0, 0, func() {})
}

func BenchmarkStore(b *testing.B) {
	b.Run("load", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			table := openflow.NewFlowTable(pipeline.PolicyOwner, pipeline.Version)
			s := New(Options{Flows: table})
			s.SetFamilies([]model.Family{model.IPv4})
			w1().load(s)
		}
	})
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	table := openflow.NewFlowTable(pipeline.PolicyOwner, pipeline.Version)
	flows := &touched{FlowTable: table}
	s := New(Options{Flows: flows})
	s.SetFamilies([]model.Family{model.IPv4})
	w := w1()
	w.load(s)
	runtime.GC()
	runtime.ReadMemStats(&after)
	held := float64(after.HeapAlloc-before.HeapAlloc) / (1 << 20)
	fresh := []model.Member{model.AddressMember(netip.MustParseAddr("10.99.0.1"))}
	change := func(name string, change func(n int)) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			flows.groups = 0
			n := 0
			for b.Loop() {
				change(n)
				s.Complete()
				n++
			}
			b.ReportMetric(float64(flows.groups)/float64(n), "groups/op")
			b.ReportMetric(held, "MB-held")
			b.ReportMetric(float64(table.Len()), "flows")
		})
	}
	change("member", func(n int) {
		if n%2 == 0 {
			s.UpdateGroup(groupID(7), fresh, nil)
		} else {
			s.UpdateGroup(groupID(7), nil, fresh)
		}
	})
	change("rule", func(n int) {
		p := w.policy(3)
		p.Ingress[2].Ports[0] = tcp(uint16(9000+n%2), uint16(9000+n%2))
		s.SetPolicy(p)
	})
	change("pod", func(n int) {
		if n%2 == 0 {
			s.RemovePod("fx-0005")
		} else {
			s.SetPod(w.pod(5))
		}
	})
}
