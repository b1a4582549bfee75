package trace

import (
	"encoding/json"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/cmd/felixctl/dump"
	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/felixlike/policy/oracle"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/flowtext"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
	"github.com/felixlike/felixlike/rules"
	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/test/truthtable"
)

// first returns the first step of the sample, and its cluster.
func first(t testing.TB) (*truthtable.Step, *oracle.Cluster) {
	t.Helper()
	step := readSteps(t, "../../../test/truthtable/testdata/sample.jsonl")[0]
	o := step.Objects(model.IPv4)
	cluster := oracle.Cluster{Nodes: o.Nodes, Namespaces: o.Namespaces, Pods: o.Pods, Policies: o.Policies, ClusterPolicies: o.ClusterPolicies}
	return &step, &cluster
}

func between(t testing.TB, s *truthtable.Step, from, to string) Packet {
	t.Helper()
	return packetOf(t, s, truthtable.Probe{From: from, To: to, Protocol: "TCP", Port: 80}, model.IPv4)
}

// TestUnknownRuleIsAnError: a foreign rule on the packet's way is an error, and is not
// skipped.
func TestUnknownRuleIsAnError(t *testing.T) {
	step, c := first(t)
	p := between(t, step, "x/a", "x/b")
	sites := sitesOf(t, c, config.NFTables)
	for _, s := range sites {
		chain := s.Rulesets[0].chains[rules.ChainEgress]
		chain.Rules = append([]dump.Rule{{Foreign: "ip length > 1000 drop"}}, chain.Rules...)
	}
	_, err := Follow(p, sites, nil)
	var unknown *UnknownRule
	if !errors.As(err, &unknown) || unknown.Text != "ip length > 1000 drop" || unknown.Number != 1 {
		t.Errorf("a foreign rule: %v", err)
	}
	sites = sitesOf(t, c, config.OpenFlow)
	for _, s := range sites {
		s.Flows.foreign[pipeline.TableDNAT] = []*flowtext.Flow{{Table: pipeline.TableDNAT, Priority: 9, Foreign: "vlan_tci=0x1 actions=drop"}}
	}
	if _, err = Follow(p, sites, nil); !errors.As(err, &unknown) || !strings.Contains(err.Error(), "vlan_tci") {
		t.Errorf("a foreign flow: %v", err)
	}
}

// TestTranslationOfServicesIsNotWalked: kube-proxy has translated the packet's
// destination already, so its rules in the iptables tables do not stop the tracer. The
// same rule is still an error in a table where it could decide.
func TestTranslationOfServicesIsNotWalked(t *testing.T) {
	step, c := first(t)
	allowed := slices.IndexFunc(step.Probes, func(p truthtable.Probe) bool { return *p.Expect && p.Protocol == "TCP" && p.From != p.To })
	p := packetOf(t, step, step.Probes[allowed], model.IPv4)
	beside := func(text string) (*Path, error) {
		theirs, err := dump.ParseIPTables(strings.NewReader(text), model.IPv4)
		if err != nil {
			t.Fatal(err)
		}
		sites := sitesOf(t, c, config.IPTablesLegacy)
		for _, s := range sites {
			s.Rulesets = append(s.Rulesets, Rulesets(&dump.State{Tables: theirs})...)
		}
		return Follow(p, sites, nil)
	}
	got, err := beside(`*nat
:PREROUTING ACCEPT [0:0]
:INPUT ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:POSTROUTING ACCEPT [0:0]
:KUBE-NODEPORTS - [0:0]
:KUBE-POSTROUTING - [0:0]
:KUBE-SERVICES - [0:0]
:KUBE-SVC-A - [0:0]
-A PREROUTING -m comment --comment "services" -j KUBE-SERVICES
-A OUTPUT -m comment --comment "services" -j KUBE-SERVICES
-A POSTROUTING -m comment --comment "marked ones" -j KUBE-POSTROUTING
-A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN
-A KUBE-POSTROUTING -j MARK --set-xmark 0x4000/0x0
-A KUBE-POSTROUTING -j MASQUERADE --random-fully
-A KUBE-SERVICES -d 10.96.0.1/32 -p tcp -m tcp --dport 443 -j KUBE-SVC-A
-A KUBE-SERVICES -m comment --comment "the last one" -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS
-A KUBE-SVC-A -m statistic --mode random --probability 0.5 -j RETURN
COMMIT
`)
	if err != nil || !got.Fate.Through() {
		t.Errorf("beside kube-proxy: %v, %v", got, err)
	}
	_, err = beside(`*raw
:PREROUTING ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
-A PREROUTING -m addrtype --dst-type LOCAL -j DROP
COMMIT
`)
	var unknown *UnknownRule
	if !errors.As(err, &unknown) || !strings.Contains(unknown.Text, "addrtype") {
		t.Errorf("a rule that may decide: %v", err)
	}
}

// TestMissingObjectIsAnError: a chain or set that a rule names is not taken for empty.
func TestMissingObjectIsAnError(t *testing.T) {
	step, c := first(t)
	p := between(t, step, "x/a", "x/b")
	for what, remove := range map[string]func(*Ruleset){
		"chain": func(r *Ruleset) { delete(r.chains, rules.ChainEgress) },
		"map":   func(r *Ruleset) { delete(r.sets, rules.DispatchMap(model.Egress, model.IPv4)) },
	} {
		sites := sitesOf(t, c, config.NFTables)
		for _, s := range sites {
			remove(s.Rulesets[0])
		}
		if _, err := Follow(p, sites, nil); err == nil || !strings.Contains(err.Error(), "there is no "+what) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestTamperingIsSeen: a wrong rule in one backend is reported as a contradiction.
func TestTamperingIsSeen(t *testing.T) {
	step, c := first(t)
	for _, probe := range step.Probes {
		p := packetOf(t, step, probe, model.IPv4)
		judged, err := Judge(p, c, nil)
		if err != nil || judged.Through {
			continue
		}
		sites := sitesOf(t, c, config.NFTables)
		for _, s := range sites {
			chain := s.Rulesets[0].chains[rules.ChainForward]
			chain.Rules = append([]dump.Rule{{Rule: tables.Rule{Action: tables.Accept{}}}}, chain.Rules...)
		}
		path, err := Follow(p, sites, nil)
		if err != nil {
			t.Fatal(err)
		}
		if what := Compare(judged, path); !strings.Contains(what, "by the policies the packet is denied") {
			t.Errorf("%s: %q", p, what)
		}
		return
	}
	t.Fatal("the step denies nothing")
}

// TestUndefinedFlows: two flows of one priority that match and differ are an error.
func TestUndefinedFlows(t *testing.T) {
	var flows []*flowtext.Flow
	for _, text := range []string{"table=0,priority=1,ip actions=drop", "table=0,priority=1,in_port=3 actions=goto_table:10"} {
		f, err := flowtext.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		flows = append(flows, f)
	}
	p := Packet{Source: netip.MustParseAddr("10.0.0.1"), Destination: netip.MustParseAddr("10.0.0.2"), Protocol: model.TCP, Port: 80}
	f := newFields(p, 3, nil, nil)
	if _, err := NewFlows(&dump.State{Flows: flows}).lookup(0, &f); err == nil || !strings.Contains(err.Error(), "not defined") {
		t.Errorf("%v", err)
	}
}

// TestConnections: packets of connections that are known go past the policies, if
// these have let the connection through, under every backend.
func TestConnections(t *testing.T) {
	step, c := first(t)
	var deniedPair *truthtable.Probe
	for i, probe := range step.Probes {
		if !*probe.Expect && probe.Protocol == "TCP" {
			deniedPair = &step.Probes[i]
			break
		}
	}
	p := packetOf(t, step, *deniedPair, model.IPv4)
	for _, backend := range backends() {
		sites := sitesOf(t, c, backend)
		for conn, through := range map[Conn]bool{New: false, Allowed: true, Reopened: false, Unjudged: false, Related: true, Invalid: false} {
			p.Conn = conn
			path, err := Follow(p, sites, nil)
			if err != nil {
				t.Fatalf("%s: %s: %v", backend, conn, err)
			}
			if path.Fate.Through() != through {
				t.Errorf("%s: %s: %s at %s, want through %v\n%s", backend, conn, path.Fate, path.At, through, stepsText(path))
			}
		}
		back := p
		back.Conn, back.Source, back.Destination, back.SourcePort, back.Port = Answer, p.Destination, p.Source, p.Port, DefaultSourcePort
		if path, err := Follow(back, sites, nil); err != nil || !path.Fate.Through() {
			t.Errorf("%s: the answer: %v, %v", backend, err, path)
		}
		for _, conn := range []Conn{Allowed, Answer, Related} {
			ping := Packet{Source: p.Source, Destination: p.Destination, Protocol: model.ICMP, Conn: conn}
			if path, err := Follow(ping, sites, nil); err != nil || !path.Fate.Through() {
				t.Errorf("%s: %s message of ICMP: %v, %v", backend, conn, err, path)
			}
		}
	}
}

// TestPacketAsJSON: a message of ICMP has its type and code by name, and no port.
func TestPacketAsJSON(t *testing.T) {
	a, b := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	for want, p := range map[string]Packet{
		`{"source":"10.0.0.1","destination":"10.0.0.2","protocol":"icmp","connection":"new","icmp":{"type":13,"code":1}}`: {Source: a, Destination: b, Protocol: model.ICMP, Port: model.ICMPMessage(13, 1), Conn: New},
		`{"source":"10.0.0.1","destination":"10.0.0.2","protocol":"tcp","port":80,"connection":"new"}`:                    {Source: a, Destination: b, Protocol: model.TCP, Port: 80, Conn: New},
	} {
		if got, err := json.Marshal(p); err != nil || string(got) != want {
			t.Errorf("%s, %v, want %s", got, err, want)
		}
	}
}

func TestPacketsThatAreNone(t *testing.T) {
	a, b, six := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("fd00::1")
	for _, p := range []Packet{
		{Source: a, Protocol: model.TCP},
		{Source: a, Destination: six, Protocol: model.TCP},
		{Source: a, Destination: b},
		{Source: a, Destination: b, Protocol: 47},
		{Source: a, Destination: b, Protocol: model.TCP, Conn: "old"},
		{Source: a, Destination: b, Protocol: model.UDP, Conn: Reopened},
	} {
		if _, err := Follow(p, nil, nil); err == nil {
			t.Errorf("%+v is taken", p)
		}
	}
}

// TestEncryptedPeersAreRefused: the tracer claims no way through WireGuard. Packets within a node are traced.
func TestEncryptedPeersAreRefused(t *testing.T) {
	step, c := first(t)
	sites := sitesOf(t, c, config.NFTables)
	for _, s := range sites {
		s.TrafficMode = model.WireGuard
	}
	within, between := 0, 0
	for _, probe := range step.Probes {
		p := packetOf(t, step, probe, model.IPv4)
		pods := slices.ContainsFunc(sites, func(s *Site) bool { return s.attachment(p.Source) != nil && s.attachment(p.Destination) != nil })
		_, err := Follow(p, sites, nil)
		if pods {
			within++
			if err != nil {
				t.Errorf("%s to %s: %v", probe.From, probe.To, err)
			}
			continue
		}
		if between++; err == nil || !strings.Contains(err.Error(), "WireGuard") {
			t.Errorf("%s to %s: %v", probe.From, probe.To, err)
		}
	}
	if within == 0 || between == 0 {
		t.Errorf("%d probes within a node, %d between nodes", within, between)
	}
}
