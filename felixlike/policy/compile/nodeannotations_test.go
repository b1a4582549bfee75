package compile

import (
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"
	"sigs.k8s.io/yaml"

	"github.com/felixlike/felixlike/felixlike/antrea"
	"github.com/felixlike/felixlike/model"
)

// TestNodeAnnotations: a policy for nodes is judged before DNAT if its annotation is true. Other values, egress rules, named ports and packets without
// a connection are refused by name, and close nothing. A policy of another kind, or for pods, is as without the annotation.
func TestNodeAnnotations(t *testing.T) {
	const (
		pre, untracked = model.PreDNATAnnotation, model.UntrackedAnnotation
		nodes          = "{priority: 1, appliedTo: [{nodeSelector: {}}], ingress: [{action: Drop}]}"
		pods           = "{priority: 1, appliedTo: [{podSelector: {}}], ingress: [{action: Drop}]}"
		ofNodes        = "clusternetworkpolicy.crd.antrea.io/p 250/1 {nodes *} ingress[0] deny all"
		ofPods         = "clusternetworkpolicy.crd.antrea.io/p 250/1 {all pods in all namespaces} ingress[0] deny all"
		onlyNodes      = "metadata.annotations[felixlike.io/pre-dnat]: only a ClusterNetworkPolicy of crd.antrea.io for nodes is judged before DNAT: the annotation is ignored"
	)
	cluster := antrea.KindClusterNetworkPolicy
	for _, test := range []struct {
		name              string
		kind              antrea.Kind
		annotation, value string
		spec, want        string
		preDNAT           bool
		problem           string
	}{
		{"true", cluster, pre, "true", nodes, ofNodes, true, ""},
		{"false", cluster, pre, "false", nodes, ofNodes, false, ""},
		{"in each rule", cluster, pre, "true", "{priority: 1, ingress: [{action: Drop, appliedTo: [{nodeSelector: {}}]}]}", ofNodes, true, ""},
		{"another value", cluster, pre, "yes", nodes, "", false, `metadata.annotations[felixlike.io/pre-dnat]: unknown value "yes": must be true or false: it selects no node`},
		{"no value", cluster, pre, "", nodes, "", false, `unknown value "": must be true or false: it selects no node`},
		{"egress", cluster, pre, "true", strings.TrimSuffix(nodes, "}") + ", egress: [{action: Drop}]}", ofNodes, true, "spec.egress: not allowed before DNAT, where only ingress is judged: its rules match nothing"},
		{"egress alone", cluster, pre, "true", "{priority: 1, appliedTo: [{nodeSelector: {}}], egress: [{action: Drop}]}", "", false, "spec.egress: not allowed before DNAT"},
		{"named port", cluster, pre, "true", "{priority: 1, appliedTo: [{nodeSelector: {}}], ingress: [{action: Allow, ports: [{port: web}]}, {action: Drop, ports: [{port: 80}]}]}", "clusternetworkpolicy.crd.antrea.io/p 250/1 {nodes *} ingress[1] deny", true, "spec.ingress[0].ports: a node has no named ports; the rule matches nothing"},
		{"untracked", cluster, untracked, "true", nodes, "", false, "metadata.annotations[felixlike.io/untracked]: not supported, because untracked packets have no connection by which their answers could pass: it selects no node"},
		{"not untracked", cluster, untracked, "false", nodes, ofNodes, false, ""},
		{"of pods", cluster, pre, "true", pods, ofPods, false, onlyNodes},
		{"of pods and nodes", cluster, pre, "true", "{priority: 1, appliedTo: [{nodeSelector: {}}, {podSelector: {}}], ingress: [{action: Drop}]}", ofPods, false, onlyNodes},
		{"of pods, false", cluster, pre, "false", pods, ofPods, false, ""},
		{"of pods, untracked", cluster, untracked, "true", pods, ofPods, false, "untracked packets have no connection by which their answers could pass: the annotation is ignored"},
		{"of a namespace", antrea.KindNetworkPolicy, pre, "true", pods, "networkpolicy.crd.antrea.io/ns/p 250/1 {all pods in namespace ns} ingress[0] deny all", false, onlyNodes},
	} {
		o := antreaPolicyOf(t, test.kind, test.spec)
		o.SetAnnotations(map[string]string{test.annotation: test.value})
		policies, problems, _ := AntreaPolicy(o, antreaObjects(t), nil, AntreaNamespace{}, GroupIDHash)
		if got := described(policies); got != test.want {
			t.Errorf("%s: got %s\nwant %s", test.name, got, test.want)
		}
		for _, p := range policies {
			if p.Model.PreDNAT != test.preDNAT {
				t.Errorf("%s: before DNAT: %v", test.name, p.Model.PreDNAT)
			}
		}
		expectProblem(t, test.name, problems, test.problem)
	}
	annotations := map[string]string{pre: "true", untracked: "true"}
	clusterPolicy, policy := &v1alpha2.ClusterNetworkPolicy{}, &networkingv1.NetworkPolicy{}
	if err := yaml.UnmarshalStrict([]byte("spec: {tier: Admin, subject: {namespaces: {}}, ingress: [{action: Deny, from: [{namespaces: {}}]}]}"), clusterPolicy); err != nil {
		t.Fatal(err)
	}
	clusterPolicy.Annotations, policy.Annotations = annotations, annotations
	compiled, problems := ClusterNetworkPolicy(clusterPolicy, GroupIDHash)
	if len(compiled.Model.Ingress) != 1 || compiled.Model.PreDNAT {
		t.Errorf("ClusterNetworkPolicy: %+v", compiled.Model)
	}
	expectProblem(t, "ClusterNetworkPolicy", problems, onlyNodes)
	compiled, problems = NetworkPolicy(policy, GroupIDHash)
	if !compiled.Ingress || compiled.Model.PreDNAT {
		t.Errorf("NetworkPolicy: %+v", compiled)
	}
	expectProblem(t, "NetworkPolicy", problems, onlyNodes)
}

func expectProblem(t *testing.T, name string, problems []model.Problem, want string) {
	t.Helper()
	var all []string
	for _, p := range problems {
		all = append(all, p.Error())
	}
	if text := strings.Join(all, "\n"); !strings.Contains(text, want) || (text == "") != (want == "") {
		t.Errorf("%s: problems: %s\nwant: %s", name, text, want)
	}
}
