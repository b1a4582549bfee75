package managers

import (
	"net/netip"
	"slices"

	"github.com/felixlike/felixlike/felixlike/policy/oracle"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/rules"
	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/test/policytest"
)

// judge is the managers of a netfilter backend over drivers that record chains, sets
// and verdicts. It judges packets by these records.
type judge struct {
	t        interface{ Fatalf(string, ...any) }
	renderer *rules.Renderer
	kept     keeper
	sets     *recorder
	verdicts map[model.Direction]map[netip.Addr]tables.Action
	// trees is the dispatch of a driver without verdict maps, or nil.
	trees     *TreeDispatcher
	endpoints *EndpointManager
	managers  []Manager
}

// renderers are those of the netfilter backends; both variants of iptables have one.
func renderers() map[string]*rules.Renderer {
	return map[string]*rules.Renderer{
		"nftables": rules.NewRenderer("flx-gw0", rules.NFTablesNameLength),
		"iptables": rules.NewRenderer("flx-gw0", rules.IPTablesNameLength),
	}
}

func newJudge(t interface{ Fatalf(string, ...any) }, node, backend string, r *rules.Renderer) *judge {
	j := &judge{
		t: t, renderer: r, kept: keeper{}, sets: newRecorder(),
		verdicts: map[model.Direction]map[netip.Addr]tables.Action{model.Ingress: {}, model.Egress: {}},
	}
	var chains Chains = j.kept
	if backend == "iptables" {
		j.trees = NewTreeDispatcher(r, j.kept)
		chains = j.trees
	}
	j.endpoints = NewEndpointManager(r, chains, newRecorder(), j)
	j.managers = []Manager{
		NewDeniedManager(chains, r), NewStaticManager(node, r, chains, j.sets), NewIPSetManager(j.sets),
		NewPolicyManager(node, r, chains), j.endpoints,
	}
	return j
}

func (j *judge) SetVerdict(d model.Direction, a netip.Addr, v tables.Action) {
	j.verdicts[d][a] = v
	if j.trees != nil {
		j.trees.SetVerdict(d, a, v)
	}
}

func (j *judge) RemoveVerdict(d model.Direction, a netip.Addr) {
	delete(j.verdicts[d], a)
	if j.trees != nil {
		j.trees.RemoveVerdict(d, a)
	}
}

func (j *judge) Complete() {
	if j.trees != nil {
		j.trees.Complete()
	}
}

func (j *judge) send(updates ...model.Update) {
	for _, m := range j.managers {
		for _, u := range updates {
			m.OnUpdate(u)
		}
	}
	for _, m := range j.managers {
		m.CompleteDeferredWork()
	}
}

// allows judges a packet in a direction, by the address that is dispatched by.
func (j *judge) allows(d model.Direction, p oracle.Packet) bool {
	local := p.Destination
	if d == model.Egress {
		local = p.Source
	}
	mark := uint32(0)
	allowed, done := j.act(j.verdicts[d][local], p, &mark)
	return done && allowed
}

// act carries out an action; done says that it was the last one.
func (j *judge) act(a tables.Action, p oracle.Packet, mark *uint32) (allowed, done bool) {
	switch a := a.(type) {
	case tables.Accept:
		return true, true
	case tables.SetMark:
		*mark = *mark&^a.Mask | a.Value
		return false, false
	case tables.SetMarkAndReturn:
		return true, true // rules.MarkJudged
	case tables.Jump:
		return j.walk(a.Chain, p, mark)
	case tables.Goto:
		switch a.Chain {
		case rules.ChainAllowedOut:
			return true, true
		case rules.ChainDeniedIn, rules.ChainDeniedOut, rules.ChainRejectedIn, rules.ChainRejectedOut:
			return false, true
		}
		if allowed, done := j.walk(a.Chain, p, mark); done {
			return allowed, true
		}
		return *mark&rules.MarkJudged != 0, true
	}
	j.t.Fatalf("action %v", a)
	return false, true
}

func (j *judge) walk(name string, p oracle.Packet, mark *uint32) (allowed, done bool) {
	c, there := j.kept[name]
	if !there {
		j.t.Fatalf("chain %s is missing", name)
	}
	for _, r := range c.Rules {
		if slices.ContainsFunc(r.Matches, func(m tables.Match) bool { return !j.matches(m, p, *mark) }) {
			continue
		}
		if _, back := r.Action.(tables.Return); back {
			return false, false // passed on to the next tier
		}
		if allowed, done := j.act(r.Action, p, mark); done {
			return allowed, true
		}
	}
	return false, false
}

func addressOf(p oracle.Packet, s tables.Side) netip.Addr {
	if s == tables.Destination {
		return p.Destination
	}
	return p.Source
}

func (j *judge) matches(m tables.Match, p oracle.Packet, mark uint32) bool {
	switch m := m.(type) {
	case tables.MatchProtocol:
		return (m.Protocol == p.Protocol) != m.Negated
	case tables.MatchDestinationPorts:
		return m.First <= p.Port && p.Port <= m.Last
	case tables.MatchMark:
		return (mark&m.Mask == m.Value) != m.Negated
	case tables.MatchPrefix:
		return m.Prefix.Contains(addressOf(p, m.Side)) != m.Negated
	case tables.MatchSet:
		return policytest.Holds(j.sets.sets[m.Set], addressOf(p, m.Side))
	case tables.MatchPortSet:
		want := model.AddressMember(p.Destination)
		want.Protocol, want.Port = p.Protocol, p.Port
		return j.sets.sets[m.Set][want]
	}
	j.t.Fatalf("match %v", m)
	return false
}

// closed reports whether a pod is closed in a direction because of a collision.
func (j *judge) closed(d model.Direction, pod model.PodID) bool {
	return slices.ContainsFunc(j.endpoints.Refusals(), func(r tables.Refusal) bool {
		return r.Rule == d.String() && slices.Contains(r.Closed, pod.String())
	})
}
