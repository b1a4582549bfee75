package policyflows

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"pgregory.net/rapid"

	"github.com/felixlike/felixlike/model"
)

// world keeps the input of a store plainly, and judges packets as the comments of package
// model say.
type world struct {
	families []model.Family
	groups   map[model.GroupID]map[model.Member]bool
	policies map[model.PolicyID]*model.Policy
	pods     map[string]Pod
	// closed are the policies whose pods are closed.
	closed map[side]bool
	// crowded says that all sets of ports are crowded.
	crowded bool
}

func newWorld() *world {
	return &world{
		families: model.Families(), groups: map[model.GroupID]map[model.Member]bool{},
		policies: map[model.PolicyID]*model.Policy{}, pods: map[string]Pod{}, closed: map[side]bool{},
	}
}

func universe() []netip.Addr {
	return addrs("10.0.0.1", "10.0.0.2", "10.0.1.1", "10.1.0.1", "192.0.2.1", "fd00::1", "fd00::2", "fd01::1")
}

func prefixes() []string {
	return []string{
		"0.0.0.0/0", "::/0", "10.0.0.0/8", "10.0.0.0/24", "10.0.0.1/32", "10.0.1.0/31", "192.0.2.0/24", "fd00::/64", "fd00::2/128",
	}
}

func drawPolicyID(t *rapid.T) model.PolicyID {
	switch namespace := rapid.SampledFrom([]string{"x", "y"}); rapid.IntRange(0, 8).Draw(t, "before tiers") {
	case 0, 1:
		return model.IsolationOf(namespace.Draw(t, "namespace"))
	case 2, 3:
		return model.PolicyID{Tier: model.TierAdmin, API: model.EgressNetworkPolicy, Namespace: namespace.Draw(t, "namespace"), Name: "e"}
	}
	tier := rapid.SampledFrom([]model.Tier{model.TierNetworkPolicy, model.TierAdmin, model.TierBaseline}).Draw(t, "tier")
	return model.PolicyID{Tier: tier, Name: rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "policy")}
}

func drawGroupID(t *rapid.T, kinds ...string) model.GroupID {
	kind := rapid.SampledFrom(kinds).Draw(t, "kind")
	return model.GroupID(kind + rapid.SampledFrom([]string{"1", "2"}).Draw(t, "group"))
}

func drawMember(t *rapid.T, id model.GroupID) model.Member {
	a := model.AddressMember(rapid.SampledFrom(universe()).Draw(t, "address"))
	switch id[0] {
	case 'n':
		a.Prefix = netip.MustParsePrefix(rapid.SampledFrom(prefixes()).Draw(t, "prefix"))
	case 'p':
		a.Protocol, a.Port = drawProtocol(t), drawPort(t)
	}
	return a
}

func drawProtocol(t *rapid.T) model.Protocol {
	return rapid.SampledFrom([]model.Protocol{model.TCP, model.UDP, model.SCTP}).Draw(t, "protocol")
}

func drawPort(t *rapid.T) uint16 { return rapid.Uint16Range(78, 84).Draw(t, "port") }

func drawRule(t *rapid.T, tier model.Tier) model.Rule {
	r := model.Rule{
		Action:  model.Allow,
		AnyPeer: rapid.IntRange(0, 3).Draw(t, "any peer") == 0, AnyPort: rapid.IntRange(0, 3).Draw(t, "any port") == 0,
	}
	if tier != model.TierNetworkPolicy {
		r.Action = rapid.SampledFrom([]model.Action{model.Allow, model.Deny, model.Pass, model.Reject}).Draw(t, "action")
	}
	for range rapid.IntRange(0, 2).Draw(t, "peers") {
		r.Peers = append(r.Peers, drawGroupID(t, "a", "n"))
	}
	for range rapid.IntRange(0, 2).Draw(t, "ports") {
		ports := model.PortRange{Protocol: drawProtocol(t), Last: 65535}
		if rapid.Bool().Draw(t, "range") {
			ports.First = drawPort(t)
			ports.Last = ports.First + rapid.Uint16Range(0, 3).Draw(t, "more")
		}
		r.Ports = append(r.Ports, ports)
	}
	for range rapid.IntRange(0, 1).Draw(t, "names") {
		r.NamedPorts = append(r.NamedPorts, drawGroupID(t, "p"))
	}
	return r
}

func drawRules(t *rapid.T, tier model.Tier) []model.Rule {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) model.Rule { return drawRule(t, tier) }), 0, 3).Draw(t, "rules")
}

// leaving draws the rules of an EgressNetworkPolicy: what stays in the cluster, and what is denied.
func leaving(t *rapid.T) []model.Rule {
	return []model.Rule{
		{Action: model.Next, Peers: []model.GroupID{drawGroupID(t, "n")}, AnyPort: true},
		{Action: model.Deny, Peers: []model.GroupID{drawGroupID(t, "n"), drawGroupID(t, "n")}, AnyPort: true},
	}
}

// isolation draws the rules of an isolation: the namespaces and nodes that it does not concern, and the others.
func isolation(t *rapid.T) []model.Rule {
	return []model.Rule{
		{Action: model.Next, Peers: []model.GroupID{drawGroupID(t, "a"), drawGroupID(t, "a")}, AnyPort: true},
		{Action: model.Deny, Peers: []model.GroupID{drawGroupID(t, "n")}, AnyPort: true},
	}
}

func (w *world) drawApplied(t *rapid.T) model.Applied {
	ids := rapid.SliceOfNDistinct(rapid.Custom(drawPolicyID), 0, 5, func(id model.PolicyID) model.PolicyID { return id }).Draw(t, "applied")
	// A pod has one namespace.
	seen := map[model.PolicyAPI]bool{}
	return apply(slices.DeleteFunc(ids, func(id model.PolicyID) bool {
		again := id.BeforeTiers() && seen[id.API]
		seen[id.API] = true
		return again
	})...)
}

// change makes one random change in the world and the store.
func (w *world) change(t *rapid.T, s *Store) {
	switch rapid.SampledFrom([]string{"group", "group", "policy", "policy", "pod", "remove", "families"}).Draw(t, "change") {
	case "group":
		id := drawGroupID(t, "a", "n", "p")
		if w.groups[id] == nil {
			w.groups[id] = map[model.Member]bool{}
		}
		m := drawMember(t, id)
		if w.groups[id][m] {
			delete(w.groups[id], m)
			s.UpdateGroup(id, nil, []model.Member{m})
		} else {
			w.groups[id][m] = true
			s.UpdateGroup(id, []model.Member{m}, nil)
		}
	case "policy":
		p := &model.Policy{ID: drawPolicyID(t)}
		if p.ID.Tier != model.TierNetworkPolicy {
			p.Precedence = model.Precedence{Tier: rapid.Uint16Range(0, 2).Draw(t, "tier"), Priority: float64(rapid.Uint16Range(0, 12).Draw(t, "priority"))}
		}
		switch p.ID.API {
		case model.Isolation:
			p.Precedence, p.Ingress = model.PrecedenceBeforeTiers(), isolation(t)
		case model.EgressNetworkPolicy:
			p.Precedence, p.Egress = model.PrecedenceBeforeTiers(), leaving(t)
		default:
			p.Ingress, p.Egress = drawRules(t, p.ID.Tier), drawRules(t, p.ID.Tier)
		}
		if old := w.policies[p.ID]; old != nil && rapid.Bool().Draw(t, "one direction") {
			p.Egress = old.Egress
		}
		w.policies[p.ID] = p
		s.SetPolicy(p)
	case "pod":
		n := rapid.IntRange(0, 3).Draw(t, "pod")
		p := Pod{
			Interface: fmt.Sprintf("fx-%d", n), ID: model.PodID{Namespace: "x", Name: fmt.Sprint(n)}, Port: uint32(n + 3),
			Addresses: []netip.Addr{universe()[n], netip.MustParseAddr(fmt.Sprintf("fd00::%d", n+1))}, Open: rapid.IntRange(0, 4).Draw(t, "open") > 0,
			Ingress: w.drawApplied(t), Egress: w.drawApplied(t),
		}
		if n == 3 {
			p.Port += rapid.Uint32Range(0, 1).Draw(t, "other port")
		}
		w.pods[p.Interface] = p
		s.SetPod(p)
	case "remove":
		w.remove(t, s)
	case "families":
		w.families = rapid.SampledFrom([][]model.Family{{model.IPv4}, model.Families(), model.Families()}).Draw(t, "families")
		s.SetFamilies(w.families)
	}
}

func (w *world) remove(t *rapid.T, s *Store) {
	switch rapid.SampledFrom([]string{"group", "policy", "pod"}).Draw(t, "removed") {
	case "group":
		id := drawGroupID(t, "a", "n", "p")
		delete(w.groups, id)
		s.RemoveGroup(id)
	case "policy":
		id := drawPolicyID(t)
		delete(w.policies, id)
		s.RemovePolicy(id)
	case "pod":
		name := fmt.Sprintf("fx-%d", rapid.IntRange(0, 3).Draw(t, "pod"))
		delete(w.pods, name)
		s.RemovePod(name)
	}
}

// store returns an empty store.
func (w *world) store() (*Store, *recorder) {
	s, r := newStore(w.families...)
	if w.crowded {
		crowd(s)
	}
	return s, r
}

// build gives a fresh store everything.
func (w *world) build() *recorder {
	s, r := w.store()
	for _, id := range slices.Sorted(maps.Keys(w.groups)) {
		s.UpdateGroup(id, slices.SortedFunc(maps.Keys(w.groups[id]), model.Member.Compare), nil)
	}
	for _, id := range slices.SortedFunc(maps.Keys(w.policies), model.PolicyID.Compare) {
		s.SetPolicy(w.policies[id])
	}
	for _, name := range slices.Sorted(maps.Keys(w.pods)) {
		s.SetPod(w.pods[name])
	}
	s.Complete()
	return r
}

// judge says whether a pod's policies of a direction let a new connection pass.
func (w *world) judge(d model.Direction, pod Pod, p packet) bool {
	applied := pod.Egress
	if d == model.Ingress {
		applied = pod.Ingress
	}
	if !pod.Open || !slices.Contains(w.families, model.FamilyOf(p.source)) {
		return false
	}
	for _, ids := range [][]model.PolicyID{applied.Admin, applied.NetworkPolicies, applied.Baseline} {
		for _, id := range ids {
			if w.closed[side{id, d}] {
				return false
			}
		}
	}
	switch w.ordered(d, applied.Admin, p) {
	case model.Allow:
		return true
	case model.Deny, model.Reject:
		return false
	}
	if applied.Isolated() {
		return w.ordered(d, applied.NetworkPolicies, p) == model.Allow
	}
	return !w.ordered(d, applied.Baseline, p).Denies()
}

// ordered returns the action of the first rule that matches, in order of
// precedence.
func (w *world) ordered(d model.Direction, ids []model.PolicyID, p packet) model.Action {
	var policies []*model.Policy
	for _, id := range ids {
		if w.policies[id] != nil {
			policies = append(policies, w.policies[id])
		}
	}
	slices.SortFunc(policies, func(a, b *model.Policy) int { return cmp.Or(a.Precedence.Compare(b.Precedence), a.ID.Compare(b.ID)) })
	for _, policy := range policies {
		for _, r := range policy.Rules(d) {
			peer := p.source
			if d == model.Egress {
				peer = p.destination
			}
			if w.peerMatches(r, peer) && w.portMatches(r, p) {
				if r.Action == model.Next {
					break
				}
				return r.Action
			}
		}
	}
	return 0
}

func (w *world) peerMatches(r model.Rule, peer netip.Addr) bool {
	return r.AnyPeer || slices.ContainsFunc(r.Peers, func(id model.GroupID) bool {
		for m := range w.groups[id] {
			if m.Prefix.Contains(peer) {
				return true
			}
		}
		return false
	})
}

func (w *world) portMatches(r model.Rule, p packet) bool {
	named := model.AddressMember(p.destination)
	named.Protocol, named.Port = p.protocol, p.destinationPort
	return r.AnyPort || slices.ContainsFunc(r.Ports, func(ports model.PortRange) bool {
		return ports.Protocol == p.protocol && ports.First <= p.destinationPort && p.destinationPort <= ports.Last
	}) || slices.ContainsFunc(r.NamedPorts, func(id model.GroupID) bool { return w.groups[id][named] })
}

// check compares the flows' verdicts on random packets with the world's.
func (w *world) check(t *rapid.T, r *recorder) {
	e := newEvaluator(t, r)
	for range 20 {
		peer := rapid.SampledFrom(universe()).Draw(t, "peer")
		p := packet{protocol: drawProtocol(t), destinationPort: drawPort(t)}
		if rapid.IntRange(0, 5).Draw(t, "icmp") == 0 {
			p.protocol, p.destinationPort = model.ICMP, 0
		}
		for _, name := range slices.Sorted(maps.Keys(w.pods)) {
			pod := w.pods[name]
			for _, own := range pod.Addresses {
				f := model.FamilyOf(own)
				if f != model.FamilyOf(peer) {
					continue
				}
				p.source, p.destination, p.port = own, peer, 0
				if got, want := e.allows(45, p), w.judge(model.Egress, pod, p); got != want {
					t.Fatalf("egress of %s: %s: flows %t, want %t\n%s", name, p, got, want, r.text())
				}
				p.source, p.destination, p.port = peer, own, pod.Port
				want := w.judge(model.Ingress, pod, p)
				if got := e.allows(85, p); got != want {
					t.Fatalf("ingress of %s: %s: flows %t, want %t\n%s", name, p, got, want, r.text())
				}
				if !w.adminIngress() && e.allows(90, p) != want {
					t.Fatalf("ingress of %s, without table 85: %s: want %t\n%s", name, p, want, r.text())
				}
			}
		}
	}
}

func (w *world) adminIngress() bool {
	for id, p := range w.policies {
		if id.Tier == model.TierAdmin && len(p.Ingress) > 0 {
			return true
		}
	}
	return false
}
