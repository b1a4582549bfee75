package managers_test

import (
	"net/netip"
	"testing"

	"github.com/felixlike/felixlike/managers"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/conntrack"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
	"github.com/felixlike/felixlike/rules"
)

// translationAddrs has an address of each kind, by family.
var translationAddrs = map[model.Family]map[string]string{
	model.IPv4: {
		"node": "192.0.2.1", "peer": "192.0.2.2", "old egress": "192.0.2.90", "egress": "192.0.2.91", "other's egress": "192.0.2.92",
		"plain": "10.10.0.2", "here": "10.10.0.3", "away": "10.10.0.4", "dropped": "10.10.0.5", "local": "10.10.0.6",
		"peer's": "10.10.1.2", "peer's here": "10.10.1.3", "outside": "198.51.100.9", "group": "224.0.0.251",
	},
	model.IPv6: {
		"node": "fd00::1", "peer": "fd00::2", "old egress": "fd00::90", "egress": "fd00::91", "other's egress": "fd00::92",
		"plain": "fd10::2", "here": "fd10::3", "away": "fd10::4", "dropped": "fd10::5", "local": "fd10::6",
		"peer's": "fd11::2", "peer's here": "fd11::3", "outside": "fd99::9", "group": "ff02::fb",
	},
}

func translationsOf(masquerade, switched bool) *managers.TranslationManager {
	m := managers.NewTranslationManager("self", masquerade, switched, []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")})
	at := func(f model.Family, name string) netip.Addr { return netip.MustParseAddr(translationAddrs[f][name]) }
	var both [2][]netip.Addr
	var before, now []model.EgressAddress
	for _, f := range model.Families() {
		both[0], both[1] = append(both[0], at(f, "node")), append(both[1], at(f, "peer"))
		before = append(before, model.EgressAddress{Address: at(f, "old egress"), Node: "self", Pods: []netip.Addr{at(f, "plain"), at(f, "here")}})
		now = append(now,
			model.EgressAddress{Address: at(f, "egress"), Node: "self", Pods: []netip.Addr{at(f, "here"), at(f, "peer's here")}},
			model.EgressAddress{Address: at(f, "other's egress"), Node: "other", Pods: []netip.Addr{at(f, "here"), at(f, "away")}},
			model.EgressAddress{Pods: []netip.Addr{at(f, "dropped")}})
	}
	prefixes := func(all ...string) (of []netip.Prefix) {
		for _, p := range all {
			of = append(of, netip.MustParsePrefix(p))
		}
		return of
	}
	m.OnUpdate(model.NodeUpdate{Node: &model.Node{Name: "self", Addresses: both[0], PodCIDRs: prefixes("10.10.0.0/24", "fd10::/64")}})
	m.OnUpdate(model.NodeUpdate{Node: &model.Node{Name: "other", Addresses: both[1], PodCIDRs: prefixes("10.10.1.0/24", "fd11::/64")}})
	m.OnUpdate(model.EgressesUpdate{Egresses: before})
	m.CompleteDeferredWork()
	m.OnUpdate(model.EgressesUpdate{Egresses: now})
	m.CompleteDeferredWork()
	return m
}

// TestWrongTranslations: of flows without answers, those end whose packets must have another source than their entry gives them.
func TestWrongTranslations(t *testing.T) {
	for _, test := range []struct {
		from, to, source string
		away             bool
		// wrong has the letters of the settings under which the flow ends: m with masquerade, n without, s if the bridge judges.
		wrong string
	}{
		{"plain", "outside", "node", false, ""},
		{"plain", "outside", "plain", false, "ms"},
		{"plain", "outside", "old egress", false, "mns"},
		{"plain", "outside", "egress", false, "mns"},
		{"plain", "outside", "plain", true, "mns"}, // its Egress was at another node
		{"plain", "group", "plain", false, ""},
		{"plain", "node", "plain", false, ""},
		{"plain", "peer", "plain", false, ""},
		{"plain", "peer", "node", false, "mns"},
		{"plain", "peer's", "plain", false, ""},
		{"plain", "peer's", "node", false, "mns"},
		{"plain", "local", "plain", false, ""},
		{"plain", "local", "node", false, "s"}, // the other backends leave it to the proxy
		{"plain", "plain", "node", false, ""},
		{"outside", "plain", "node", false, "s"},
		{"outside", "plain", "outside", false, ""},
		{"node", "plain", "node", false, ""},
		{"node", "outside", "node", false, ""},
		{"here", "outside", "egress", false, ""},
		{"here", "outside", "node", false, "mns"},
		{"here", "outside", "here", false, "mns"},
		{"here", "outside", "old egress", false, "mns"},
		{"here", "outside", "egress", true, "mns"}, // the address has come from another node: the mark drops
		{"here", "peer's", "here", false, ""},
		{"away", "outside", "away", true, ""},
		{"away", "outside", "node", false, "mns"},
		{"away", "outside", "old egress", true, "mns"},
		{"dropped", "outside", "node", false, "mns"},
		{"dropped", "peer's", "dropped", false, ""},
		{"peer's here", "outside", "egress", false, ""},
		{"peer's here", "outside", "peer's here", false, "mns"},
		{"peer's", "outside", "egress", false, "mns"},
		{"peer's", "outside", "peer's", false, ""},
		{"peer's", "plain", "peer's", false, ""},
	} {
		for _, f := range model.Families() {
			at := func(name string) netip.Addr { return netip.MustParseAddr(translationAddrs[f][name]) }
			k := conntrack.Connection{
				Original: conntrack.Tuple{Protocol: 17, Src: at(test.from), Dst: at(test.to)},
				Reply:    conntrack.Tuple{Protocol: 17, Src: at(test.to), Dst: at(test.source)},
			}
			if test.away {
				k.Mark = rules.MarkAway
			}
			host := func(a netip.Addr) bool { return a == at("node") }
			got := ""
			for _, letter := range "mns" {
				now := translationsOf(letter != 'n', false).Now()
				if now.Wrong(&k, host, letter == 's') {
					got += string(letter)
				}
				answered := k
				answered.Replied = true
				if now.Wrong(&answered, host, letter == 's') {
					t.Errorf("%s to %s as %s: an answered connection ends", test.from, test.to, test.source)
				}
			}
			if got != test.wrong {
				t.Errorf("IPv%s, %s to %s as %s, away %v: it ends under %q, want %q", f, test.from, test.to, test.source, test.away, got, test.wrong)
			}
		}
	}
}

// TestWrongTranslationsInSwitch: the same of flows that the bridge translates, or should.
func TestWrongTranslationsInSwitch(t *testing.T) {
	now := translationsOf(true, true).Now()
	at := func(name string) netip.Addr { return netip.MustParseAddr(translationAddrs[model.IPv4][name]) }
	for _, test := range []struct {
		from  string
		to    netip.Addr
		mark  uint32
		wrong bool
	}{
		{"plain", at("outside"), pipeline.SNATMark, false},
		{"plain", at("outside"), 0, true},
		{"here", at("outside"), pipeline.SNATMark, true},
		{"here", at("outside"), 0, false},
		{"dropped", at("outside"), pipeline.SNATMark, true},
		{"plain", at("peer"), 0, false},
		{"plain", at("local"), 0, false},
		{"plain", netip.MustParseAddr("10.96.0.1"), 0, false},
		{"outside", at("plain"), pipeline.GatewayMark, false},
	} {
		k := conntrack.Connection{Original: conntrack.Tuple{Protocol: 17, Src: at(test.from), Dst: test.to}, Mark: test.mark}
		k.Reply = k.Original.Reverse()
		if got := now.WrongInSwitch(&k); got != test.wrong {
			t.Errorf("%s to %s with mark %#x: %v, want %v", test.from, test.to, test.mark, got, test.wrong)
		}
		k.Replied = true
		if now.WrongInSwitch(&k) {
			t.Errorf("%s to %s with mark %#x: an answered connection ends", test.from, test.to, test.mark)
		}
	}
	byHost := conntrack.Connection{Original: conntrack.Tuple{Protocol: 17, Src: at("plain"), Dst: at("outside")}}
	byHost.Reply = byHost.Original.Reverse()
	byHost.Reply.Dst = at("node")
	if !now.Wrong(&byHost, func(netip.Addr) bool { return false }, true) {
		t.Error("a flow that the host translates goes on, and the host drops its packets")
	}
	translated := byHost
	if now.WrongAddress(&translated) {
		t.Error("a flow with the node's address ends")
	}
	translated.Reply.Dst = at("old egress")
	if !now.WrongAddress(&translated) {
		t.Error("a flow with an address that is not the node's goes on")
	}
}
