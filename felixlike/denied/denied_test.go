package denied

import (
	"encoding/hex"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/florianl/go-nflog/v2"

	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/policy/judge"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/rules"
)

// bytesOf reads hexadecimal digits, in which spaces mean nothing.
func bytesOf(t testing.TB, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.Join(strings.Fields(text), ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Headers: IPv4 from 10.10.0.1 to 10.10.0.2 with a protocol, IPv6 from fd00::1 to
// fd00::2 with a next header.
const (
	ipv4     = "4500 0028 0000 OFFSET 40PP 0000 0a0a0001 0a0a0002"
	ipv6     = "60000000 0028 NN40 fd00000000000000 0000000000000001 fd00000000000000 0000000000000002"
	tcpPorts = "9c40 0050 00000000"
)

func v4(protocol, offset string) string {
	return strings.NewReplacer("OFFSET", offset, "PP", protocol).Replace(ipv4)
}

func v6(next string) string { return strings.Replace(ipv6, "NN", next, 1) }

func TestParse(t *testing.T) {
	a4, b4 := netip.MustParseAddr("10.10.0.1"), netip.MustParseAddr("10.10.0.2")
	a6, b6 := netip.MustParseAddr("fd00::1"), netip.MustParseAddr("fd00::2")
	for name, c := range map[string]struct {
		packet string
		want   Packet
	}{
		"tcp":                        {v4("06", "4000") + tcpPorts, Packet{Source: a4, Destination: b4, Protocol: model.TCP, SourcePort: 40000, Port: 80}},
		"udp, first of fragments":    {v4("11", "2000") + tcpPorts, Packet{Source: a4, Destination: b4, Protocol: model.UDP, SourcePort: 40000, Port: 80}},
		"udp, another fragment":      {v4("11", "0010") + tcpPorts, Packet{Source: a4, Destination: b4, Protocol: model.UDP}},
		"sctp":                       {v4("84", "0000") + tcpPorts, Packet{Source: a4, Destination: b4, Protocol: model.SCTP, SourcePort: 40000, Port: 80}},
		"icmp":                       {v4("01", "0000") + "0800 f7ff 0000 0000", Packet{Source: a4, Destination: b4, Protocol: model.ICMP, Type: 8}},
		"gre":                        {v4("2f", "0000") + tcpPorts, Packet{Source: a4, Destination: b4, Protocol: 47}},
		"tcp, cut":                   {v4("06", "0000") + "9c40", Packet{Source: a4, Destination: b4, Protocol: model.TCP}},
		"options":                    {strings.Replace(v4("06", "0000"), "4500", "4600", 1) + "01010101" + tcpPorts, Packet{Source: a4, Destination: b4, Protocol: model.TCP, SourcePort: 40000, Port: 80}},
		"tcp, IPv6":                  {v6("06") + tcpPorts, Packet{Source: a6, Destination: b6, Protocol: model.TCP, SourcePort: 40000, Port: 80}},
		"icmpv6":                     {v6("3a") + "0104 0000 00000000", Packet{Source: a6, Destination: b6, Protocol: model.ICMPv6, Type: 1, Code: 4}},
		"behind hop-by-hop":          {v6("00") + "1100 000000000000" + tcpPorts, Packet{Source: a6, Destination: b6, Protocol: model.UDP, SourcePort: 40000, Port: 80}},
		"behind two extensions":      {v6("3c") + "2b01 0000000000000000000000000000" + "0600 000000000000" + tcpPorts, Packet{Source: a6, Destination: b6, Protocol: model.TCP, SourcePort: 40000, Port: 80}},
		"behind authentication":      {v6("33") + "0604 0000 0000000000000000 0000000000000000 00000000" + tcpPorts, Packet{Source: a6, Destination: b6, Protocol: model.TCP, SourcePort: 40000, Port: 80}},
		"first of fragments, IPv6":   {v6("2c") + "1100 0001 00000000" + tcpPorts, Packet{Source: a6, Destination: b6, Protocol: model.UDP, SourcePort: 40000, Port: 80}},
		"another fragment, IPv6":     {v6("2c") + "1100 0008 00000000" + tcpPorts, Packet{Source: a6, Destination: b6, Protocol: model.UDP}},
		"cut in an extension":        {v6("00") + "1105 0000", Packet{Source: a6, Destination: b6, Protocol: hopByHop}},
		"cut before the first, IPv6": {v6("06"), Packet{Source: a6, Destination: b6, Protocol: model.TCP}},
	} {
		got, err := Parse(bytesOf(t, c.packet))
		if err != nil || got != c.want {
			t.Errorf("%s: %+v, %v; want %+v", name, got, err, c.want)
		}
	}
	for _, bad := range []string{"", "45", "43" + v4("06", "0000")[2:], "4f" + v4("06", "0000")[2:], "60", "55" + v4("06", "0000")[2:]} {
		if p, err := Parse(bytesOf(t, bad)); err == nil {
			t.Errorf("%q is read as %+v", bad, p)
		}
	}
}

// FuzzParse: no packet is too odd to be read, or refused.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{v4("06", "0000") + tcpPorts, v6("00") + "1100 000000000000" + tcpPorts, v6("2c") + "1100 0008 00000000"} {
		f.Add(bytesOf(f, seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := Parse(b)
		if err == nil && (!p.Source.IsValid() || !p.Destination.IsValid()) {
			t.Errorf("%x: %+v", b, p)
		}
		if rest, err := Payload(b); err == nil && len(rest) > len(b) {
			t.Errorf("%x: payload %x", b, rest)
		}
	})
}

func TestPayload(t *testing.T) {
	frame := "000000000001 000000000002 TYPE 45"
	for kind, ok := range map[string]bool{"0800": true, "86dd": true, "0806": false} {
		b, err := Payload(bytesOf(t, strings.Replace(frame, "TYPE", kind, 1)))
		if (err == nil) != ok || ok && !slices.Equal(b, []byte{0x45}) {
			t.Errorf("type %s: %x, %v", kind, b, err)
		}
	}
	if _, err := Payload(make([]byte, 13)); err == nil {
		t.Error("a frame that is too short is taken")
	}
}

// viewOf is one of two pods, of a node, under policies of all tiers.
func viewOf(e *model.Endpoint) *View {
	pod, other := model.PodID{Namespace: "shop", Name: "db"}, model.PodID{Namespace: "shop", Name: "web"}
	e.ID = pod
	v := NewView(
		map[model.PodID][]netip.Addr{pod: {netip.MustParseAddr("10.10.0.9")}, other: {netip.MustParseAddr("10.10.0.1"), netip.MustParseAddr("fd00::1")}},
		map[model.PodID]*model.Attachment{pod: {Pod: pod, Addresses: []netip.Addr{netip.MustParseAddr("10.10.0.2"), netip.MustParseAddr("fd00::2")}}},
		map[string]*model.Node{"node2": {Name: "node2", Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.2")}, PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.10.1.0/24")}}},
		"node1", []netip.Addr{netip.MustParseAddr("192.0.2.1")})
	v.Endpoints = map[model.PodID]*model.Endpoint{pod: e}
	admin := func(name string) model.PolicyID { return model.PolicyID{Tier: model.TierAdmin, Name: name} }
	baseline := model.PolicyID{Tier: model.TierBaseline, Name: "default"}
	web := []model.Rule{
		{Name: "ingress[0]", Action: model.Pass, Peers: []model.GroupID{"a1"}, Ports: []model.PortRange{{Protocol: model.TCP, First: 443, Last: 443}}},
		{Name: "ingress[1]", Title: "no-web", Action: model.Deny, Peers: []model.GroupID{"a1"}, Ports: []model.PortRange{{Protocol: model.TCP, First: 80, Last: 90}}},
		{Name: "ingress[2]", Action: model.Deny, AnyPeer: true, NamedPorts: []model.GroupID{"p1"}},
	}
	rejects := web[1]
	rejects.Action = model.Reject
	v.Judge = judge.New()
	for _, p := range []*model.Policy{
		{ID: admin("first"), Ingress: web},
		{ID: admin("no-ping"), Ingress: []model.Rule{{Name: "ingress[0]", Action: model.Deny, AnyPeer: true, Ports: []model.PortRange{{Protocol: model.ICMP, First: 0x0800, Last: 0x08ff}, {Protocol: model.ICMPv6, First: 0x8000, Last: 0x8000}}}}},
		{ID: admin("second"), Ingress: []model.Rule{{Name: "ingress[0]", Action: model.Allow, AnyPeer: true, Ports: []model.PortRange{{Protocol: model.UDP, Last: 65535}}}}},
		{ID: admin("excepting"), Ingress: []model.Rule{{Name: "ingress[0]", Action: model.Deny, Peers: []model.GroupID{"all-but-web"}, AnyPort: true}}},
		{ID: baseline, Egress: []model.Rule{{Name: "egress[0]", Action: model.Deny, AnyPeer: true, AnyPort: true}}, Ingress: []model.Rule{rejects}},
		{ID: model.PolicyID{Tier: model.TierNetworkPolicy, Namespace: "shop", Name: "from-web"}, Ingress: []model.Rule{{Name: "ingress[0]", Action: model.Allow, Peers: []model.GroupID{"all-but-web"}, AnyPort: true}}},
	} {
		v.Judge.OnUpdate(model.PolicyUpdate{Policy: p})
	}
	named := model.AddressMember(netip.MustParseAddr("10.10.0.2"))
	named.Protocol, named.Port = model.TCP, 5432
	for id, members := range map[model.GroupID][]model.Member{
		"a1": {model.AddressMember(netip.MustParseAddr("10.10.0.1"))}, "p1": {named},
		"all-but-web": {{Prefix: netip.MustParsePrefix("10.10.0.0/16")}, {Prefix: netip.MustParsePrefix("10.10.0.1/32"), Except: true}},
	} {
		v.Judge.OnUpdate(model.GroupUpdate{Group: model.Group{ID: id}, Added: members})
	}
	return v
}

// TestBlame: the policies that isolate are named, or the first rule that denies.
func TestBlame(t *testing.T) {
	admin := []model.PolicyID{{Tier: model.TierAdmin, Name: "first"}, {Tier: model.TierAdmin, Name: "second"}}
	noPing := []model.PolicyID{{Tier: model.TierAdmin, Name: "no-ping"}}
	baseline := []model.PolicyID{{Tier: model.TierBaseline, Name: "default"}}
	isolating := []model.PolicyID{
		{Tier: model.TierNetworkPolicy, Namespace: "shop", Name: "deny-all"}, {Tier: model.TierNetworkPolicy, Namespace: "shop", Name: "from-web"},
	}
	tcp := func(port string) string { return v4("06", "0000") + "9c40" + port + "00000000" }
	for name, c := range map[string]struct {
		applied   model.Applied
		direction model.Direction
		packet    string
		closed    string
		want      control.Drop
	}{
		"isolated":                   {applied: model.Applied{NetworkPolicies: isolating}, packet: tcp("0050"), want: control.Drop{By: control.ByIsolation, Policies: []string{"networkpolicy/shop/deny-all", "networkpolicy/shop/from-web"}}},
		"isolated, IPv6":             {applied: model.Applied{NetworkPolicies: isolating[:1]}, packet: v6("06") + tcpPorts, want: control.Drop{By: control.ByIsolation, Policies: []string{"networkpolicy/shop/deny-all"}}},
		"a rule before that":         {applied: model.Applied{Admin: admin, NetworkPolicies: isolating}, packet: tcp("0050"), want: control.Drop{By: control.ByRule, Policy: "clusternetworkpolicy/first", Rule: "ingress[1]", RuleName: "no-web"}},
		"a rule by its named port":   {applied: model.Applied{Admin: admin}, packet: tcp("1538"), want: control.Drop{By: control.ByRule, Policy: "clusternetworkpolicy/first", Rule: "ingress[2]"}},
		"passed on":                  {applied: model.Applied{Admin: admin, NetworkPolicies: isolating}, packet: tcp("01bb"), want: control.Drop{By: control.ByIsolation, Policies: []string{"networkpolicy/shop/deny-all", "networkpolicy/shop/from-web"}}},
		"allowed by now":             {applied: model.Applied{Admin: admin, NetworkPolicies: isolating}, packet: v4("11", "0000") + tcpPorts, want: control.Drop{By: control.ByChanged}},
		"the baseline, a Reject":     {applied: model.Applied{Admin: admin[1:], Baseline: baseline}, packet: tcp("0050"), want: control.Drop{By: control.ByRule, Policy: "clusternetworkpolicy/default", Rule: "ingress[1]", RuleName: "no-web", Rejected: true}},
		"an excepted address":        {applied: model.Applied{Admin: []model.PolicyID{{Tier: model.TierAdmin, Name: "excepting"}, admin[0]}}, packet: tcp("0050"), want: control.Drop{By: control.ByRule, Policy: "clusternetworkpolicy/first", Rule: "ingress[1]", RuleName: "no-web"}},
		"beside that address":        {applied: model.Applied{Admin: []model.PolicyID{{Tier: model.TierAdmin, Name: "excepting"}, admin[0]}}, packet: strings.Replace(tcp("0050"), "0a0a0001", "0a0a0003", 1), want: control.Drop{By: control.ByRule, Policy: "clusternetworkpolicy/excepting", Rule: "ingress[0]"}},
		"isolated, allowed by now":   {applied: model.Applied{NetworkPolicies: isolating}, packet: strings.Replace(tcp("0050"), "0a0a0001", "0a0a0003", 1), want: control.Drop{By: control.ByChanged}},
		"isolated, not the baseline": {applied: model.Applied{NetworkPolicies: isolating, Baseline: baseline}, packet: tcp("0050"), want: control.Drop{By: control.ByIsolation, Policies: []string{"networkpolicy/shop/deny-all", "networkpolicy/shop/from-web"}}},
		"a type of ICMP":             {applied: model.Applied{Admin: noPing}, packet: v4("01", "0000") + "08010000", want: control.Drop{By: control.ByRule, Policy: "clusternetworkpolicy/no-ping", Rule: "ingress[0]"}},
		"another type of ICMP":       {applied: model.Applied{Admin: noPing}, packet: v4("01", "0000") + "0d000000", want: control.Drop{By: control.ByChanged}},
		"a type and code of ICMPv6":  {applied: model.Applied{Admin: noPing}, packet: v6("3a") + "80000000", want: control.Drop{By: control.ByRule, Policy: "clusternetworkpolicy/no-ping", Rule: "ingress[0]"}},
		"another code of ICMPv6":     {applied: model.Applied{Admin: noPing}, packet: v6("3a") + "80010000", want: control.Drop{By: control.ByChanged}},
		"nothing applies":            {packet: tcp("0050"), want: control.Drop{By: control.ByChanged}},
		"closed":                     {applied: model.Applied{NetworkPolicies: isolating}, closed: "shop/x is quarantined", packet: tcp("0050"), want: control.Drop{By: control.ByClosed, Reason: "shop/x is quarantined"}},
		"of an unknown pod":          {direction: model.Egress, packet: strings.Replace(tcp("0050"), "0a0a0001", "0a0a0007", 1), want: control.Drop{By: control.ByChanged}},
	} {
		v := viewOf(&model.Endpoint{Ingress: c.applied})
		if c.direction == 0 {
			c.direction = model.Ingress
		}
		v.Closed = map[Way]string{{model.PodID{Namespace: "shop", Name: "db"}, c.direction}: c.closed, {model.PodID{Namespace: "shop", Name: "db"}, 3 - c.direction}: "the other direction"}
		got, err := v.Drop(Report{Direction: c.direction, Packet: bytesOf(t, c.packet)})
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		got = control.Drop{By: got.By, Policies: got.Policies, Policy: got.Policy, Rule: got.Rule, RuleName: got.RuleName, Rejected: got.Rejected, Reason: got.Reason}
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

// TestEnds: ends are named by pods, nodes, or not at all.
func TestEnds(t *testing.T) {
	v := viewOf(&model.Endpoint{})
	for address, want := range map[string]string{
		"10.10.0.1": "shop/web", "fd00::2": "shop/db", "10.10.0.9": "shop/db", "192.0.2.1": "node node1", "192.0.2.2": "node node2", "10.10.1.1": "node node2", "198.51.100.7": "198.51.100.7",
	} {
		if got := v.End(netip.MustParseAddr(address)).String(); got != want {
			t.Errorf("%s is %q, want %q", address, got, want)
		}
	}
	d, err := v.Drop(Report{At: time.Unix(7, 0), Direction: model.Ingress, Packet: bytesOf(t, v4("01", "0000")+"0800 f7ff 0000 0000")})
	if err != nil || d.PortText() != "icmp echo-request" || d.Direction != "ingress" || !d.At.Equal(time.Unix(7, 0)) {
		t.Errorf("%+v, %v", d, err)
	}
	if _, err := v.Drop(Report{Packet: []byte{0}}); err == nil {
		t.Error("bytes that are no packet are named")
	}
}

// TestLogged: a line has the place of the rule that decided, and the name that its author gave it.
func TestLogged(t *testing.T) {
	id := model.PolicyID{Tier: model.TierAdmin, API: model.AntreaCluster, Name: "p", Part: 2}
	rule := model.Rule{Name: "ingress[3]", Title: "no-web", Action: model.Deny, AnyPeer: true, AnyPort: true, Log: true}
	v := &View{Logs: LogRules(map[model.PolicyID]*model.Policy{id: {ID: id, Ingress: []model.Rule{{Name: "ingress[0]"}, rule}}})}
	got, err := v.Logged(Report{Log: rules.NewLogKey(id, model.Ingress, &rule), Packet: bytesOf(t, v4("06", "0000")+tcpPorts)})
	if err != nil || got.Rule != "ingress[3]" || got.RuleName != "no-web" || got.Policy.Name != "p" {
		t.Errorf("%+v, %v", got, err)
	}
	if len(v.Logs) != 1 {
		t.Errorf("rules %v", v.Logs)
	}
}

// TestBlameHosts: a packet is named after the policies of the hook that denied it: at INPUT, or before DNAT.
func TestBlameHosts(t *testing.T) {
	v := viewOf(&model.Endpoint{})
	v.Host = &model.HostPolicies{
		Ingress: model.Applied{Baseline: []model.PolicyID{{Tier: model.TierBaseline, Name: "default"}}}, PreDNAT: model.Applied{Admin: []model.PolicyID{{Tier: model.TierAdmin, Name: "first"}}},
	}
	packet := v4("06", "0000") + tcpPorts
	for prefix, want := range map[string]string{rules.ChainHostsDeniedIn: "clusternetworkpolicy/default", rules.ChainHostsDeniedPreDNAT: "clusternetworkpolicy/first", rules.ChainHostsDeniedOut: ""} {
		bytes := bytesOf(t, packet)
		r, ours := reportOf(nflog.Attribute{Prefix: &prefix, Payload: &bytes})
		d, err := v.Drop(r)
		if !ours || err != nil || d.Policy != want || (d.By == control.ByRule) != (want != "") {
			t.Errorf("%s: %+v, %v", prefix, d, err)
		}
	}
}
