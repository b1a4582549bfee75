package policyflows

import (
	"fmt"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/ovstest"
)

// setsOf is a policy for both directions, whose rules are for the group's members.
func setsOf(name string, group model.GroupID, ingress, egress []model.PortRange) *model.Policy {
	rule := func(ports []model.PortRange) []model.Rule {
		return []model.Rule{{Action: model.Allow, Peers: []model.GroupID{group}, Ports: ports}}
	}
	return &model.Policy{ID: networkPolicy(name), Ingress: rule(ingress), Egress: rule(egress)}
}

// TestPortSets renders two crowded sets that overlap: flows set the bits of each port, and one clause has the rules
// of a set.
func TestPortSets(t *testing.T) {
	s, r := newStore(model.IPv4)
	crowd(s)
	s.SetPolicy(setsOf("a", "a1", nil, []model.PortRange{tcp(80, 80), tcp(5000, 5005)}))
	s.SetPolicy(setsOf("b", "a1", nil, []model.PortRange{tcp(443, 443), tcp(5004, 5004)}))
	s.SetPolicy(setsOf("c", "a1", nil, []model.PortRange{tcp(80, 80)}))
	s.UpdateGroup("a1", members("10.0.0.1"), nil)
	id := networkPolicy
	s.SetPod(testPod(3, model.Applied{}, apply(id("a"), id("b"), id("c"))))
	s.Complete()
	bits := map[string]uint32{}
	for _, set := range s.portSets[ruleEgress].bits {
		bits[set.key] = set.bit
	}
	a, b := bits["tcp/80 tcp/5000-5003 tcp/5004-5005 "], bits["tcp/443 tcp/5004 "]
	if a == 0 || b == 0 || a&b != 0 || (a|b)&^ruleEgress.portBits() != 0 {
		t.Fatalf("bits %#x", bits)
	}
	var got []string
	for line := range strings.SplitSeq(r.text(), "\n") {
		if strings.Contains(line, "reg7") || strings.Contains(line, "tp_dst") {
			got = append(got, line)
		}
	}
	sets := func(port string, bits uint32) string {
		return fmt.Sprintf("table=50,priority=208,tcp,reg7=0/0xffff,tp_dst=%s actions=set_field:%#x/0xffff->reg7,resubmit(,50)", port, bits)
	}
	rule := func(name string) uint32 { return s.ids.get(RuleID{id(name), model.Egress, 0}) }
	want := []string{
		fmt.Sprintf("table=50,priority=200,ip,reg7=%#x/%#x actions=conjunction(%d,3/3)", a, a, rule("a")),
		fmt.Sprintf("table=50,priority=200,ip,reg7=%#x/%#x actions=conjunction(%d,3/3)", b, b, rule("b")),
		fmt.Sprintf("table=50,priority=200,tcp,tp_dst=80 actions=conjunction(%d,3/3)", rule("c")),
		sets("80", a), sets("443", b), sets("0x1388/0xfffc", a), sets("5004", a|b), sets("5005", a),
	}
	if missing := difference(want, got); len(missing) > 0 || len(got) != len(want) {
		t.Errorf("missing:\n%s\ngot:\n%s", strings.Join(missing, "\n"), strings.Join(got, "\n"))
	}
	s.RemovePolicy(id("a"))
	s.RemovePolicy(id("b"))
	s.Complete()
	if strings.Contains(r.text(), "reg7") {
		t.Errorf("flows are left:\n%s", r.text())
	}
}

func difference(all, without []string) (left []string) {
	has := map[string]bool{}
	for _, line := range without {
		has[line] = true
	}
	for _, line := range all {
		if !has[line] {
			left = append(left, line)
		}
	}
	return left
}

// TestMoreCrowdedSetsThanBits has 20 sets: 16 get a bit, and all decide as they should.
func TestMoreCrowdedSetsThanBits(t *testing.T) {
	s, r := newStore(model.IPv4)
	crowd(s)
	var all []model.PolicyID
	for n := range uint16(20) {
		p := setsOf(fmt.Sprintf("p%d", n), "a1", nil, []model.PortRange{tcp(1000+n, 1000+n), tcp(2000+10*n, 2003+10*n)})
		s.SetPolicy(p)
		all = append(all, p.ID)
	}
	s.UpdateGroup("a1", members("10.0.0.1"), nil)
	s.SetPod(testPod(3, model.Applied{}, apply(all...)))
	s.Complete()
	if n := len(s.portSets[ruleEgress].bits); n != 16 {
		t.Errorf("%d sets have a bit", n)
	}
	e := newEvaluator(t, r)
	for port, want := range map[uint16]bool{999: false, 1000: true, 1019: true, 1020: false, 2000: true, 2193: true, 2194: false, 2084: false, 2090: true} {
		if got := e.allows(50, packet{source: addrs("10.10.1.3")[0], destination: addrs("10.0.0.1")[0], protocol: model.TCP, destinationPort: port}); got != want {
			t.Errorf("port %d: allowed %t", port, got)
		}
	}
}

// TestRefusedPortSetsClosePods has a switch that refuses the flows that set bits: the pods of all policies that need the
// bits are closed.
func TestRefusedPortSetsClosePods(t *testing.T) {
	s, r := newStore(model.IPv4)
	crowd(s)
	s.SetPolicy(setsOf("a", "a1", nil, []model.PortRange{tcp(80, 81), tcp(90, 90)}))
	s.SetPolicy(setsOf("b", "a1", nil, []model.PortRange{tcp(80, 80)}))
	s.UpdateGroup("a1", members("10.0.0.1"), nil)
	s.SetPod(testPod(3, model.Applied{}, apply(networkPolicy("a"))))
	s.SetPod(testPod(4, model.Applied{}, apply(networkPolicy("b"))))
	s.Complete()
	p := NewProgrammer(s, &refusing{r: r, refuses: func(key string) bool { return key == "50 port sets" }})
	got, err := p.Apply(t.Context())
	if err != nil || len(got.Refused) != 1 || got.Refused[0].Name != networkPolicy("a").String() || got.Refused[0].Closed[0] != "default/pod-3" || len(got.Refused[0].Closed) != 1 {
		t.Errorf("%v, %+v", err, got.Refused)
	}
}

// conjunctions counts the flows of the groups that were set since the last look, and the conjunctions in them.
func (r *recorder) conjunctions() (flows, parts int) {
	for _, key := range r.sets {
		if r.flows[key] == nil {
			continue
		}
		for _, f := range r.flows[key]() {
			flows++
			parts += strings.Count(f.String(), "conjunction(")
		}
	}
	r.sets = nil
	return flows, parts
}

// TestManyRulesOfEqualPorts has 1,000 policies with the same 15 masks of ports. A change of one of them sends the
// rules of all others once, not 15 times.
func TestManyRulesOfEqualPorts(t *testing.T) {
	s, r := newStore(model.IPv4)
	var ports []model.PortRange
	for n := range uint16(5) {
		ports = append(ports, tcp(8080+10*n, 8080+10*n), tcp(5000+10*n, 5005+10*n))
	}
	const policies = 1000
	for n := range policies {
		group := groupID(n)
		s.UpdateGroup(group, []model.Member{(shape{}).member(n)}, nil)
		s.SetPolicy(setsOf(fmt.Sprintf("p%d", n), group, ports, ports))
	}
	s.SetPod(testPod(3, apply(networkPolicy("p7")), apply(networkPolicy("p7"))))
	s.Complete()
	r.conjunctions()
	s.RemovePolicy(networkPolicy("p7"))
	s.Complete()
	if flows, parts := r.conjunctions(); parts != 2*(policies-1) {
		t.Errorf("a policy that goes sends %d flows with %d conjunctions", flows, parts)
	}
}

// TestPortSetsInTheSwitch sends packets from one pod to another through the tables of both directions, each with a
// crowded set.
func TestPortSetsInTheSwitch(t *testing.T) {
	b := ovstest.NewBridge(t)
	s, p := onSwitch(t, b)
	crowd(s)
	s.SetPolicy(setsOf("from", "a1", nil, []model.PortRange{tcp(80, 80), tcp(443, 443), tcp(5000, 5005)}))
	s.SetPolicy(setsOf("to", "a2", []model.PortRange{tcp(80, 80), tcp(81, 81), tcp(5004, 5010)}, nil))
	s.UpdateGroup("a1", members("10.10.1.4"), nil)
	s.UpdateGroup("a2", members("10.10.1.3"), nil)
	s.SetPod(testPod(3, model.Applied{}, apply(networkPolicy("from"))))
	s.SetPod(testPod(4, apply(networkPolicy("to")), model.Applied{}))
	s.Complete()
	if got, err := p.Apply(b.Context()); err != nil || len(got.Refused) > 0 {
		t.Fatalf("%v, %v", err, got.Refused)
	}
	for _, f := range []string{
		"table=0,priority=0,actions=goto_table:50", "table=50,priority=0,actions=goto_table:60", "table=60,priority=0,actions=goto_table:61",
		"table=70,priority=0,actions=set_field:4->reg1,goto_table:90", "table=90,priority=0,actions=goto_table:100",
		"table=100,priority=0,actions=goto_table:101", "table=105,priority=0,actions=set_field:99->reg2",
	} {
		b.Ofctl("add-flow", f)
	}
	for port, want := range map[int]bool{80: true, 81: false, 443: false, 5003: false, 5004: true, 5005: true, 5006: false, 79: false} {
		out := b.Run("ovs-appctl", "-t", b.Daemons.VSwitchdControl(), "ofproto/trace", "br-int",
			fmt.Sprintf("in_port=3,tcp,nw_src=10.10.1.3,nw_dst=10.10.1.4,tp_dst=%d", port))
		if got := strings.Contains(out, "->reg2"); got != want {
			t.Errorf("port %d: through %t:\n%s", port, got, out)
		}
	}
}
