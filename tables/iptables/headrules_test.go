package iptables

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/felixlike/felixlike/model"
)

// TestInputDrops: INPUT may drop by its policy, by a rule of its own, and by a rule of a chain that it leads to.
func TestInputDrops(t *testing.T) {
	for text, want := range map[string]bool{
		"":                               false,
		"*filter\n:INPUT ACCEPT [0:0]\n": false,
		"*filter\n:INPUT DROP [0:0]\n":   true,
		"*filter\n:INPUT ACCEPT [0:0]\n-A INPUT -s 10.0.0.1/32 -j DROP\n":                                                 true,
		"*filter\n:INPUT ACCEPT [0:0]\n-A FORWARD -j DROP\n":                                                              false,
		"*filter\n:INPUT ACCEPT [0:0]\n-A INPUT -j A\n-A A -g B\n-A B -p tcp -j REJECT --reject-with tcp-reset\n":         true,
		"*filter\n:INPUT ACCEPT [0:0]\n-A INPUT -j A\n-A A -m comment --comment \"no -j DROP\" -j RETURN\n-A B -j DROP\n": false,
		"*filter\n:INPUT ACCEPT [0:0]\n-A INPUT -j A\n-A A -j A\n":                                                        false,
		"*filter\n:INPUT ACCEPT [0:0]\n-A INPUT -p udp -j NFQUEUE --queue-num 0\n":                                        true,
	} {
		in, err := inputHead().parse(text)
		if err != nil || in.drops != want {
			t.Errorf("%q: %+v, %v, want drops %v", text, in, err, want)
		}
	}
}

// inputTool is the tool of a variant for INPUT of a family.
func inputTool(v Variant, f model.Family) string {
	if f == model.IPv6 {
		return "ip6tables-" + v.String()
	}
	return "iptables-" + v.String()
}

// eachInput runs a test for INPUT of each variant and family.
func eachInput(t *testing.T, test func(t *testing.T, v Variant, f model.Family)) {
	eachVariant(t, func(t *testing.T, v Variant) {
		for _, f := range model.Families() {
			t.Run("IPv"+f.String(), func(t *testing.T) { test(t, v, f) })
		}
	})
}

// input returns the rules of INPUT.
func (h host) input(t *testing.T, f model.Family) []string {
	t.Helper()
	var all []string
	for line := range strings.Lines(h.Run(t, inputTool(h.variant, f), "-S", "INPUT")) {
		if text, ok := strings.CutPrefix(strings.TrimSpace(line), "-A INPUT "); ok {
			all = append(all, text)
		}
	}
	return all
}

// TestInputRule: the rule is the first one of INPUT exactly while INPUT may drop packets. The second Apply writes
// nothing. No rule of another program changes.
func TestInputRule(t *testing.T) {
	eachInput(t, func(t *testing.T, v Variant, f model.Family) {
		h := newHost(t, v)
		tool := inputTool(v, f)
		rule := NewInputRule(6081, 0x08000000, h.FD)
		ours := "-p udp -m udp --dport 6081 -m mark --mark 0x8000000/0x8000000 -m comment --comment \"felixlike tunnel packets of nodes\" -j ACCEPT"
		check := func(when string, writes int, want ...string) {
			t.Helper()
			rule.Invalidate()
			if wrote, err := rule.Apply(t.Context()); err != nil || wrote != writes {
				t.Errorf("%s: %d writes, %v", when, wrote, err)
			}
			if got := h.input(t, f); strings.Join(got, "\n") != strings.Join(want, "\n") {
				t.Errorf("%s:\n%s\nwant\n%s", when, strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		}
		check("nothing there", 0)
		h.Run(t, tool, "-P", "INPUT", "DROP")
		check("policy", 1, ours)
		check("again", 0, ours)
		if wrote, err := rule.Apply(t.Context()); wrote != 0 || err != nil {
			t.Errorf("%d writes, %v", wrote, err)
		}
		if variant, err := look(t.Context(), v, []model.Family{f}, h.FD); err != nil || variant.others {
			t.Errorf("the rule counts as one of another program: %+v, %v", variant, err)
		}
		theirs := "-i lo -j ACCEPT"
		h.Run(t, tool, "-I", "INPUT", "-i", "lo", "-j", "ACCEPT")
		check("displaced", 1, ours, theirs)
		rule = NewInputRule(4789, 0x08000000, h.FD)
		check("another port", 1, strings.Replace(ours, "6081", "4789", 1), theirs)
		rule = NewInputRule(6081, 0x08000000, h.FD)
		h.Run(t, tool, "-F", "INPUT")
		check("flushed", 1, ours)
		h.Run(t, tool, "-P", "INPUT", "ACCEPT")
		check("nothing drops", 1)
		h.Run(t, tool, "-A", "INPUT", "-p", "udp", "-j", "REJECT")
		check("a rule rejects", 1, ours, "-p udp -j REJECT --reject-with "+map[model.Family]string{model.IPv4: "icmp-port-unreachable", model.IPv6: "icmp6-port-unreachable"}[f])
		for range 2 {
			if err := RemoveInputRule(t.Context(), h.FD); err != nil {
				t.Error(err)
			}
			if got := h.input(t, f); len(got) != 1 || strings.Contains(got[0], "felixlike") {
				t.Errorf("after the removal: %q", got)
			}
		}
	})
}

// TestInputRuleIsWatched: changes of INPUT are noticed.
func TestInputRuleIsWatched(t *testing.T) {
	eachInput(t, func(t *testing.T, v Variant, f model.Family) {
		h := newHost(t, v)
		tool := inputTool(v, f)
		h.Run(t, tool, "-A", "INPUT", "-p", "udp", "-j", "DROP")
		rule := NewInputRule(6081, 0x08000000, h.FD)
		watch := rule.WatchNFT
		if v == Legacy {
			watch = rule.WatchLegacy
		}
		calls := make(chan struct{}, 64)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = watch(ctx, func() { calls <- struct{}{} })
		}()
		defer func() { cancel(); <-done }()
		wait := func(what string) {
			t.Helper()
			select {
			case <-calls:
			case <-time.After(20 * time.Second):
				t.Fatalf("%s: no notice", what)
			}
		}
		wait("the beginning")
		if wrote, err := rule.Apply(t.Context()); err != nil || wrote != 1 {
			t.Fatalf("%d writes, %v", wrote, err)
		}
		wait("the own write")
		if wrote, err := rule.Apply(t.Context()); err != nil || wrote != 0 {
			t.Fatalf("%d writes, %v", wrote, err)
		}
		if v == NFT {
			h.Run(t, tool, "-N", "KUBE-THEIRS")
			h.Run(t, tool, "-A", "KUBE-THEIRS", "-j", "RETURN")
			if len(calls) > 0 {
				t.Error("a change of another chain is noticed")
			}
		}
		h.Run(t, tool, "-D", "INPUT", "1")
		wait("the rule is deleted")
		if wrote, err := rule.Apply(t.Context()); err != nil || wrote != 1 {
			t.Errorf("%d writes, %v", wrote, err)
		}
	})
}
