package policy_test

import (
	"net/netip"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/felixlike/felixlike/felixlike/policy"
	"github.com/felixlike/felixlike/felixlike/policy/oracle"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/policytest"
	"github.com/felixlike/felixlike/test/truthtable"
)

// TestTruthTables judges every probe of the truth tables by the models of
// both nodes, stepping incrementally through each case.
func TestTruthTables(t *testing.T) {
	steps := tables(t, "../../test/truthtable/testdata/*.jsonl")
	for _, family := range model.Families() {
		engines, models := map[string]*policy.Engine{}, map[string]*policytest.Model{}
		before := &oracle.Cluster{}
		for _, s := range steps {
			o := s.Objects(family)
			cluster := oracle.Cluster{Nodes: o.Nodes, Namespaces: o.Namespaces, Pods: o.Pods, Policies: o.Policies, ClusterPolicies: o.ClusterPolicies, Antrea: o.Antrea}
			c := &cluster
			for _, n := range c.Nodes {
				if engines[n.Name] == nil {
					engines[n.Name], models[n.Name] = policy.New(n.Name), policytest.NewModel()
				}
				for _, do := range change(before, c) {
					do(engines[n.Name])
				}
				if err := models[n.Name].Apply(engines[n.Name].Flush()); err != nil {
					t.Fatalf("%s: %v", s.String(), err)
				}
			}
			judge(t, s, family, models, c)
			before = c
		}
	}
}

// tables reads the truth tables of all files that match the pattern.
func tables(t *testing.T, pattern string) []truthtable.Step {
	t.Helper()
	names, err := filepath.Glob(pattern)
	if err != nil || len(names) == 0 {
		t.Fatalf("no truth tables: %v", err)
	}
	var all []truthtable.Step
	for _, name := range names {
		steps, err := truthtable.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, steps...)
	}
	return all
}

func judge(t *testing.T, s truthtable.Step, f model.Family, models map[string]*policytest.Model, c *oracle.Cluster) {
	t.Helper()
	for _, probe := range s.Probes {
		source, err1 := s.Address(probe.From, f)
		destination, err2 := s.Address(probe.To, f)
		protocol, err3 := model.ParseProtocol(probe.Protocol)
		if err1 != nil || err2 != nil || err3 != nil {
			t.Fatal(err1, err2, err3)
		}
		p := oracle.Packet{Source: source, Destination: destination, Protocol: protocol, Port: probe.Port}
		egress, ingress := policytest.Judge(models, c, p)
		if (egress && ingress) != *probe.Expect {
			t.Errorf("%s: %s: egress %v ingress %v, want %v", s.String(), p, egress, ingress, *probe.Expect)
		}
	}
}

// TestOnlyWhatTheNodeNeeds: when a policy starts to apply here, its groups come with all
// members. When it stops, they are removed.
func TestOnlyWhatTheNodeNeeds(t *testing.T) {
	s := newState(t)
	s.SetNamespace(newNamespace("x"))
	s.SetPod(onNode(newPod("x/a app=web", "10.0.1.1", "fd00::1"), "there"))
	s.SetNetworkPolicy(networkPolicy(t, `{podSelector: {matchLabels: {app: db}}, ingress: [{from: [{podSelector: {matchLabels: {app: web}}}]}]}`))
	equal(t, "nothing applies here", s.flush(), "")
	s.SetPod(newPod("x/b app=db", "10.0.0.2"))
	equal(t, "a pod comes", s.flush(), `
group "pods app=web in namespace x" +[10.0.1.1 fd00::1] -[]
policy networkpolicy/x/p 1 ingress 0 egress
endpoint x/b ingress [networkpolicy/x/p] egress []`)
	s.SetPod(newPod("x/c app=web", "10.0.0.3"))
	equal(t, "a peer comes", s.flush(), `
group "pods app=web in namespace x" +[10.0.0.3] -[]
endpoint x/c ingress [] egress []`)
	s.SetPod(newPod("x/b app=cache", "10.0.0.2"))
	equal(t, "the policy applies no more", s.flush(), `
endpoint x/b ingress [] egress []
policy networkpolicy/x/p removed
group removed`)
	s.SetPod(onNode(newPod("x/b app=db", "10.0.0.2"), "there"))
	s.DeletePod(model.PodID{Namespace: "x", Name: "c"})
	equal(t, "pods go", s.flush(), "endpoint x/b removed\nendpoint x/c removed")
}

// TestGroupsAreShared: equal selectors in many rules share one group.
func TestGroupsAreShared(t *testing.T) {
	s := newState(t)
	s.SetNamespace(newNamespace("x"))
	s.SetPod(newPod("x/a", "10.0.0.1"))
	p := networkPolicy(t, `{podSelector: {}, ingress: [{from: [{podSelector: {}}]}, {from: [{podSelector: {}}], ports: [{port: 1}]}], egress: [{to: [{podSelector: {}}]}]}`)
	s.SetNetworkPolicy(p)
	q := p.DeepCopy()
	q.Name = "q"
	s.SetNetworkPolicy(q)
	s.flush()
	if len(s.model.Groups) != 1 {
		t.Errorf("groups: %v", s.model)
	}
	for id := range s.model.Groups {
		if !regexp.MustCompile(`^a[a-zA-Z0-9_-]{23}$`).MatchString(string(id)) {
			t.Errorf("identifier %s", id)
		}
	}
	s.DeleteNetworkPolicy("x", "q")
	equal(t, "one policy goes", s.flush(), "endpoint x/a ingress [networkpolicy/x/p] egress [networkpolicy/x/p]\npolicy networkpolicy/x/q removed")
}

// TestNamedPorts resolves one name to the port that each pod declares.
func TestNamedPorts(t *testing.T) {
	s := newState(t)
	s.SetNamespace(newNamespace("x"))
	s.SetPod(withPort(newPod("x/a", "10.0.0.1"), "web", 80, ""))
	s.SetPod(withPort(withPort(newPod("x/b", "10.0.0.2", "fd00::2"), "web", 8080, corev1.ProtocolTCP), "dns", 53, corev1.ProtocolUDP))
	s.SetPod(withPort(newPod("x/c", "10.0.0.3"), "web", 80, corev1.ProtocolUDP))
	sidecar := newPod("x/d", "10.0.0.4")
	always := corev1.ContainerRestartPolicyAlways
	port := []corev1.ContainerPort{{Name: "web", ContainerPort: 9090}}
	onFailure := corev1.ContainerRestartPolicyOnFailure
	sidecar.Spec.InitContainers = []corev1.Container{{Name: "init", Ports: port}, {Name: "retried", Ports: port, RestartPolicy: &onFailure}}
	s.SetPod(sidecar)
	s.SetNetworkPolicy(networkPolicy(t, `{podSelector: {}, ingress: [{ports: [{port: web}]}]}`))
	equal(t, "first", strings.Split(s.flush(), "\n")[0], `group "port tcp/web of all pods in namespace x" +[10.0.0.1,tcp/80 10.0.0.2,tcp/8080 fd00::2,tcp/8080] -[]`)
	sidecar = sidecar.DeepCopy()
	sidecar.Spec.InitContainers[0].RestartPolicy = &always
	s.SetPod(sidecar)
	s.SetPod(withPort(newPod("x/a", "10.0.0.1"), "web", 81, ""))
	equal(t, "changed", s.flush(), `group "port tcp/web of all pods in namespace x" +[10.0.0.1,tcp/81 10.0.0.4,tcp/9090] -[10.0.0.1,tcp/80]`)
}

// TestReusedAddress deletes a pod when another one already has its address.
func TestReusedAddress(t *testing.T) {
	s := newState(t)
	s.SetNetworkPolicy(networkPolicy(t, `{podSelector: {}, ingress: [{from: [{podSelector: {}}]}]}`))
	s.SetPod(newPod("x/old", "10.0.0.1"))
	s.flush()
	s.SetPod(newPod("x/new", "10.0.0.1"))
	equal(t, "reused", s.flush(), "endpoint x/new ingress [networkpolicy/x/p] egress []")
	s.DeletePod(model.PodID{Namespace: "x", Name: "old"})
	equal(t, "deleted late", s.flush(), "endpoint x/old removed")
	s.DeletePod(model.PodID{Namespace: "x", Name: "new"})
	s.flush()
	if len(s.model.Groups) > 0 {
		t.Error(s.model)
	}
}

// TestWhoIsNeverSelected: hostNetwork pods and finished pods are neither targets nor peers.
func TestWhoIsNeverSelected(t *testing.T) {
	s := newState(t)
	s.SetPod(newPod("x/a", "10.0.0.1"))
	host := newPod("x/host", "192.0.2.1")
	host.Spec.HostNetwork = true
	s.SetPod(host)
	for _, phase := range []corev1.PodPhase{corev1.PodSucceeded, corev1.PodFailed} {
		p := newPod("x/"+strings.ToLower(string(phase)), "10.0.0.9")
		p.Status.Phase = phase
		s.SetPod(p)
	}
	s.SetNetworkPolicy(networkPolicy(t, `{podSelector: {}, ingress: [{from: [{podSelector: {}}]}]}`))
	equal(t, "updates", s.flush(), `
group "all pods in namespace x" +[10.0.0.1] -[]
policy networkpolicy/x/p 1 ingress 0 egress
endpoint x/a ingress [networkpolicy/x/p] egress []`)
	if got := s.HostNetworkTargets(true)[model.PolicyID{Tier: model.TierNetworkPolicy, Namespace: "x", Name: "p"}]; !slices.Equal(got, []model.PodID{{Namespace: "x", Name: "host"}}) {
		t.Errorf("HostNetworkTargets: %v", got)
	}
}

// TestLocalAddresses: the addresses of the CNI replace those of the status, by family.
func TestLocalAddresses(t *testing.T) {
	a := model.PodID{Namespace: "x", Name: "a"}
	s := newState(t)
	s.SetNetworkPolicy(networkPolicy(t, `{podSelector: {}, ingress: [{from: [{podSelector: {}}]}]}`))
	s.SetLocalAddresses(a, []netip.Addr{netip.MustParseAddr("10.0.0.7")})
	s.SetPod(newPod("x/a"))
	equal(t, "before the status", strings.Split(s.flush(), "\n")[0], `group "all pods in namespace x" +[10.0.0.7] -[]`)
	s.SetPod(newPod("x/a", "10.0.0.8", "fd00::8"))
	equal(t, "status", s.flush(), `group "all pods in namespace x" +[fd00::8] -[]`)
	s.SetLocalAddresses(a, nil)
	equal(t, "detached", s.flush(), `group "all pods in namespace x" +[] -[10.0.0.7 fd00::8]`)
	s.SetLocalAddresses(a, []netip.Addr{netip.MustParseAddr("10.0.0.9"), netip.MustParseAddr("fd00::9")})
	s.SetPod(newPod("x/b", "10.0.0.1"))
	s.SetPod(onNode(newPod("x/a", "10.0.1.8"), "there"))
	equal(t, "moved away", s.flush(), `
group "all pods in namespace x" +[10.0.0.1 10.0.1.8] -[]
endpoint x/b ingress [networkpolicy/x/p] egress []
endpoint x/a removed`)
}

// TestNamespaceLabels: pods follow the labels of their namespace. No namespaceSelector
// matches a namespace without an object.
func TestNamespaceLabels(t *testing.T) {
	s := newState(t)
	s.SetPod(newPod("x/a", "10.0.0.1"))
	s.SetPod(newPod("y/a", "10.0.0.2"))
	s.SetNetworkPolicy(networkPolicy(t, `{podSelector: {}, ingress: [{from: [{namespaceSelector: {matchExpressions: [{key: team, operator: NotIn, values: [red]}]}}]},
		{from: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: "y"}}}]}]}`))
	s.flush()
	equal(t, "unknown", members(s), "[]\n[]")
	s.SetNamespace(newNamespace("y"))
	s.flush()
	equal(t, "known", members(s), "[10.0.0.2]\n[10.0.0.2]")
	s.SetNamespace(newNamespace("y team=red"))
	s.flush()
	equal(t, "red", members(s), "[10.0.0.2]\n[]")
	// A new selector finds the namespace by a label that it kept.
	later := networkPolicy(t, `{podSelector: {}, ingress: [{from: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: "y", team: red}}}]}]}`)
	later.Name = "later"
	s.SetNetworkPolicy(later)
	s.flush()
	equal(t, "red, later", members(s), "[10.0.0.2]\n[10.0.0.2]\n[]")
	s.DeleteNetworkPolicy("x", "later")
	s.DeleteNamespace("y")
	s.flush()
	equal(t, "deleted", members(s), "[]\n[]")
}

// TestEmptyNamespaceSelector: an empty namespaceSelector matches no namespace without an object either.
func TestEmptyNamespaceSelector(t *testing.T) {
	s := newState(t)
	s.SetPod(newPod("x/a", "10.0.0.1"))
	s.SetPod(newPod("y/a", "10.0.0.2"))
	s.SetNetworkPolicy(networkPolicy(t, `{podSelector: {}, ingress: [{from: [{namespaceSelector: {}}]}]}`))
	s.flush()
	equal(t, "unknown", members(s), "[]")
	s.SetNamespace(newNamespace("y"))
	s.flush()
	equal(t, "known", members(s), "[10.0.0.2]")
}

// members lists the members of all groups in order of description.
func members(s *state) string {
	var lines []string
	for _, line := range strings.Split(s.model.String(), "\ngroup ") {
		if _, text, ok := strings.Cut(line, `"`); ok {
			description, list, _ := strings.Cut(text, "\"\n")
			list, _, _ = strings.Cut(list, "policy ")
			lines = append(lines, description+"["+strings.Join(strings.Fields(list), " ")+"]")
		}
	}
	slices.Sort(lines)
	for i, line := range lines {
		lines[i] = line[strings.LastIndex(line, "["):]
	}
	return strings.Join(lines, "\n")
}

// TestClosedPolicy: a policy that could not be decoded isolates.
func TestClosedPolicy(t *testing.T) {
	s := newState(t)
	s.SetPod(newPod("x/a app=web", "10.0.0.1"))
	s.SetPod(newPod("x/b", "10.0.0.2"))
	s.SetNetworkPolicy(networkPolicy(t, `{podSelector: {}, ingress: [{}]}`))
	s.flush()
	s.SetClosedNetworkPolicy("x", "p", &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}})
	equal(t, "selected", s.flush(), `
policy networkpolicy/x/p 0 ingress 0 egress
endpoint x/a ingress [networkpolicy/x/p] egress [networkpolicy/x/p]
endpoint x/b ingress [] egress []`)
	for name, selector := range map[string]*metav1.LabelSelector{"nil": nil, "invalid": {MatchLabels: map[string]string{"a b": ""}}} {
		s.SetClosedNetworkPolicy("x", "p", selector)
		s.flush()
		equal(t, name, s.isolates("a")+", "+s.isolates("b"), "in out, in out")
	}
	s.DeleteNetworkPolicy("x", "p")
	s.flush()
	equal(t, "deleted", s.isolates("a")+s.isolates("b"), "")
}

// TestPodProblems: invalid parts of a pod are reported.
func TestPodProblems(t *testing.T) {
	p := withPort(withPort(newPod("x/a", "10.0.0.1", "nowhere", "127.0.0.1"), "web", 0, ""), "dns", 53, "ICMP")
	var fields []string
	s := newState(t)
	for _, problem := range s.SetPod(p) {
		fields = append(fields, problem.Object.String()+" "+problem.Field)
	}
	equal(t, "problems", strings.Join(fields, "\n"), `
pod/x/a status.podIPs[1].ip
pod/x/a status.podIPs[2].ip
pod/x/a spec.containers[0].ports[0].containerPort
pod/x/a spec.containers[0].ports[1].protocol`)
}
