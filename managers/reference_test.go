package managers

import (
	"net/netip"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/felixlike/felixlike/felixlike/antrea"
	engine "github.com/felixlike/felixlike/felixlike/policy"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/flowtext"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
	"github.com/felixlike/felixlike/ovsfwd/policyflows"
	"github.com/felixlike/felixlike/test/ovstest"
)

// referencePolicies are the reference's policies of the ordered tiers, as objects.
func referencePolicies() []string {
	return []string{`
metadata: {name: cnp0}
spec:
  tier: application
  priority: 10
  appliedTo: [{podSelector: {matchLabels: {app: server}}}]
  ingress: [{action: Drop, from: [{podSelector: {matchLabels: {app: notClient}}}], ports: [{protocol: TCP, port: 80}]}]
  egress: [{action: Allow, to: [{podSelector: {matchLabels: {app: dns}}}], ports: [{protocol: UDP, port: 53}]}]
`, `
metadata: {name: egress}
spec:
  tier: baseline
  priority: 10
  appliedTo: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: base}}}]
  egress: [{action: Drop, to: [{ipBlock: {cidr: 10.0.10.0/24}}]}]
`, `
metadata: {name: ingress}
spec:
  tier: baseline
  priority: 10
  appliedTo: [{podSelector: {matchLabels: {app: shut}}}]
  ingress:
  - action: Drop
    from: [{podSelector: {matchExpressions: [{key: app, operator: In, values: [notClient, other]}]}}]
    ports: [{protocol: TCP, port: 8080}]
`}
}

// referencePod is a pod of the reference. One with a port is on the switch.
type referencePod struct {
	namespace, name, app, address string
	port                          uint32
}

func referencePods() []referencePod {
	return []referencePod{
		{"default", "server", "server", "10.10.1.6", 0x19c},
		{"default", "not-client", "notClient", "10.10.1.7", 0},
		{"default", "dns", "dns", "10.10.1.8", 0},
		{"default", "other", "other", "10.10.1.9", 0},
		{"base", "one", "", "10.10.1.10", 0x20},
		{"base", "two", "", "10.10.1.11", 0x21},
		{"default", "shut-1", "shut", "10.10.1.12", 0xb},
		{"default", "shut-2", "shut", "10.10.1.13", 0xc},
	}
}

// referenceRows are the rows of the reference's ordered tiers, as far as they depend on
// a policy.
func referenceRows(t *testing.T) []ovstest.Row {
	t.Helper()
	rows := slices.DeleteFunc(ovstest.Reference(t, "ACNP", "BASELINE-E", "BASELINE-I"), func(r ovstest.Row) bool {
		return slices.Contains([]string{"F078", "F083", "F084", "F089"}, r.ID)
	})
	for i := range rows {
		if row := &rows[i]; row.ID == "F093" { // a misprint: the id is in reg3, as in the other tables
			right, err := ovstest.ParseFlow("table=60,priority=80,conj_id=5,ip actions=load:0x5->NXM_NX_REG3[],load:0x1->NXM_NX_REG0[20],resubmit(,61)")
			if err != nil {
				t.Fatal(err)
			}
			row.Flow = right
		}
	}
	return rows
}

// TestReferencePoliciesAsObjects gives the reference's policies as objects of Antrea's API.
// The flows on the switch are the reference's.
func TestReferencePoliciesAsObjects(t *testing.T) {
	const node = "node1"
	e := engine.New(node)
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}
	n.Spec.PodCIDR, n.Spec.PodCIDRs = "10.10.1.0/24", []string{"10.10.1.0/24"}
	e.SetNode(n)
	for _, name := range []string{"default", "base"} {
		e.SetNamespace(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	var attachments []model.Update
	for _, p := range referencePods() {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: p.name, Labels: map[string]string{"app": p.app}}}
		pod.Spec.NodeName = node
		pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: p.address, PodIPs: []corev1.PodIP{{IP: p.address}}}
		e.SetPod(pod)
		if p.port != 0 {
			a := &model.Attachment{
				Pod: model.PodID{Namespace: p.namespace, Name: p.name}, Interface: p.name, OFPort: p.port,
				Addresses: []netip.Addr{netip.MustParseAddr(p.address)},
			}
			e.SetLocalAddresses(a.Pod, a.Addresses)
			attachments = append(attachments, model.AttachmentUpdate{Attachment: a})
		}
	}
	for _, text := range referencePolicies() {
		p := &antrea.ClusterNetworkPolicy{}
		if err := yaml.UnmarshalStrict([]byte(text), p); err != nil {
			t.Fatal(err)
		}
		e.SetAntrea(p)
	}
	if problems := e.AntreaProblems(); len(problems) > 0 {
		t.Fatal(problems)
	}

	b := ovstest.NewBridge(t)
	conn, err := openflow.Dial(b.Context(), b.Management())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	table := openflow.NewFlowTable(pipeline.PolicyOwner, pipeline.Version)
	table.Connect(conn)
	store := policyflows.New(policyflows.Options{Flows: table, HashID: referenceID})
	m := NewSwitchPolicyManager(node, store)
	send(m, slices.Concat(e.Flush(), attachments)...)
	m.Forwarded(forwards(true))
	m.CompleteDeferredWork()
	if did, err := policyflows.NewProgrammer(store, table).Apply(b.Context()); err != nil || len(did.Refused) > 0 {
		t.Fatal(err, did.Refused)
	}
	ovstest.Comparison{Extra: func(f *flowtext.Flow) string {
		if kind, _ := f.Term(openflow.EthType); kind.Value.Lo == unix.ETH_P_IPV6 {
			return "the pods have no IPv6 address"
		}
		switch f.Table {
		case pipeline.TableEgressMetrics, pipeline.TableIngressMetrics:
			return "counters, named by the reference and not printed"
		case pipeline.TableOutput:
			return "without policy nothing leaves but packets of allowed connections"
		}
		return ""
	}}.Check(t, b.Installed(), referenceRows(t))
}

// referenceID gives rules the ids of the reference's one allocator.
func referenceID(r policyflows.RuleID) uint32 {
	switch {
	case r.Policy.Tier == model.TierAdmin && r.Direction == model.Egress:
		return 1
	case r.Policy.Tier == model.TierAdmin:
		return 4
	case r.Direction == model.Egress:
		return 5
	}
	return 6
}
