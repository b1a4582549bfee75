package managers

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/felixlike/felixlike/ipsets"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/rules"
	"github.com/felixlike/felixlike/tables"
)

// recorder is a table driver that records chains, verdicts and set members.
type recorder struct {
	chains   map[string]string
	updates  []string
	verdicts map[string]string
	sets     map[string]map[model.Member]bool
}

func newRecorder() *recorder {
	return &recorder{chains: map[string]string{}, verdicts: map[string]string{}, sets: map[string]map[model.Member]bool{}}
}

func (r *recorder) UpdateChain(c tables.Chain) {
	r.chains[c.Name] = c.Text()
	r.updates = append(r.updates, c.Name)
}

func (r *recorder) RemoveChain(name string) { delete(r.chains, name) }

func (r *recorder) SetVerdict(d model.Direction, a netip.Addr, v tables.Action) {
	r.verdicts[fmt.Sprintf("%s %s", d, a)] = v.String()
}

func (r *recorder) RemoveVerdict(d model.Direction, a netip.Addr) {
	delete(r.verdicts, fmt.Sprintf("%s %s", d, a))
}

func (r *recorder) Complete() {}

func (r *recorder) CreateSet(s ipsets.Set) { r.sets[s.Name] = map[model.Member]bool{} }

func (r *recorder) AddMembers(name string, members []model.Member) {
	for _, m := range members {
		r.sets[name][m] = true
	}
}

func (r *recorder) RemoveMembers(name string, members []model.Member) {
	for _, m := range members {
		delete(r.sets[name], m)
	}
}

func (r *recorder) RemoveSet(name string) { delete(r.sets, name) }

func (r *recorder) chainsWith(prefix string) []string {
	var names []string
	for n := range r.chains {
		if strings.HasPrefix(n, prefix) {
			names = append(names, n)
		}
	}
	slices.Sort(names)
	return names
}

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

func pod(name string) model.PodID { return model.PodID{Namespace: "x", Name: name} }

func attachment(name, iface string, addrs ...string) model.AttachmentUpdate {
	a := &model.Attachment{Pod: pod(name), Interface: iface}
	for _, s := range addrs {
		a.Addresses = append(a.Addresses, addr(s))
	}
	return model.AttachmentUpdate{Attachment: a}
}

func policyID(name string) model.PolicyID {
	return model.PolicyID{Tier: model.TierNetworkPolicy, Namespace: "x", Name: name}
}

func policy(name string, rules int) model.PolicyUpdate {
	p := &model.Policy{ID: policyID(name)}
	for i := range rules {
		p.Ingress = append(p.Ingress, model.Rule{Name: fmt.Sprintf("ingress[%d]", i), Action: model.Allow, AnyPeer: true, AnyPort: true})
	}
	return model.PolicyUpdate{Policy: p}
}

func endpoint(name string, ingress ...string) model.EndpointUpdate {
	e := &model.Endpoint{ID: pod(name)}
	for _, p := range ingress {
		e.Ingress.NetworkPolicies = append(e.Ingress.NetworkPolicies, policyID(p))
	}
	return model.EndpointUpdate{Endpoint: e}
}

func send(m Manager, updates ...model.Update) {
	for _, u := range updates {
		m.OnUpdate(u)
	}
	m.CompleteDeferredWork()
}

func newEndpoints() (*EndpointManager, *recorder) {
	r := newRecorder()
	return NewEndpointManager(rules.NewRenderer("flx-gw0", 64), r, r, r), r
}

func TestAttachedButUnknownPodIsClosed(t *testing.T) {
	m, r := newEndpoints()
	send(m, attachment("a", "veth-a", "10.10.0.5", "fd00::5"))
	want := map[string]string{"ingress 10.10.0.5": "goto denied-in", "egress 10.10.0.5": "goto denied-out", "ingress fd00::5": "goto denied-in", "egress fd00::5": "goto denied-out"}
	if d := cmp.Diff(want, r.verdicts); d != "" {
		t.Error(d)
	}
	send(m, endpoint("a"))
	want = map[string]string{"ingress 10.10.0.5": "accept", "egress 10.10.0.5": "goto allowed-out", "ingress fd00::5": "accept", "egress fd00::5": "goto allowed-out"}
	if d := cmp.Diff(want, r.verdicts); d != "" {
		t.Error(d)
	}
	send(m, model.AttachmentRemove{Pod: pod("a"), Interface: "veth-a"})
	if len(r.verdicts) != 0 {
		t.Errorf("verdicts left: %v", r.verdicts)
	}
}

func TestPodsWithEqualPoliciesShareOneChain(t *testing.T) {
	m, r := newEndpoints()
	send(m, policy("base", 1))
	for i := range 50 {
		name := fmt.Sprintf("p%d", i)
		send(m, endpoint(name, "base"), attachment(name, "veth-"+name, fmt.Sprintf("10.10.0.%d", i+2)))
	}
	if got := r.chainsWith("pods-in"); len(got) != 1 {
		t.Fatalf("chains %v, want one", got)
	}
	if n := len(r.updates); n != 3 {
		t.Errorf("the shared chain and those that are common to all were set %d times, want once each", n)
	}
	for i := range 50 {
		send(m, model.EndpointRemove{ID: pod(fmt.Sprintf("p%d", i))})
	}
	if got := r.chainsWith("pods-in"); len(got) != 0 {
		t.Errorf("chains left without endpoints: %v", got)
	}
	if v := r.verdicts["ingress 10.10.0.2"]; v != "goto denied-in" {
		t.Errorf("attached pod without object: %q, want goto denied-in", v)
	}
}

func TestChainAsksOnlyPoliciesWithRules(t *testing.T) {
	m, r := newEndpoints()
	send(m, policy("deny", 0), endpoint("a", "deny"), attachment("a", "veth-a", "10.10.0.5"))
	name := r.chainsWith("pods-in")[0]
	if strings.Contains(r.chains[name], "jump") {
		t.Errorf("a policy without rules is asked:\n%s", r.chains[name])
	}
	send(m, policy("deny", 1))
	if !strings.Contains(r.chains[name], "jump") {
		t.Errorf("the policy has rules now, but is not asked:\n%s", r.chains[name])
	}
}

// USERS of ipsets elsewhere were hurt by it: a reused address, and the late
// removal of its first owner.
func TestLateRemovalOfReusedAddress(t *testing.T) {
	m, r := newEndpoints()
	send(m, policy("base", 1), endpoint("old"), endpoint("new", "base"))
	send(m, attachment("old", "veth-old", "10.10.0.5"))
	send(m, attachment("new", "veth-new", "10.10.0.5"))
	want := r.verdicts["ingress 10.10.0.5"]
	if !strings.HasPrefix(want, "goto pods-in") {
		t.Fatalf("verdict %q, want that of the new owner", want)
	}
	send(m, endpoint("old"))
	if got := r.verdicts["ingress 10.10.0.5"]; got != want {
		t.Errorf("an update of the old owner took the address back: %q", got)
	}
	send(m, model.AttachmentRemove{Pod: pod("old"), Interface: "veth-old"})
	if got := r.verdicts["ingress 10.10.0.5"]; got != want {
		t.Errorf("the late removal hurt the new owner: %q", got)
	}
}

func TestPolicyChainsComeAndGo(t *testing.T) {
	r := newRecorder()
	m := NewPolicyManager("node1", rules.NewRenderer("flx-gw0", 64), r)
	node := &model.Node{Name: "node1", PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.10.0.0/24")}}
	send(m, model.NodeUpdate{Node: node}, policy("base", 2))
	if got := r.chainsWith(""); len(got) != 1 {
		t.Fatalf("chains %v, want the ingress chain alone", got)
	}
	send(m, policy("base", 0))
	if got := r.chainsWith(""); len(got) != 0 {
		t.Errorf("chains left of a policy without rules: %v", got)
	}
	send(m, policy("base", 1))
	send(m, model.PolicyRemove{ID: policyID("base")})
	if got := r.chainsWith(""); len(got) != 0 {
		t.Errorf("chains left of a removed policy: %v", got)
	}
}

func TestGroupsBecomeSetsOfBothFamilies(t *testing.T) {
	r := newRecorder()
	m := NewIPSetManager(r)
	v4, v6 := model.AddressMember(addr("10.10.0.5")), model.AddressMember(addr("fd00::5"))
	group := model.Group{ID: "aone", Kind: model.Addresses}
	send(m, model.GroupUpdate{Group: group, Added: []model.Member{v4, v6}})
	want := map[string]map[model.Member]bool{"aone-4": {v4: true}, "aone-6": {v6: true}}
	if d := cmp.Diff(want, r.sets, cmp.Comparer(func(a, b model.Member) bool { return a == b })); d != "" {
		t.Error(d)
	}
	send(m, model.GroupUpdate{Group: group, Removed: []model.Member{v4}})
	if r.sets["aone-4"][v4] || !r.sets["aone-6"][v6] {
		t.Errorf("after removal: %v", r.sets)
	}
	send(m, model.GroupRemove{ID: "aone"})
	if len(r.sets) != 0 {
		t.Errorf("sets left: %v", r.sets)
	}
}

func TestPodNetworksFollowNodes(t *testing.T) {
	r := newRecorder()
	m := NewStaticManager("node1", rules.NewRenderer("flx-gw0", 64), r, r)
	node := func(name, cidr string) model.NodeUpdate {
		return model.NodeUpdate{Node: &model.Node{Name: name, PodCIDRs: []netip.Prefix{netip.MustParsePrefix(cidr)}}}
	}
	send(m, node("node1", "10.10.0.0/24"), node("node2", "10.10.1.0/24"))
	send(m, node("node2", "10.10.9.0/24"))
	has := func(cidr string) bool {
		return r.sets[rules.PodNetworksSet(model.IPv4)][model.Member{Prefix: netip.MustParsePrefix(cidr)}]
	}
	if !has("10.10.0.0/24") || has("10.10.1.0/24") || !has("10.10.9.0/24") {
		t.Errorf("pod networks: %v", r.sets)
	}
	send(m, model.NodeRemove{Name: "node2"})
	if has("10.10.9.0/24") {
		t.Error("prefix of a removed node is still believed to be a pod network")
	}
	if len(r.chainsWith("")) != 7 {
		t.Errorf("static chains: %v", r.chainsWith(""))
	}
}

// TestPodNetworksOfReplacedNodes has a prefix go from a node to another one at once, as
// after an outage in which a node was replaced, and keeps it while either has it.
func TestPodNetworksOfReplacedNodes(t *testing.T) {
	both := []netip.Prefix{netip.MustParsePrefix("10.10.1.0/24"), netip.MustParsePrefix("fd00:10:1::/64")}
	node := func(name string, prefixes ...netip.Prefix) model.Update {
		return model.NodeUpdate{Node: &model.Node{Name: name, PodCIDRs: prefixes}}
	}
	for name, build := range map[string]func(*recorder) Manager{
		"kernel": func(r *recorder) Manager {
			return NewStaticManager("self", rules.NewRenderer("flx-gw0", 64), r, r)
		},
		"switch": func(r *recorder) Manager {
			return NewHostManager(HostOptions{Node: "self"}, rules.NewRenderer("flx-gw0", 64), r, r)
		},
	} {
		for _, names := range [][2]string{{"a", "b"}, {"b", "a"}} {
			from, to := names[0], names[1]
			r := newRecorder()
			m := build(r)
			check := func(when string, want bool) {
				t.Helper()
				for _, p := range both {
					if r.sets[rules.PodNetworksSet(model.FamilyOf(p.Addr()))][model.Member{Prefix: p}] != want {
						t.Errorf("%s, from %s to %s, %s: is %s in the set: %v", name, from, to, when, p, !want)
					}
				}
			}
			send(m, node(from, both...))
			send(m, node(to, both...), model.NodeRemove{Name: from})
			check("replaced", true)
			send(m, node(from, both...), node(to))
			check("given back", true)
			send(m, node(to, both...))
			send(m, node(from))
			check("had by two, then by one", true)
			send(m, model.NodeRemove{Name: to}, model.NodeRemove{Name: from})
			check("removed", false)
		}
	}
}

// forgotten records the addresses whose connections a ConntrackManager deletes.
type forgotten []string

func (f *forgotten) Forget(a netip.Addr) { *f = append(*f, a.String()) }

// sandbox is an update of pod a's attachment.
func sandbox(name string, addresses ...string) model.Update {
	u := attachment("a", "veth-a", addresses...)
	u.Attachment.Sandbox = name
	return u
}

func TestConnectionsOfReusedAddressesAreForgotten(t *testing.T) {
	for _, c := range []struct {
		name    string
		updates []model.Update
		want    []string
	}{
		{"first sight, and seen again", []model.Update{attachment("a", "veth-a", "10.10.0.5"), attachment("a", "veth-a", "10.10.0.5")}, nil},
		{"removed", []model.Update{attachment("a", "veth-a", "10.10.0.5", "fd00::5"), model.AttachmentRemove{Pod: pod("a"), Interface: "veth-a"}}, []string{"10.10.0.5", "fd00::5"}},
		{"taken over, late removal", []model.Update{
			attachment("a", "veth-a", "10.10.0.5"), attachment("b", "veth-b", "10.10.0.5"),
			model.AttachmentRemove{Pod: pod("a"), Interface: "veth-a"},
		}, []string{"10.10.0.5"}},
		{"same pod, new interface", []model.Update{attachment("a", "veth-1", "10.10.0.5"), attachment("a", "veth-2", "10.10.0.5"), model.AttachmentRemove{Pod: pod("a"), Interface: "veth-1"}}, []string{"10.10.0.5"}},
		{"same pod, same interface, new sandbox", []model.Update{sandbox("first", "10.10.0.5"), sandbox("second", "10.10.0.5")}, []string{"10.10.0.5"}},
		{"one address of two goes", []model.Update{attachment("a", "veth-a", "10.10.0.5", "fd00::5"), attachment("a", "veth-a", "fd00::5")}, []string{"10.10.0.5"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var f forgotten
			send(NewConntrackManager(&f), c.updates...)
			if d := cmp.Diff(c.want, []string(f)); d != "" {
				t.Error(d)
			}
		})
	}
}

// The sets of the host's chains follow the owner of each address, and whether its egress
// is judged. A pod that the datastore does not know may send nothing.
func TestHostSetsFollowPods(t *testing.T) {
	r := newRecorder()
	m := NewHostManager(HostOptions{Node: "node1", Hairpin: func(model.Family) netip.Addr { return addr("169.254.20.20") }},
		rules.NewRenderer("flx-gw0", 64), r, r)
	members := func() string {
		var all []string
		for set, members := range r.sets {
			for x := range members {
				all = append(all, set+" "+x.String())
			}
		}
		slices.Sort(all)
		return strings.Join(all, ", ")
	}
	judged := endpoint("b")
	judged.Endpoint.Egress.Baseline = []model.PolicyID{policyID("base")}
	for _, step := range []struct {
		updates []model.Update
		want    string
	}{
		{[]model.Update{attachment("a", "fx-a", "10.10.0.5", "fd00::5")}, "egress-4 10.10.0.5, egress-6 fd00::5, hairpin-4 10.10.0.5, hairpin-6 fd00::5"},
		{[]model.Update{endpoint("a", "only-ingress")}, "hairpin-4 10.10.0.5, hairpin-6 fd00::5"},
		{[]model.Update{judged, attachment("b", "fx-b", "10.10.0.5")}, "egress-4 10.10.0.5, hairpin-4 10.10.0.5, hairpin-6 fd00::5"},
		{[]model.Update{model.AttachmentRemove{Pod: pod("a"), Interface: "fx-a"}}, "egress-4 10.10.0.5, hairpin-4 10.10.0.5"},
		{[]model.Update{endpoint("b")}, "hairpin-4 10.10.0.5"},
		{[]model.Update{model.EndpointRemove{ID: pod("b")}}, "egress-4 10.10.0.5, hairpin-4 10.10.0.5"},
		{[]model.Update{model.AttachmentRemove{Pod: pod("b"), Interface: "fx-b"}}, ""},
	} {
		send(m, step.updates...)
		if got := members(); got != step.want {
			t.Errorf("sets have %q, want %q", got, step.want)
		}
	}
}
