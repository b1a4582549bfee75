package managers

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
	"github.com/felixlike/felixlike/ovsfwd/policyflows"
)

// flowRecorder records groups of flows.
type flowRecorder map[string]func() []openflow.Flow

func (r flowRecorder) SetFlows(key string, render func() []openflow.Flow) { r[key] = render }
func (r flowRecorder) RemoveFlows(key string)                             { delete(r, key) }

// flows returns all flows, sorted; with words, those that have them all.
func (r flowRecorder) flows(words ...string) []string {
	var all []string
	for _, render := range r {
		for _, f := range render() {
			has := true
			for _, w := range words {
				has = has && strings.Contains(f.String(), w)
			}
			if has {
				all = append(all, f.String())
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func newSwitchPolicy() (*SwitchPolicyManager, flowRecorder) {
	r := flowRecorder{}
	m := NewSwitchPolicyManager("n1", policyflows.New(policyflows.Options{Flows: r}))
	send(m, model.NodeUpdate{Node: &model.Node{Name: "n1", PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.10.0.0/24")}}})
	return m, r
}

func attached(name, iface string, port uint32, addrs ...string) model.AttachmentUpdate {
	u := attachment(name, iface, addrs...)
	u.Attachment.OFPort = port
	return u
}

// drops are the tables that drop all new connections from an address, and to a port.
func drops(r flowRecorder) []string {
	var closed []string
	for _, f := range r.flows("actions=drop") {
		if strings.Contains(f, "priority=64989") || strings.Contains(f, "priority=209") {
			if !strings.Contains(f, "ipv6") {
				closed = append(closed, strings.TrimSuffix(f, " actions=drop"))
			}
		}
	}
	return closed
}

func wantDrops(t *testing.T, r flowRecorder, want ...string) {
	t.Helper()
	slices.Sort(want)
	if d := cmp.Diff(want, drops(r)); d != "" {
		t.Errorf("closed: -want +got\n%s", d)
	}
}

func closedFlows(addr, port string) []string {
	return []string{
		"table=45,priority=64989,ip,nw_src=" + addr,
		"table=85,priority=64989,ip,reg1=" + port, "table=90,priority=209,ip,reg1=" + port,
	}
}

func TestSwitchClosesPodsThatAreNotKnown(t *testing.T) {
	m, r := newSwitchPolicy()
	send(m, attached("a", "fx-a", 3, "10.10.0.2"))
	wantDrops(t, r, closedFlows("10.10.0.2", "0x3")...)
	send(m, endpoint("a"))
	wantDrops(t, r)
	send(m, model.EndpointRemove{ID: pod("a")})
	wantDrops(t, r, closedFlows("10.10.0.2", "0x3")...)
}

func TestSwitchKeepsLeavingPodsClosed(t *testing.T) {
	m, r := newSwitchPolicy()
	forwarding := NewForwardingManager("n1", pipeline.Node{}, flowRecorder{})
	both := func(updates ...model.Update) {
		for _, u := range updates {
			m.OnUpdate(u)
			forwarding.OnUpdate(u)
		}
	}
	a := attached("a", "fx-a", 3, "10.10.0.2")
	both(a, endpoint("a"))
	m.CompleteDeferredWork()
	wantDrops(t, r)
	// Policy gets the update before forwarding.
	send(m, model.EndpointRemove{ID: pod("a")}, model.AttachmentRemove{Pod: pod("a"), Interface: "fx-a"})
	m.Forwarded(forwarding)
	send(m)
	wantDrops(t, r, closedFlows("10.10.0.2", "0x3")...)
	forwarding.OnUpdate(model.AttachmentRemove{Pod: pod("a"), Interface: "fx-a"})
	m.Forwarded(forwarding)
	send(m)
	wantDrops(t, r)
	if left := r.flows("0x3"); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func TestSwitchGivesAddressAndPortToTheNextPod(t *testing.T) {
	m, r := newSwitchPolicy()
	send(m, endpoint("a"), endpoint("b"), attached("a", "fx-a", 3, "10.10.0.2", "10.10.0.3"))
	send(m, model.AttachmentRemove{Pod: pod("a"), Interface: "fx-a"})
	// The address alone, then the port number.
	send(m, attached("b", "fx-b", 4, "10.10.0.2"))
	wantDrops(t, r, closedFlows("10.10.0.3", "0x3")...)
	send(m, attached("b", "fx-b", 3, "10.10.0.2"))
	wantDrops(t, r, append(closedFlows("10.10.0.3", "0x4")[1:], "table=45,priority=64989,ip,nw_src=10.10.0.3")...)
	m.Forwarded(forwards(false))
	send(m)
	wantDrops(t, r)
}

func TestSwitchClosesWhatAPodNoLongerHas(t *testing.T) {
	m, r := newSwitchPolicy()
	send(m, endpoint("a"), attached("a", "fx-a", 3, "10.10.0.2", "10.10.0.3"))
	send(m, attached("a", "fx-a", 5, "10.10.0.2"))
	wantDrops(t, r, closedFlows("10.10.0.3", "0x3")...)
	// A newer interface of the pod, while the old one is still there.
	send(m, attached("a", "fx-a2", 6, "10.10.0.2"))
	want := append(closedFlows("10.10.0.3", "0x3"), closedFlows("", "0x5")[1:]...)
	wantDrops(t, r, want...)
	send(m, model.AttachmentRemove{Pod: pod("a"), Interface: "fx-a"})
	wantDrops(t, r, want...)
	m.Forwarded(forwards(false))
	send(m)
	wantDrops(t, r)
	// It came back as it was: it does not close itself.
	send(m, attached("a", "fx-a", 3, "10.10.0.2"), attached("a", "fx-a2", 6, "10.10.0.2"), attached("a", "fx-a", 3, "10.10.0.2"))
	wantDrops(t, r, closedFlows("", "0x6")[1:]...)
}

func TestSwitchLateRemovalOfReusedInterface(t *testing.T) {
	m, r := newSwitchPolicy()
	send(m, endpoint("a"), endpoint("b"), attached("a", "fx-1", 3, "10.10.0.2"))
	send(m, attached("b", "fx-1", 4, "10.10.0.2"))
	send(m, model.AttachmentRemove{Pod: pod("a"), Interface: "fx-1"})
	if got := drops(r); slices.ContainsFunc(got, func(s string) bool { return strings.Contains(s, "0x4") || strings.Contains(s, "0.2") }) {
		t.Errorf("b is closed: %v", got)
	}
}

func TestSwitchPolicyInAnyOrder(t *testing.T) {
	rules := []model.Rule{
		{Name: "0", Action: model.Allow, Peers: []model.GroupID{"a1"}, Ports: []model.PortRange{{Protocol: model.TCP, First: 80, Last: 95}}},
		{Name: "1", Action: model.Allow, AnyPeer: true, NamedPorts: []model.GroupID{"p1"}},
		{Name: "2", Action: model.Deny, AnyPeer: true, AnyPort: true},
	}
	admin := func(name string, priority float64) model.PolicyUpdate {
		return model.PolicyUpdate{Policy: &model.Policy{
			ID: model.PolicyID{Tier: model.TierAdmin, Name: name}, Precedence: model.Precedence{Priority: priority},
			Ingress: rules, Egress: rules,
		}}
	}
	e := endpoint("a", "web")
	e.Endpoint.Ingress.Admin = []model.PolicyID{{Tier: model.TierAdmin, Name: "x"}, {Tier: model.TierAdmin, Name: "y"}}
	named := model.Member{Prefix: netip.MustParsePrefix("10.10.0.2/32"), Protocol: model.TCP, Port: 8080}
	updates := []model.Update{
		model.NodeUpdate{Node: &model.Node{Name: "n1", PodCIDRs: []netip.Prefix{
			netip.MustParsePrefix("10.10.0.0/24"), netip.MustParsePrefix("fd00::/64"),
		}}},
		model.GroupUpdate{Group: model.Group{ID: "a1", Kind: model.Addresses}, Added: []model.Member{
			model.AddressMember(addr("10.10.0.2")), model.AddressMember(addr("10.10.0.3")), model.AddressMember(addr("fd00::2")),
		}},
		model.GroupUpdate{Group: model.Group{ID: "p1", Kind: model.AddressPorts}, Added: []model.Member{named}},
		policy("web", 2), admin("x", 5), admin("y", 5), e, endpoint("b"),
		attached("a", "fx-a", 3, "10.10.0.2", "fd00::2"), attached("b", "fx-b", 4, "10.10.0.3"), attached("c", "fx-c", 5, "10.10.0.4"),
	}
	var want []string
	random := rand.New(rand.NewPCG(1, 1))
	for n := range 50 {
		m, r := newSwitchPolicy()
		random.Shuffle(len(updates), func(i, j int) { updates[i], updates[j] = updates[j], updates[i] })
		for _, u := range updates {
			m.OnUpdate(u)
			if random.IntN(3) == 0 {
				m.CompleteDeferredWork()
			}
		}
		m.CompleteDeferredWork()
		got := r.flows()
		if n == 0 {
			want = got
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Fatalf("another order: -want +got\n%s", d)
		}
	}
	if len(want) < 40 {
		t.Errorf("only %d flows", len(want))
	}
}

// forwards stands for forwarding that has flows for all attachments, or for none.
type forwards bool

func (f forwards) Forwards(*model.Attachment) bool { return bool(f) }
func (f forwards) Led() Tiers                      { return Tiers{} }

// TestTierIsInForceOnceForwardingLeadsThere: until the flows of forwarding are programmed that lead packets to the first policy of a tier, the
// tier is not in force, and the change of forwarding calls for the policy stage again.
func TestTierIsInForceOnceForwardingLeadsThere(t *testing.T) {
	ingress, egress := []model.Rule{{}}, []model.Rule{{}}
	for _, c := range []struct {
		name   string
		policy model.Policy
		waits  bool
	}{
		{"admin tier, ingress", model.Policy{ID: model.PolicyID{Tier: model.TierAdmin, Name: "p"}, Ingress: ingress}, true},
		{"admin tier, egress", model.Policy{ID: model.PolicyID{Tier: model.TierAdmin, Name: "p"}, Egress: egress}, true},
		{"baseline tier, egress", model.Policy{ID: model.PolicyID{Tier: model.TierBaseline, Name: "p"}, Egress: egress}, true},
		{"baseline tier, ingress", model.Policy{ID: model.PolicyID{Tier: model.TierBaseline, Name: "p"}, Ingress: ingress}, false},
		{"NetworkPolicy", model.Policy{ID: model.PolicyID{Tier: model.TierNetworkPolicy, Namespace: "x", Name: "p"}, Ingress: ingress, Egress: egress}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, _ := newSwitchPolicy()
			forwarding := NewForwardingManager("n1", pipeline.Node{}, flowRecorder{})
			all := []Manager{m, forwarding}
			apply := func(m Manager, updates ...model.Update) {
				for _, u := range updates {
					m.OnUpdate(u)
				}
				m.CompleteDeferredWork()
			}
			for _, m := range all {
				apply(m, model.NodeUpdate{Node: &model.Node{Name: "n1"}})
			}
			for range 2 {
				apply(m, model.PolicyUpdate{Policy: &c.policy})
				if got := m.Led(); got == c.waits {
					t.Errorf("in force before forwarding has changed: %t", got)
				}
				if m.Forwarded(forwarding) {
					t.Error("the same forwarding calls for the policy stage")
				}
				apply(forwarding, model.PolicyUpdate{Policy: &c.policy})
				if got := m.Forwarded(forwarding); got != c.waits {
					t.Errorf("changed forwarding calls for the policy stage: %t", got)
				}
				if !m.Led() {
					t.Error("not in force after forwarding has changed")
				}
				apply(m, model.PolicyRemove{ID: c.policy.ID})
				apply(forwarding, model.PolicyRemove{ID: c.policy.ID})
				if m.Forwarded(forwarding) || !m.Led() {
					t.Error("without policies, the policy stage waits for forwarding")
				}
			}
			for _, m := range all {
				apply(m, model.PolicyUpdate{Policy: &c.policy})
			}
			m.Forwarded(forwarding)
			apply(m, model.PolicyRemove{ID: c.policy.ID})
			apply(m, model.PolicyUpdate{Policy: &c.policy})
			if got := m.Led(); got == c.waits {
				t.Errorf("removed and added again while forwarding may change: in force: %t", got)
			}
			if m.Forwarded(forwarding); !m.Led() {
				t.Error("not in force although forwarding has kept the tier")
			}
		})
	}
}
