package property

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/felixlike/antrea"
	"github.com/felixlike/felixlike/felixlike/policy/oracle"
	"github.com/felixlike/felixlike/model"
)

// antreaKind returns the kind of a document that begins with one.
func antreaKind(text string) (antrea.Kind, bool) {
	kinds := antrea.Kinds()
	at := slices.IndexFunc(kinds, func(k antrea.Kind) bool { return strings.HasPrefix(text, "{kind: "+k.String()+",") })
	if at < 0 {
		return 0, false
	}
	return kinds[at], true
}

// acnp is Antrea's ClusterNetworkPolicy about a pod.
func acnp(name, tier string, priority float64, subject, rules string) string {
	return fmt.Sprintf("{kind: ClusterNetworkPolicy, metadata: {name: %s}, spec: {tier: %s, priority: %v, appliedTo: [%s], %s}}",
		name, tier, priority, labelled(subject), rules)
}

// labelled selects the pod of that name.
func labelled(name string) string { return "{podSelector: {matchLabels: {app: " + name + "}}}" }

// antreaTables has policies of Antrea's API, and the verdicts that its documents give them.
func antreaTables() []tierTable {
	drop, allow := "ingress: [{action: Drop}]", "ingress: [{action: Allow}]"
	from := func(action, name string) string {
		return "{action: " + action + ", from: [" + labelled(name) + "]}"
	}
	return []tierTable{
		{
			"the tier counts before the priority",
			[]string{acnp("late", "application", 1, "db", drop), acnp("early", "emergency", 10, "db", "ingress: ["+from("Allow", "mon")+"]")},
			[]connect{{"mon", "db", 80, true}, {"web", "db", 80, false}, {"mon", "web", 80, true}},
		},
		{
			"a fraction of a priority",
			[]string{acnp("late", "application", 5.5, "db", drop), acnp("early", "application", 5.25, "db", "ingress: ["+from("Allow", "mon")+"]")},
			[]connect{{"mon", "db", 80, true}, {"web", "db", 80, false}},
		},
		{
			"a tier of its own",
			[]string{"{kind: Tier, metadata: {name: first}, spec: {priority: 7}}", acnp("early", "first", 10, "db", "ingress: ["+from("Drop", "mon")+"]"), acnp("late", "emergency", 1, "db", allow)},
			[]connect{{"mon", "db", 80, false}, {"web", "db", 80, true}},
		},
		{
			"Pass skips the other tiers and ClusterNetworkPolicies",
			[]string{acnp("early", "emergency", 1, "db", "ingress: ["+from("Pass", "web")+"]"), acnp("late", "application", 1, "db", "ingress: ["+from("Drop", "mon")+"]"), cnp("admin", "Admin", 1, "db", "ingress: ["+denyAll+"]")},
			[]connect{{"web", "db", 80, true}, {"mon", "db", 80, false}, {"api", "db", 80, false}},
		},
		{
			"Pass to a NetworkPolicy",
			[]string{acnp("early", "emergency", 1, "db", "ingress: ["+from("Pass", "web")+"]"), acnp("late", "application", 1, "db", drop), onlyPort(80)},
			[]connect{{"web", "db", 80, true}, {"web", "db", 81, false}, {"mon", "db", 80, false}},
		},
		{
			"Pass to the baseline",
			[]string{acnp("early", "emergency", 1, "db", "ingress: ["+from("Pass", "web")+"]"), acnp("late", "baseline", 1, "db", drop)},
			[]connect{{"web", "db", 80, false}, {"mon", "db", 80, false}},
		},
		{
			"Pass in the baseline denies what it matches",
			[]string{acnp("base", "baseline", 1, "db", "ingress: [{action: Pass, from: ["+labelled("web")+"], ports: [{protocol: TCP, port: 80}]}, "+from("Allow", "web")+"]")},
			[]connect{{"web", "db", 80, false}, {"web", "db", 81, true}, {"mon", "db", 80, true}},
		},
		{
			"Pass in the baseline, which a NetworkPolicy replaces",
			[]string{acnp("base", "baseline", 1, "db", "ingress: ["+from("Pass", "web")+"]"), onlyPort(80)},
			[]connect{{"web", "db", 80, true}, {"web", "db", 81, false}},
		},
		{
			"Reject of a port, and of egress",
			[]string{
				acnp("in", "application", 1, "db", "ingress: [{action: Reject, ports: [{protocol: TCP, port: 80, endPort: 90}], from: ["+labelled("mon")+"]}]"),
				acnp("out", "application", 1, "web", "egress: [{action: Reject, to: ["+labelled("api")+"]}]"),
			},
			[]connect{{"mon", "db", 80, false}, {"mon", "db", 90, false}, {"mon", "db", 91, true}, {"web", "db", 80, true}, {"web", "api", 80, false}},
		},
		{
			"appliedTo of rules",
			[]string{
				"{kind: ClusterNetworkPolicy, metadata: {name: rules}, spec: {priority: 1, ingress: [" +
					"{action: Drop, from: [" + labelled("mon") + "], appliedTo: [" + labelled("db") + "]}, " +
					"{action: Allow, from: [" + labelled("mon") + "], appliedTo: [" + labelled("db") + ", " + labelled("web") + "]}, " +
					"{action: Drop, appliedTo: [" + labelled("web") + "]}]}}",
			},
			[]connect{{"mon", "db", 80, false}, {"mon", "web", 80, true}, {"api", "web", 80, false}, {"api", "db", 80, true}, {"mon", "api", 80, true}},
		},
		{
			"groups and their children",
			[]string{
				"{kind: ClusterGroup, metadata: {name: clients}, spec: " + labelled("mon") + "}",
				"{kind: ClusterGroup, metadata: {name: prefixes}, spec: {ipBlocks: [{cidr: 10.10.1.0/24}, {cidr: 'fd00:10:0:1::/64'}]}}",
				"{kind: ClusterGroup, metadata: {name: all}, spec: {childGroups: [clients, prefixes]}}",
				acnp("grouped", "application", 1, "db", "ingress: [{action: Drop, from: [{group: all}]}]"),
			},
			[]connect{{"mon", "db", 80, false}, {"api", "db", 80, false}, {"web", "db", 80, true}},
		},
		{
			"the subject's own namespace",
			[]string{acnp("own", "application", 1, "db", "ingress: [{action: Allow, from: [{namespaces: {match: Self}}]}, {action: Drop}]")},
			[]connect{{"web", "db", 80, true}, {"api", "db", 80, true}, {"mon", "db", 80, false}},
		},
		{
			"namespaces with the same labels, and a label that the subject's namespace does not have",
			[]string{acnp("tenants", "application", 1, "db", "ingress: [{action: Drop, from: [{namespaces: {sameLabels: [tenant]}}]}, "+
				"{action: Allow, from: [{namespaces: {sameLabels: [kubernetes.io/metadata.name]}}]}, {action: Drop}]")},
			[]connect{{"web", "db", 80, true}, {"api", "db", 80, true}, {"mon", "db", 80, false}},
		},
		{
			"a NetworkPolicy of the baseline, which one of Kubernetes replaces",
			[]string{"{kind: NetworkPolicy, metadata: {namespace: shop, name: base}, spec: {tier: baseline, priority: 1, appliedTo: [{podSelector: {}}], ingress: [{action: Drop}]}}", onlyPort(80)},
			[]connect{{"web", "db", 80, true}, {"web", "db", 81, false}, {"web", "api", 80, false}, {"web", "mon", 80, true}},
		},
		{
			"no such tier: Allow and Pass open nothing, Drop stays",
			[]string{acnp("one", "nowhere", 1, "db", "ingress: ["+from("Allow", "web")+"]"), acnp("two", "nowhere", 1, "api", "ingress: ["+from("Pass", "web")+", "+from("Drop", "db")+"]"), onlyPort(81)},
			[]connect{{"web", "db", 80, false}, {"web", "db", 81, true}, {"web", "api", 80, false}, {"db", "api", 80, false}, {"mon", "api", 80, true}},
		},
	}
}

// TestFixedAntreaPolicies sends packets under each table, one after the other.
func TestFixedAntreaPolicies(t *testing.T) {
	eachBackend(t, func(t *testing.T, b *testbed) {
		for _, table := range antreaTables() {
			b.lead(t, tierCluster(t, table.policies...))
			b.judgeNew(t, b.opened(t, table.wanted...))
			if t.Failed() {
				t.Fatal(table.name)
			}
		}
	})
}

// query is a message of ICMP between pods, and whether it is allowed.
type query struct {
	from, to   string
	family     model.Family
	kind, code uint8
	allowed    bool
}

func (q query) packet() oracle.Packet {
	at := slices.Index(model.Families(), q.family)
	pods := tierPods()
	protocol, _ := model.EchoRequest(q.family)
	return oracle.Packet{
		Source:      netip.MustParseAddr(pods[q.from].Status.PodIPs[at].IP),
		Destination: netip.MustParseAddr(pods[q.to].Status.PodIPs[at].IP),
		Protocol:    protocol, Port: model.ICMPMessage(q.kind, q.code),
	}
}

// tracked returns the connections without the verdict "allowed" where connection tracking drops the message
// for another reason: it begins nothing, or is a query with a code in the switch, whose datapath here is userspace's.
func (b *testbed) tracked(q query, all []connection) []connection {
	for _, c := range all {
		for i, h := range c.hops {
			if q.kind == routerSolicitation || q.code != 0 && b.sites[h.site].switchesOwn() {
				c.hops[i].allowed = false
			}
		}
	}
	return all
}

// messageTables has rules about ICMP, and the verdicts that the text of Antrea's API gives messages of it.
func messageTables() []struct {
	name    string
	rules   []string
	wanted  []query
	connect []connect
} {
	const v4, v6, echo4, echo6, timestamp = model.IPv4, model.IPv6, 8, 128, 13
	others := "{action: Drop, from: [" + labelled("web") + "]}"
	in := func(rules ...string) []string {
		return []string{acnp("icmp", "application", 1, "db", "ingress: ["+strings.Join(rules, ", ")+"]")}
	}
	return []struct {
		name    string
		rules   []string
		wanted  []query
		connect []connect
	}{
		{
			"a message that begins nothing", in("{action: Allow, protocols: [{icmp: {}}]}"),
			[]query{{"web", "db", v4, echo4, 0, true}, {"web", "db", v4, routerSolicitation, 0, true}},
			[]connect{{"web", "db", 80, true}},
		},
		{
			"a type of IPv4 alone", in("{action: Drop, protocols: [{icmp: {icmpType: 8}}]}"),
			[]query{{"web", "db", v4, echo4, 0, false}, {"web", "db", v4, echo4, 1, false}, {"web", "db", v4, timestamp, 0, true}, {"web", "db", v6, echo6, 0, true}, {"db", "web", v4, echo4, 0, true}},
			[]connect{{"web", "db", 80, true}},
		},
		{
			"a type of IPv6 alone", in("{action: Reject, protocols: [{icmp: {icmpType: 128, icmpCode: 0}}], from: [" + labelled("web") + "]}"),
			[]query{{"web", "db", v4, echo4, 0, true}, {"web", "db", v6, echo6, 0, false}, {"mon", "db", v6, echo6, 0, true}, {"db", "web", v6, echo6, 0, true}},
			[]connect{{"web", "db", 80, true}},
		},
		{
			"a code", in("{action: Allow, protocols: [{icmp: {icmpType: 8, icmpCode: 0}}, {icmp: {icmpType: 128, icmpCode: 0}}]}", others),
			[]query{{"web", "db", v4, echo4, 0, true}, {"web", "db", v4, echo4, 1, false}, {"web", "db", v4, timestamp, 0, false}, {"web", "db", v6, echo6, 0, true}},
			[]connect{{"web", "db", 80, false}},
		},
		{
			"all of ICMP, and a port", in("{action: Allow, protocols: [{icmp: {}}], ports: [{port: 80}], from: ["+labelled("web")+"]}", others),
			[]query{{"web", "db", v4, echo4, 0, true}, {"web", "db", v4, timestamp, 0, true}, {"web", "db", v6, echo6, 0, true}},
			[]connect{{"web", "db", 80, true}, {"web", "db", 81, false}},
		},
		{
			"all of ICMP", in("{action: Drop, protocols: [{icmp: {}}]}"),
			[]query{{"web", "db", v4, echo4, 0, false}, {"web", "db", v4, timestamp, 0, false}, {"web", "db", v6, echo6, 0, false}, {"db", "web", v4, echo4, 0, true}, {"db", "web", v6, echo6, 0, true}},
			[]connect{{"web", "db", 80, true}},
		},
		{
			"egress to a peer",
			[]string{acnp("icmp", "application", 1, "web", "egress: [{action: Drop, to: ["+labelled("db")+"], protocols: [{icmp: {icmpType: 13}}, {icmp: {icmpType: 128}}]}]")},
			[]query{{"web", "db", v4, echo4, 0, true}, {"web", "db", v4, timestamp, 0, false}, {"web", "db", v6, echo6, 0, false}, {"web", "mon", v6, echo6, 0, true}, {"db", "web", v6, echo6, 0, true}},
			[]connect{{"web", "db", 80, true}},
		},
		{
			"another code is allowed", in("{action: Allow, protocols: [{icmp: {icmpType: 8, icmpCode: 1}}]}", others),
			[]query{{"web", "db", v4, echo4, 1, true}, {"web", "db", v4, echo4, 0, false}},
			[]connect{{"web", "db", 80, false}},
		},
		{
			"Pass to a NetworkPolicy", append(in("{action: Pass, protocols: [{icmp: {icmpType: 8}}]}", "{action: Allow, protocols: [{icmp: {}}]}"), onlyPort(80)),
			[]query{{"web", "db", v4, echo4, 0, false}, {"web", "db", v4, timestamp, 0, true}, {"web", "db", v6, echo6, 0, true}},
			[]connect{{"web", "db", 80, true}, {"web", "db", 81, false}},
		},
		{
			"a code without a type: Drop denies everything", in("{action: Drop, protocols: [{icmp: {icmpCode: 1}}]}"),
			[]query{{"web", "db", v4, echo4, 0, false}, {"web", "db", v6, echo6, 0, false}},
			[]connect{{"web", "db", 80, false}},
		},
		{
			"no such type: Allow opens nothing", in("{action: Allow, protocols: [{icmp: {icmpType: 8}}, {icmp: {icmpType: 256}}]}", others),
			[]query{{"web", "db", v4, echo4, 0, false}, {"mon", "db", v4, echo4, 0, true}},
			[]connect{{"web", "db", 80, false}},
		},
		{
			"IGMP beside ICMP: Pass denies everything", in("{action: Pass, protocols: [{icmp: {icmpType: 8}}, {igmp: {}}]}"),
			[]query{{"web", "db", v4, echo4, 0, false}, {"mon", "db", v6, echo6, 0, false}},
			[]connect{{"mon", "db", 80, false}},
		},
	}
}

// TestFixedMessages sends messages of ICMP under each table. Answers of allowed ones pass.
func TestFixedMessages(t *testing.T) {
	eachBackend(t, func(t *testing.T, b *testbed) {
		for _, table := range messageTables() {
			b.lead(t, tierCluster(t, table.rules...))
			all := b.opened(t, table.connect...)
			for _, q := range table.wanted {
				p := q.packet()
				if v := b.cluster.Evaluate(p); v.Allowed != q.allowed {
					t.Errorf("%s: the oracle says %+v, wanted %t", p, v, q.allowed)
				}
				all = append(all, b.tracked(q, b.connections([]oracle.Packet{p}))...)
			}
			b.judgeNew(t, all)
			if t.Failed() {
				t.Fatal(table.name)
			}
		}
	})
}
