package backend

import (
	"context"
	"net/netip"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/tablestest"
)

// TestHostsLast: what the kernel refuses of policies is a fault of the last run of the stage, though the run itself succeeds, and that the stage has not run yet is one.
func TestHostsLast(t *testing.T) {
	ns := tablestest.NewNamespace(t, "nft")
	h := NewHosts(Config{Node: "n1", NetNS: ns.FD}, model.Failsafe{})
	h.Attempt = func(*model.HostPolicies, *model.HostPolicies) error { return nil }
	h.Programmed = func(*model.HostPolicies, string) {}
	h.Off = func() bool { return false }
	s := h.Stage()
	if last := h.Last(); last.Fault == "" {
		t.Errorf("before the first run: %+v", last)
	}
	policies := func(peers ...model.GroupID) *model.HostPolicies {
		p := &model.Policy{
			ID:      model.PolicyID{Tier: model.TierAdmin, API: model.AntreaCluster, Name: "one"},
			Ingress: []model.Rule{{Name: "ingress[0]", Action: model.Deny, Peers: peers, AnyPeer: len(peers) == 0, AnyPort: true}},
		}
		return &model.HostPolicies{Ingress: model.Applied{Admin: []model.PolicyID{p.ID}}, Policies: []*model.Policy{p}}
	}
	refused := policies("anone") // a group without a set
	run(t, s, model.HostPoliciesUpdate{Policies: refused})
	if last := h.Last(); last.Fingerprint != refused.Fingerprint() || !strings.Contains(last.Fault, "ain-one") {
		t.Errorf("refused: %+v", last)
	}
	good := policies()
	run(t, s, model.HostPoliciesUpdate{Policies: good})
	if last := h.Last(); last != (HostsApplied{Fingerprint: good.Fingerprint()}) {
		t.Errorf("programmed: %+v", last)
	}
}

// TestHostsTable: the sets of the node's policies follow their groups, those of withdrawn policies go, and the confirmed policies that take their
// place have the last members that are known, also if nothing else asks their groups. A stage that starts anew writes nothing.
func TestHostsTable(t *testing.T) {
	ns := tablestest.NewNamespace(t, "nft")
	member := func(a string) model.Member { return model.AddressMember(netip.MustParseAddr(a)) }
	group := model.Group{ID: "aone", Kind: model.Addresses}
	id := func(name string) model.PolicyID {
		return model.PolicyID{Tier: model.TierAdmin, API: model.AntreaCluster, Name: name}
	}
	policies := func(name string, r model.Rule, groups ...model.HostGroup) *model.HostPolicies {
		p := &model.Policy{ID: id(name), Ingress: []model.Rule{r}}
		return &model.HostPolicies{Ingress: model.Applied{Admin: []model.PolicyID{p.ID}}, Policies: []*model.Policy{p}, Groups: groups}
	}
	good := policies("good", model.Rule{Name: "ingress[0]", Action: model.Deny, Peers: []model.GroupID{group.ID}, AnyPort: true}, model.HostGroup{Group: group, Members: []model.Member{member("10.0.0.1")}})
	bad := policies("bad", model.Rule{Name: "ingress[0]", Action: model.Pass, AnyPeer: true, AnyPort: true})
	var programmed *model.HostPolicies
	off := false
	stage := func() Stage {
		h := NewHosts(Config{Node: "n1", NetNS: ns.FD}, model.Failsafe{In: []model.FailsafePort{{PortRange: model.PortRange{Protocol: model.TCP, First: 22, Last: 22}}}, GRE: true})
		h.Attempt = func(p, wanted *model.HostPolicies) error { return nil }
		h.Programmed = func(p *model.HostPolicies, refused string) {
			if programmed = p; refused != "" {
				t.Error(refused)
			}
		}
		h.Off = func() bool { return off }
		return h.Stage()
	}
	list := func() string { return ns.Run(t, "nft", "-s", "list", "ruleset") }
	expect := func(when string, has, not []string) {
		t.Helper()
		now := list()
		for _, text := range has {
			if !strings.Contains(now, text) {
				t.Errorf("%s: no %q in\n%s", when, text, now)
			}
		}
		for _, text := range not {
			if strings.Contains(now, text) {
				t.Errorf("%s: %q in\n%s", when, text, now)
			}
		}
	}
	s := stage()
	if did := run(t, s, model.GroupUpdate{Group: group, Added: []model.Member{member("10.0.0.9")}}); did.Writes != 0 || list() != "" {
		t.Errorf("without policies: %d writes\n%s", did.Writes, list())
	}
	run(t, s, model.HostPoliciesUpdate{Policies: good}, model.AttachmentUpdate{Attachment: &model.Attachment{Interface: "fx-1", Addresses: []netip.Addr{netip.MustParseAddr("10.10.0.2")}}})
	expect("programmed", []string{"elements = { 10.0.0.1 }", "elements = { 10.10.0.2 }", "hook input priority filter + 10; policy accept", "hook output priority filter + 10; policy accept", "tcp dport 22", "meta l4proto gre"}, nil)
	run(t, s, model.GroupUpdate{Group: group, Added: []model.Member{member("10.0.0.2")}, Removed: []model.Member{member("10.0.0.1")}})
	expect("other members", []string{"elements = { 10.0.0.2 }"}, nil)
	confirmed := programmed
	before := list()
	again := []model.Update{model.HostStateUpdate{State: model.HostState{Confirmed: confirmed}}, model.HostPoliciesUpdate{Policies: confirmed}, model.AttachmentUpdate{Attachment: &model.Attachment{Interface: "fx-1", Addresses: []netip.Addr{netip.MustParseAddr("10.10.0.2")}}}}
	if did := run(t, stage(), again...); did.Writes != 0 || list() != before {
		t.Errorf("a restart: %d writes", did.Writes)
	}
	run(t, s, model.HostStateUpdate{State: model.HostState{Confirmed: confirmed}}, model.HostPoliciesUpdate{Policies: bad}, model.GroupRemove{ID: group.ID})
	expect("other policies", []string{"hosts-ingress-baseline"}, []string{"10.0.0.2"})
	run(t, s, model.HostStateUpdate{State: model.HostState{Confirmed: confirmed, Withdrawn: bad.Fingerprint()}})
	expect("withdrawn", []string{"elements = { 10.0.0.2 }", "jump ain-good"}, []string{"-bad-"})
	run(t, s, model.GroupUpdate{Group: group, Added: []model.Member{member("10.0.0.3")}}) // a policy of pods asks it again
	expect("the group begins again", []string{"elements = { 10.0.0.3 }"}, []string{"10.0.0.2"})
	off = true
	if run(t, s); list() != "" || programmed != nil {
		t.Errorf("off:\n%s", list())
	}
	// A removal that fails is none.
	off = false
	run(t, s)
	programmed, off = confirmed, true
	ended, end := context.WithCancel(t.Context())
	end()
	if _, err := s.Apply(ended); err == nil || programmed == nil || list() == "" {
		t.Errorf("a removal that cannot read the table: %v, programmed %v", err, programmed)
	}
	off = false
	run(t, s)
	expect("on", []string{"elements = { 10.0.0.3 }"}, nil)
	if run(t, s, model.HostPoliciesUpdate{Policies: &model.HostPolicies{}}); list() != "" {
		t.Errorf("without policies:\n%s", list())
	}
}

// TestPreDNATTable: the chain before DNAT and the pod prefixes are there only with a policy that is judged there. Pods are known by the gateway port, or beside
// another CNI plugin by the mark.
func TestPreDNATTable(t *testing.T) {
	ns := tablestest.NewNamespace(t, "nft")
	p := &model.Policy{ID: model.PolicyID{Tier: model.TierAdmin, API: model.AntreaCluster, Name: "p"}, Ingress: []model.Rule{{Name: "ingress[0]", Action: model.Reject, AnyPeer: true, AnyPort: true, Log: true}}}
	early := *p
	early.PreDNAT = true
	list := []model.PolicyID{p.ID}
	input, pre := &model.HostPolicies{Ingress: model.Applied{Admin: list}, Policies: []*model.Policy{p}}, &model.HostPolicies{PreDNAT: model.Applied{Admin: list}, Policies: []*model.Policy{&early}}
	node := func(prefix string) model.Update {
		return model.NodeUpdate{Node: &model.Node{Name: "n2", PodCIDRs: []netip.Prefix{netip.MustParsePrefix(prefix)}}}
	}
	for mode, from := range map[model.TrafficMode]string{model.Encap: `iifname "flx-gw0" fib daddr type != local`, model.NoEncap: `iifname "flx-gw0" fib daddr type != local`, model.PolicyOnly: "meta mark & 0x"} {
		h := NewHosts(Config{Node: "n1", NetNS: ns.FD, TrafficMode: mode}, model.Failsafe{})
		h.Attempt, h.Off = func(p, wanted *model.HostPolicies) error { return nil }, func() bool { return false }
		h.Programmed = func(p *model.HostPolicies, refused string) {
			if refused != "" {
				t.Error(refused)
			}
		}
		s := h.Stage()
		for i, step := range []struct {
			update      model.Update
			has, hasNot []string
		}{
			{model.HostPoliciesUpdate{Policies: input}, []string{"goto hosts-rejected-in"}, []string{"hosts-prerouting", "pod-networks"}},
			{model.HostPoliciesUpdate{Policies: pre}, []string{"hook prerouting priority mangle - 10", "elements = { 10.10.1.0/24 }", from, "goto hosts-rejected-pre-dnat", `prefix "log-`, `prefix "hosts-denied-pre-dnat"`}, []string{"goto hosts-rejected-in"}},
			{node("10.10.2.0/24"), []string{"elements = { 10.10.2.0/24 }"}, []string{"10.10.1.0/24"}},
			{model.HostPoliciesUpdate{Policies: input}, []string{"goto hosts-rejected-in"}, []string{"hosts-prerouting", "pod-networks", "pre-dnat"}},
		} {
			if i == 0 {
				run(t, s, node("10.10.1.0/24"), model.LogsUpdate{Reported: true}, model.DenialsUpdate{Reported: true})
			}
			run(t, s, step.update)
			now := ns.Run(t, "nft", "-s", "list", "ruleset")
			for _, text := range step.has {
				if !strings.Contains(now, text) {
					t.Errorf("%s, step %d: no %q in\n%s", mode, i, text, now)
				}
			}
			for _, text := range step.hasNot {
				if strings.Contains(now, text) {
					t.Errorf("%s, step %d: %q in\n%s", mode, i, text, now)
				}
			}
		}
		run(t, s, model.HostPoliciesUpdate{Policies: &model.HostPolicies{}})
	}
}

// TestHostsRestoreOff: the confirmed policies do not come back while an administrator has turned them off, also if that happens meanwhile.
func TestHostsRestoreOff(t *testing.T) {
	ns := tablestest.NewNamespace(t, "nft")
	p := &model.Policy{ID: model.PolicyID{Tier: model.TierAdmin, API: model.AntreaCluster, Name: "all"}, Ingress: []model.Rule{{Name: "ingress[0]", Action: model.Deny, AnyPeer: true, AnyPort: true}}}
	all := &model.HostPolicies{Ingress: model.Applied{Admin: []model.PolicyID{p.ID}}, Policies: []*model.Policy{p}}
	for _, off := range []int{1, 2, 3} { // 3: never
		h, asked := NewHosts(Config{Node: "n1", NetNS: ns.FD}, model.Failsafe{}), 0
		h.Off = func() bool {
			asked++
			return asked >= off
		}
		did, err := h.Restore(t.Context(), all, false)
		if is, want := ns.Run(t, "nft", "list", "tables") != "", off == 3; is != want || did != want || err != nil {
			t.Errorf("off at the %d. look: table %v, did %v, %v", off, is, did, err)
		}
	}
}

// TestFailsafe: what pods' traffic and the agent need is always open, once.
func TestFailsafe(t *testing.T) {
	text := func(change func(*config.Config)) string {
		cfg := &config.Effective{Config: config.Defaults()}
		change(&cfg.Config)
		f := FailsafeOf(cfg, []uint16{6443, 443})
		out := config.Ports(f.In).String() + " > " + config.Ports(f.Out).String()
		if f.GRE {
			out += " gre"
		}
		return out
	}
	const in, out = "tcp/22,tcp/6443,tcp/10250,tcp/2379-2380,udp/68,udp/546", "tcp/6443,tcp/10250,tcp/2379-2380,udp/53,tcp/53,udp/67,udp/547"
	for _, test := range []struct {
		name, want string
		change     func(*config.Config)
	}{
		{"defaults", in + ",udp/6081,tcp/10288 > " + out + ",udp/6081,tcp/443", func(*config.Config) {}},
		{"gre", in + ",tcp/10288 > " + out + ",tcp/443 gre", func(c *config.Config) { c.Tunnel = "gre" }},
		{"routed, no health port", in + " > " + out + ",tcp/443", func(c *config.Config) { c.TrafficMode, c.HealthAddress = config.NoEncap, "" }},
		{"wireguard", in + ",udp/51820,tcp/10288 > " + out + ",udp/51820,tcp/443", func(c *config.Config) { c.Encryption = config.WireGuard }},
		{"none of the settings", "udp/68,udp/546,udp/6081,tcp/10288 > udp/67,udp/547,udp/6081,tcp/6443,tcp/443", func(c *config.Config) { c.FailsafeIn, c.FailsafeOut = nil, nil }},
	} {
		if got := text(test.change); got != test.want {
			t.Errorf("%s:\n got %s\nwant %s", test.name, got, test.want)
		}
	}
}
