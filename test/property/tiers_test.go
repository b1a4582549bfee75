package property

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"
	"sigs.k8s.io/yaml"

	"github.com/felixlike/felixlike/felixlike/antrea"
	"github.com/felixlike/felixlike/felixlike/policy/oracle"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
)

// tierPods are the pods of the fixed cluster, by name. Each has the label app=NAME.
func tierPods() map[string]*corev1.Pod {
	all := map[string]*corev1.Pod{}
	for i, p := range []struct{ namespace, name, node string }{
		{"shop", "web", "node1"}, {"shop", "db", "node1"}, {"shop", "api", "node2"}, {"ops", "mon", "node1"},
	} {
		number := map[string]int{"node1": 0, "node2": 1}[p.node]
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: p.name, Labels: map[string]string{"app": p.name}},
			Spec:       corev1.PodSpec{NodeName: p.node},
			Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIPs: []corev1.PodIP{
				{IP: fmt.Sprintf("10.10.%d.%d", number, 10+i)}, {IP: fmt.Sprintf("fd00:10:0:%d::%d", number, 10+i)},
			}},
		}
		pod.Spec.Containers = []corev1.Container{{Name: "c", Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 80, Protocol: corev1.ProtocolTCP}}}}
		pod.Status.PodIP = pod.Status.PodIPs[0].IP
		all[p.name] = pod
	}
	return all
}

// tierCluster is the fixed cluster with these policies, documents of YAML.
func tierCluster(t *testing.T, policies ...string) *oracle.Cluster {
	t.Helper()
	c := &oracle.Cluster{}
	for i, name := range []string{"node1", "node2"} {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		n.Spec.PodCIDRs = []string{fmt.Sprintf("10.10.%d.0/24", i), fmt.Sprintf("fd00:10:0:%d::/64", i)}
		n.Spec.PodCIDR = n.Spec.PodCIDRs[0]
		for _, a := range []string{fmt.Sprintf("192.168.50.%d", 11+i), fmt.Sprintf("fd00:50::%d", 11+i)} {
			n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a})
		}
		c.Nodes = append(c.Nodes, n)
	}
	for _, name := range []string{"shop", "ops"} {
		c.Namespaces = append(c.Namespaces, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	pods := tierPods()
	for _, name := range []string{"web", "db", "api", "mon"} {
		c.Pods = append(c.Pods, pods[name])
	}
	for _, text := range policies {
		var into any
		if kind, is := antreaKind(text); is {
			into = kind.New()
		} else if strings.Contains(text, "tier:") {
			c.ClusterPolicies = append(c.ClusterPolicies, &v1alpha2.ClusterNetworkPolicy{})
			into = c.ClusterPolicies[len(c.ClusterPolicies)-1]
		} else {
			c.Policies = append(c.Policies, &networkingv1.NetworkPolicy{})
			into = c.Policies[len(c.Policies)-1]
		}
		if err := yaml.UnmarshalStrict([]byte(text), into); err != nil {
			t.Fatalf("%v in\n%s", err, text)
		}
		if object, is := into.(antrea.Object); is {
			c.Antrea.Put(object)
		}
	}
	return c
}

// eachBackend runs a test with the fixed cluster on real kernels and switches, side by side.
func eachBackend(t *testing.T, test func(*testing.T, *testbed)) {
	t.Helper()
	t.Parallel()
	for _, backend := range backends() {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			test(t, newTestbedOf(t, backend, []string{"web", "db", "api", "mon"}))
		})
	}
}

// cnp is a ClusterNetworkPolicy about a pod.
func cnp(name, tier string, priority int, subject, rules string) string {
	return fmt.Sprintf("{metadata: {name: %s}, spec: {tier: %s, priority: %d, subject: {pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: %s}}}}, %s}}",
		name, tier, priority, subject, rules)
}

// app is a peer: the pod of that name.
func app(name string) string {
	return fmt.Sprintf("[{pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: %s}}}}]", name)
}

// onlyPort is a NetworkPolicy that isolates db and allows a port.
func onlyPort(port int) string {
	return fmt.Sprintf("{metadata: {namespace: shop, name: db}, spec: {podSelector: {matchLabels: {app: db}}, ingress: [{ports: [{port: %d}]}]}}", port)
}

const (
	everybody = "[{namespaces: {}}]"
	denyAll   = "{action: Deny, from: " + everybody + "}"
)

// tierTable is some policies with the verdicts that follow from them.
type tierTable struct {
	name     string
	policies []string
	wanted   []connect
}

// passTables has the policies that a Pass skips, and the tier that decides behind it.
func passTables() []tierTable {
	passWeb := "ingress: [{action: Pass, from: " + app("web") + "}]"
	pass80 := "ingress: [{action: Pass, from: " + everybody + ", protocols: [{tcp: {destinationPort: {number: 80}}}]}]"
	deny := "ingress: [" + denyAll + "]"
	return []tierTable{
		{"no policy", nil, []connect{{"web", "db", 80, true}, {"mon", "db", 80, true}}},
		{
			"the rest of the policy",
			[]string{cnp("one", "Admin", 1, "db", "ingress: [{action: Pass, from: "+app("web")+"}, "+denyAll+"]")},
			[]connect{{"web", "db", 80, true}, {"mon", "db", 80, false}, {"api", "db", 80, false}},
		},
		{
			"a later policy of the tier",
			[]string{cnp("one", "Admin", 1, "db", passWeb), cnp("two", "Admin", 2, "db", deny)},
			[]connect{{"web", "db", 80, true}, {"mon", "db", 80, false}},
		},
		{
			"no earlier policy",
			[]string{cnp("one", "Admin", 2, "db", passWeb), cnp("two", "Admin", 1, "db", deny)},
			[]connect{{"web", "db", 80, false}, {"mon", "db", 80, false}},
		},
		{
			"to a NetworkPolicy",
			[]string{cnp("one", "Admin", 1, "db", passWeb), cnp("two", "Admin", 2, "db", deny), onlyPort(80)},
			[]connect{{"web", "db", 80, true}, {"web", "db", 81, false}, {"mon", "db", 80, false}},
		},
		{
			"of one port",
			[]string{cnp("one", "Admin", 1, "db", pass80), cnp("two", "Admin", 2, "db", deny), onlyPort(80)},
			[]connect{{"web", "db", 80, true}, {"mon", "db", 80, true}, {"web", "db", 81, false}},
		},
		{
			"past a NetworkPolicy goes only an Accept",
			[]string{cnp("one", "Admin", 1, "db", "ingress: [{action: Accept, from: "+app("mon")+"}, {action: Pass, from: "+everybody+"}]"), onlyPort(81)},
			[]connect{{"mon", "db", 80, true}, {"web", "db", 80, false}, {"web", "db", 81, true}},
		},
		{
			"to the baseline",
			[]string{cnp("one", "Admin", 1, "db", passWeb), cnp("two", "Baseline", 1, "db", deny)},
			[]connect{{"web", "db", 80, false}, {"mon", "db", 80, false}},
		},
		{
			"past the baseline, which a NetworkPolicy replaces",
			[]string{cnp("one", "Admin", 1, "db", passWeb), cnp("two", "Baseline", 1, "db", deny), onlyPort(80)},
			[]connect{{"web", "db", 80, true}, {"mon", "db", 80, true}, {"web", "db", 81, false}},
		},
		{
			"of the baseline, to the default",
			[]string{cnp("one", "Baseline", 1, "db", passWeb), cnp("two", "Baseline", 2, "db", deny)},
			[]connect{{"web", "db", 80, true}, {"mon", "db", 80, false}},
		},
		{
			"of egress",
			[]string{
				cnp("one", "Admin", 1, "web", "egress: [{action: Pass, to: "+app("db")+"}, {action: Deny, to: "+everybody+"}]"),
				cnp("two", "Baseline", 1, "web", "egress: [{action: Deny, to: [{networks: [0.0.0.0/0, '::/0']}], protocols: [{tcp: {destinationPort: {number: 81}}}]}]"),
			},
			[]connect{{"web", "db", 80, true}, {"web", "db", 81, false}, {"web", "mon", 80, false}, {"web", "api", 80, false}, {"mon", "db", 81, true}},
		},
	}
}

// failingTables has rules that are not as the API has them. An Accept matches nothing
// then, and a Deny or a Pass denies everything in its direction.
func failingTables() []tierTable {
	isolated := "{metadata: {namespace: shop, name: web}, spec: {podSelector: {matchLabels: {app: web}}, policyTypes: [Egress], egress: [{ports: [{port: 81}]}]}}"
	none := []connect{{"web", "db", 80, false}, {"web", "db", 81, true}, {"mon", "db", 80, true}}
	all := []connect{{"web", "db", 80, false}, {"web", "db", 81, false}, {"web", "mon", 80, false}, {"web", "api", 80, false}, {"mon", "db", 80, true}, {"db", "web", 80, true}}
	var tables []tierTable
	for name, rule := range map[string]string{
		"port name and networks": "to: [{networks: [10.10.0.0/16, 'fd00:10::/32']}], protocols: [{destinationNamedPort: http}]",
		"port name and nodes":    "to: [{pods: {namespaceSelector: {}, podSelector: {}}}, {nodes: {}}], protocols: [{destinationNamedPort: http}]",
		"empty protocols":        "to: " + everybody + ", protocols: []",
		"domain names":           "to: " + `[{namespaces: {}}, {domainNames: [example.org]}]`,
		"peer without fields":    "to: [{namespaces: {}}, {}]",
	} {
		rules := func(action string) string { return "egress: [{action: " + action + ", " + rule + "}]" }
		tables = append(
			tables, tierTable{name + ", Accept", []string{cnp("one", "Admin", 1, "web", rules("Accept")), isolated}, none},
			tierTable{name + ", Deny", []string{cnp("one", "Admin", 1, "web", rules("Deny"))}, all},
			tierTable{name + ", Pass", []string{cnp("one", "Admin", 1, "web", rules("Pass"))}, all},
			tierTable{name + ", Pass of the baseline", []string{cnp("one", "Baseline", 1, "web", rules("Pass"))}, all},
		)
	}
	slices.SortFunc(tables, func(a, b tierTable) int { return strings.Compare(a.name, b.name) })
	return tables
}

// TestFixedTiers sends packets under each table, one after the other.
func TestFixedTiers(t *testing.T) {
	eachBackend(t, func(t *testing.T, b *testbed) {
		for _, table := range slices.Concat(passTables(), failingTables()) {
			b.lead(t, tierCluster(t, table.policies...))
			b.judgeNew(t, b.opened(t, table.wanted...))
			if t.Failed() {
				t.Fatal(table.name)
			}
		}
	})
}

// refusing makes both nodes refuse the rules of the admin policy of a name while
// refused says so: the kernel or its tools under netfilter, the switch under openflow.
func (b *testbed) refusing(t *testing.T, name string, refused *bool) {
	t.Helper()
	id := model.PolicyID{Tier: model.TierAdmin, Name: name}
	for _, site := range b.names() {
		d := b.sites[site].plane()
		if !usesBridge(d.backend.Name()) {
			d.spoil = func(p *model.Policy) *model.Policy {
				if p.ID != id || !*refused {
					return p
				}
				q := *p
				for _, side := range []*[]model.Rule{&q.Ingress, &q.Egress} {
					*side = slices.Clone(*side)
					for i := range *side {
						(*side)[i].Peers = append(slices.Clone((*side)[i].Peers), "anowhere") // a group that is nowhere
					}
				}
				return &q
			}
			continue
		}
		if err := d.refuseFlows(func(f openflow.Flow) bool {
			return *refused && (f.Table == pipeline.TableAdminIngress || f.Table == pipeline.TableAdminEgress) && strings.Contains(f.String(), "conjunction")
		}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestQuarantinedClusterPolicy has an admin policy refused. A Deny closes its pods, an
// Accept opens nothing. Other pods are judged as ever, and so are its pods when it is
// taken again.
func TestQuarantinedClusterPolicy(t *testing.T) {
	eachBackend(t, func(t *testing.T, b *testbed) {
		refused := false
		b.refusing(t, "refused", &refused)
		db := tierPods()["db"]
		for _, c := range []tierTable{
			{
				"Deny",
				[]string{cnp("refused", "Admin", 1, "db", "ingress: [{action: Deny, from: "+app("mon")+", protocols: [{tcp: {destinationPort: {number: 81}}}]}]")},
				[]connect{{"web", "db", 80, true}, {"mon", "db", 81, false}, {"api", "db", 80, true}, {"db", "web", 80, true}, {"web", "mon", 80, true}},
			},
			{
				"Accept",
				[]string{cnp("refused", "Admin", 1, "db", "ingress: [{action: Accept, from: "+app("web")+"}]"), onlyPort(81)},
				[]connect{{"web", "db", 80, true}, {"mon", "db", 80, false}, {"mon", "db", 81, true}, {"db", "web", 80, true}, {"web", "mon", 80, true}},
			},
			{
				"Deny of egress",
				[]string{cnp("refused", "Admin", 1, "db", "egress: [{action: Deny, to: "+app("mon")+", protocols: [{tcp: {destinationPort: {number: 81}}}]}]")},
				[]connect{{"db", "web", 80, true}, {"db", "mon", 81, false}, {"db", "mon", 80, true}, {"web", "db", 80, true}, {"web", "mon", 80, true}},
			},
			{
				"Accept of egress",
				[]string{
					cnp("refused", "Admin", 1, "db", "egress: [{action: Accept, to: "+app("web")+"}]"),
					cnp("later", "Admin", 2, "db", "egress: [{action: Deny, to: "+everybody+", protocols: [{tcp: {destinationPort: {number: 80}}}]}]"),
				},
				[]connect{{"db", "web", 80, true}, {"db", "mon", 80, false}, {"db", "mon", 81, true}, {"web", "db", 80, true}, {"web", "mon", 80, true}},
			},
		} {
			closes := func(h hop) end { return h.out }
			if strings.HasSuffix(c.name, "egress") {
				closes = func(h hop) end { return h.in }
			}
			for _, refused = range []bool{false, true, false} {
				b.lead(t, tierCluster(t))
				before := b.cluster
				b.cluster = tierCluster(t, c.policies...)
				named := 0
				for _, name := range b.names() {
					d := b.sites[name].plane()
					d.become(before, b.cluster)
					done, err := d.apply()
					if err != nil {
						t.Fatal(err)
					}
					named += len(done.Refused)
				}
				if (named > 0) != refused {
					t.Fatalf("%s: refused %t, %d objects are named", c.name, refused, named)
				}
				all := b.opened(t, c.wanted...)
				closed := 0
				for i := range all {
					for j, h := range all[i].hops {
						if e := closes(h); refused && e.side == localPod && slices.Contains(addresses(db), e.address) {
							all[i].hops[j].allowed = false
							closed++
						}
					}
				}
				if refused && closed == 0 {
					t.Error("no packet to or from a closed pod")
				}
				b.judgeNew(t, all)
			}
		}
	})
}
