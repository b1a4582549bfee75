package cluster

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/version"
	"github.com/felixlike/felixlike/model"
)

// good is the status of a node that is ready.
func good(node string) control.Status {
	return control.Status{Node: node, Backend: "nftables", AgentVersion: version.String(), InSync: true, StartedAt: time.Now()}
}

// expect fails the test unless the lines contain the texts, in this order.
func expect(t *testing.T, out string, texts ...string) {
	t.Helper()
	rest := out
	for _, text := range texts {
		_, after, found := strings.Cut(rest, text)
		if !found {
			t.Errorf("%q is missing, or too early, in\n%s", text, out)
			return
		}
		rest = after
	}
}

// TestStatusOfAllNodes: one row a node, bad ones first, each fault once with its nodes.
func TestStatusOfAllNodes(t *testing.T) {
	k := newFakeKubectl(t, pod("n1", ""), pod("n2", ""), pod("n3", ""), pod("n4", "CrashLoopBackOff"))
	same := model.Problem{Object: model.ObjectRef{Kind: "NetworkPolicy", Namespace: "shop", Name: "db"}, Field: "spec", Reason: "is odd"}
	failed := good("n3")
	failed.LastApply.Error = "no space"
	for _, s := range []control.Status{good("n1"), good("n2"), failed} {
		code := 0
		if s.LastApply.Error != "" {
			code = 1
		}
		s.Problems = []model.Problem{same}
		k.answer(t, s.Node, "status -o json", code, s)
	}
	code, out := run(t.Context(), "", "status")
	if code != 2 {
		t.Errorf("exit code %d, want 2: two nodes gave no answer", code)
	}
	expect(t, out, "bare", "NO ANSWER", "n4", "NO ANSWER", "n3", "Degraded", "n1", "Ready", "n2", "5 nodes, 2 ready",
		"bare: no agent", "n4: container agent of pod agent-n4 waits: CrashLoopBackOff", "n3: the last apply failed: no space",
		"n1, n2, n3: "+same.Error()[:10], "2 of 5 nodes gave no answer")
	if code, out := run(t.Context(), "", "--node", "n1", "--node", "n3", "status", "-o", "json"); code != 1 {
		t.Errorf("exit code %d\n%s", code, out)
	} else {
		var answer struct{ Nodes []nodeStatus }
		if err := json.Unmarshal([]byte(out), &answer); err != nil || len(answer.Nodes) != 2 || answer.Nodes[0].State != degraded || answer.Nodes[1].Status.Backend != "nftables" {
			t.Errorf("%v\n%s", err, out)
		}
	}
}

// TestNamespaceOfAllNodes: -n behind the command chooses what is shown. A node that is degraded
// because of another namespace still is.
func TestNamespaceOfAllNodes(t *testing.T) {
	k := newFakeKubectl(t, pod("n1", ""), pod("n2", ""))
	failed := good("n1")
	for _, namespace := range []string{"shop", "other"} {
		failed.Problems = append(failed.Problems, model.Problem{Object: model.ObjectRef{Kind: "NetworkPolicy", Namespace: namespace, Name: "db"}, Field: "spec", Reason: "is odd"})
	}
	failed.LastApply.Error = "no space"
	k.answer(t, "n1", "status -o json", 1, failed)
	k.answer(t, "n2", "status -o json", 0, good("n2"))
	for _, node := range []string{"n1", "n2"} {
		k.answer(t, node, "status -o name --namespace shop", 0, "")
	}
	code, out := run(t.Context(), "", "status", "-n", "shop")
	if code != 2 || !strings.Contains(out, "shop/db") || strings.Contains(out, "other/db") {
		t.Errorf("exit code %d\n%s", code, out)
	}
	expect(t, out, "n1", "Degraded", "no space")
	for _, node := range []string{"n1", "n2"} {
		k.answer(t, node, "status -o name --namespace nosuch", 2, "")
		k.file(t, "agent-"+node+" status -o name --namespace nosuch.errors", "--namespace nosuch: the cluster has no such namespace\n")
	}
	if code, out := run(t.Context(), "", "status", "-n", "nosuch"); code != 2 || !strings.Contains(out, "no such namespace") || strings.Contains(out, "NODE") {
		t.Errorf("an unknown namespace: exit code %d\n%s", code, out)
	}
	k.answer(t, "n1", "policies -o json --namespace shop", 0, control.Hits{Rules: []control.RuleHits{{Policy: "networkpolicy/shop/db", Rule: "ingress[0]"}, {Policy: "networkpolicy/shop/db", Rule: "ingress[1]"}}})
	k.answer(t, "n2", "policies -o json --namespace shop", 0, control.Hits{Rules: []control.RuleHits{{Policy: "networkpolicy/shop/web", Rule: "ingress[0]"}}})
	if code, out := run(t.Context(), "", "--node", "n1", "--node", "n2", "policies", "-n", "shop", "-o", "name"); code != 0 || out != "networkpolicy/shop/db\nnetworkpolicy/shop/web\n" {
		t.Errorf("exit code %d\n%s", code, out)
	}
	if code, out := run(t.Context(), "", "--node", "n1", "--node", "n2", "status", "-o", "name"); code != 1 || out != "n1\nn2\n" {
		t.Errorf("exit code %d\n%s", code, out)
	}
}

// TestStatusWaits: --wait ends as soon as all nodes are ready.
func TestStatusWaits(t *testing.T) {
	k := newFakeKubectl(t, pod("n1", ""), pod("n2", ""))
	pending := good("n1")
	pending.Observed = 1
	k.answer(t, "n1", "status -o json", 1, pending)
	k.answer(t, "n2", "status -o json", 0, good("n2"))
	k.object(t, "agent-n1 status -o json.next", good("n1"))
	code, out := run(t.Context(), "", "--node", "n1", "--node", "n2", "status", "--wait", "1m")
	if code != 0 {
		t.Errorf("exit code %d\n%s", code, out)
	}
}

// TestStrictStatusOfAllNodes: a policy that is not understood makes its node degraded for --strict, and --wait waits for its mend. Without --strict the
// node is ready.
func TestStrictStatusOfAllNodes(t *testing.T) {
	k := newFakeKubectl(t, pod("n1", ""), pod("n2", ""))
	odd := good("n1")
	odd.Problems = []model.Problem{{Object: model.ObjectRef{Kind: "NetworkPolicy", Namespace: "shop", Name: "db"}, Field: "spec", Reason: "is odd"}}
	k.answer(t, "n1", "status -o json", 0, odd)
	k.answer(t, "n2", "status -o json", 0, good("n2"))
	nodes := []string{"--node", "n1", "--node", "n2", "status"}
	if code, out := run(t.Context(), "", nodes...); code != 0 || strings.Contains(out, degraded) {
		t.Errorf("without --strict: exit code %d\n%s", code, out)
	}
	code, out := run(t.Context(), "", append(nodes, "--strict")...)
	if code != 1 {
		t.Errorf("exit code %d\n%s", code, out)
	}
	expect(t, out, "n1", degraded, "n2", ready, "1 ready", "problems of objects:", "shop/db")
	k.object(t, "agent-n1 status -o json.next", good("n1"))
	if code, out := run(t.Context(), "", append(nodes, "--strict", "--wait", "1m")...); code != 0 {
		t.Errorf("--wait: exit code %d\n%s", code, out)
	}
}

// TestCutAnswerIsAskedForAgain: kubectl may lose the end of an answer and report success. A
// node whose answers all are cut gives no answer.
func TestCutAnswerIsAskedForAgain(t *testing.T) {
	k := newFakeKubectl(t, pod("n1", ""), pod("n2", ""))
	k.answer(t, "n1", "status -o json", 0, `{"node": "n1", "back`)
	k.object(t, "agent-n1 status -o json.next", good("n1"))
	k.answer(t, "n2", "status -o json", 0, `{"node": "n2", "back`)
	code, out := run(t.Context(), "", "--node", "n1", "--node", "n2", "status")
	if code != 2 {
		t.Errorf("exit code %d, want 2", code)
	}
	expect(t, out, "n2", "NO ANSWER", "n1", "Ready", "n2: the end of the answer is missing")
	for out, want := range map[string]bool{"{}\n": true, "[1, 2": false, "text\n": true, "text": false, "\x1f\x8b\x08": false} {
		if whole([]byte(out)) != want {
			t.Errorf("whole(%q): %v", out, !want)
		}
	}
}

// TestNotReadyIsNotInOrder: kubelet's readiness counts too.
func TestNotReadyIsNotInOrder(t *testing.T) {
	p := pod("n1", "")
	p.Status.ContainerStatuses[0].Ready = false
	k := newFakeKubectl(t, p, pod("n2", ""))
	k.answer(t, "n1", "status -o json", 0, good("n1"))
	k.answer(t, "n2", "status -o json", 0, good("n2"))
	code, out := run(t.Context(), "", "--node", "n1", "--node", "n2", "status")
	if code != 1 {
		t.Errorf("exit code %d", code)
	}
	expect(t, out, "Degraded", "n1: pod agent-n1 is not ready")
}

// TestCheckOfAllNodes: each finding once, with its nodes; those that are ok are counted.
func TestCheckOfAllNodes(t *testing.T) {
	k := newFakeKubectl(t, pod("n1", ""), pod("n2", ""))
	k.answer(t, "n1", "check -o json", 0, `[{"level":"ok","what":"kernel","detail":"6.1"},{"level":"note","what":"conntrack","detail":"small"}]`)
	k.answer(t, "n2", "check -o json", 1, `[{"level":"ok","what":"kernel","detail":"6.1"},{"level":"note","what":"conntrack","detail":"small"},{"level":"MISSING","what":"ipset","detail":"no program"}]`)
	code, out := run(t.Context(), "", "--node", "n1", "--node", "n2", "check")
	if code != 1 {
		t.Errorf("exit code %d", code)
	}
	expect(t, out, "MISSING", "n2", "ipset", "note", "all 2 nodes", "conntrack", "2 nodes: 1 findings are ok, 2 are not")
}

// TestPoliciesOfAllNodes: counters are summed, and packets only if all nodes count them.
func TestPoliciesOfAllNodes(t *testing.T) {
	k := newFakeKubectl(t, pod("n1", ""), pod("n2", ""))
	three, four := uint64(3), uint64(4)
	now := time.Now()
	k.answer(t, "n1", "policies -o json", 0, control.Hits{At: now, Since: now.Add(-time.Hour), Rules: []control.RuleHits{
		{Policy: "networkpolicy/shop/a", Rule: "ingress[0]", RuleName: "from-web", Connections: 1, Packets: &three, Last: now.Add(-time.Minute)},
		{Policy: "networkpolicy/shop/b", Rule: "ingress[0]", Connections: 0, Packets: new(uint64)},
	}})
	k.answer(t, "n2", "policies -o json", 0, control.Hits{At: now, Since: now.Add(-time.Hour), Rules: []control.RuleHits{
		{Policy: "networkpolicy/shop/a", Rule: "ingress[0]", RuleName: "from-web", Connections: 2, Packets: &four, Last: now.Add(-10 * time.Second)},
		{Policy: "networkpolicy/shop/b", Rule: "ingress[0]", Connections: 0},
	}})
	code, out := run(t.Context(), "", "--node", "n1", "--node", "n2", "policies")
	if code != 0 {
		t.Errorf("exit code %d", code)
	}
	lines := strings.Split(out, "\n")
	if got := strings.Join(strings.Fields(lines[1]), " "); got != "networkpolicy/shop/a ingress[0] (from-web) 2 3 7 10s ago" {
		t.Errorf("%q", got)
	}
	if got := strings.Join(strings.Fields(lines[2]), " "); got != "networkpolicy/shop/b ingress[0] 2 0 - never hit" {
		t.Errorf("%q", got)
	}
	if _, out := run(t.Context(), "", "--node", "n1", "--node", "n2", "policies", "--unused"); strings.Contains(out, "shop/a") || !strings.Contains(out, "shop/b") {
		t.Errorf("--unused:\n%s", out)
	}
}

// TestOrderFindsTheNode: the node of the pod answers, and that of node:NAME.
func TestOrderFindsTheNode(t *testing.T) {
	k := newFakeKubectl(t, pod("n1", ""), pod("n2", ""))
	k.object(t, "pod", corev1.Pod{Spec: corev1.PodSpec{NodeName: "n2"}})
	k.answer(t, "n2", "policies --order shop/db -o text", 0, "Ingress of shop/db (n2)\n")
	k.answer(t, "n1", "policies --order node:n1 -o json", 0, "{}\n")
	if code, out := run(t.Context(), "", "policies", "--order", "shop/db"); code != 0 || out != "Ingress of shop/db (n2)\n" {
		t.Errorf("exit code %d\n%s", code, out)
	}
	expect(t, k.asked(t), "--namespace shop get pod/db -o json")
	if code, out := run(t.Context(), "", "policies", "--order", "node:n1", "-o", "json"); code != 0 || out != "{}\n" {
		t.Errorf("exit code %d\n%s", code, out)
	}
	k.object(t, "pod", corev1.Pod{})
	for end, want := range map[string]string{"shop": "must be namespace/name", "shop/db": "on no node yet", "node:n9": "node n9: no agent"} {
		if code, out := run(t.Context(), "", "policies", "--order", end); code != 2 || !strings.Contains(out, want) {
			t.Errorf("%s: exit code %d, want %q in\n%s", end, code, want, out)
		}
	}
}

// TestDropsOfAllNodes: lines have their node, in text, in JSON and in YAML.
func TestDropsOfAllNodes(t *testing.T) {
	k := newFakeKubectl(t, pod("n1", ""), pod("node-2", ""))
	k.answer(t, "n1", "drops --for 1s", 1, "one\ntwo\n")
	k.answer(t, "node-2", "drops --for 1s", 0, "")
	code, out := run(t.Context(), "", "--node", "n1", "--node", "node-2", "drops", "--for", "1s")
	if code != 1 || out != "n1      one\nn1      two\n" {
		t.Errorf("exit code %d, %q", code, out)
	}
	k.answer(t, "n1", "drops -o json", 0, `{"direction":"egress"}`+"\n")
	for _, flags := range []string{"-o yaml", "-oyaml", "--output=yaml"} { // the nodes are asked for JSON
		asked := "drops " + strings.Replace(flags, "yaml", "json", 1)
		k.answer(t, "n1", asked, 0, `{"direction":"egress"}`+"\n")
		k.answer(t, "node-2", asked, 1, `{"to":{"pod":"shop/db"},"packets":12345678901}`+"\n")
		code, out = run(t.Context(), "", append([]string{"--node", "n1", "--node", "node-2", "drops"}, strings.Fields(flags)...)...)
		const first, second = "---\ndirection: egress\nnode: n1\n", "---\nnode: node-2\npackets: 12345678901\nto:\n  pod: shop/db\n"
		if code != 1 || out != first+second && out != second+first {
			t.Errorf("%s: exit code %d, %q", flags, code, out)
		}
	}
	k.answer(t, "node-2", "drops -o json", 2, "")
	code, out = run(t.Context(), "", "--node", "n1", "--node", "node-2", "drops", "-o", "json")
	if code != 2 || !strings.Contains(out, `{"direction":"egress","node":"n1"}`) || !strings.Contains(out, "1 of 2 nodes gave no answer") {
		t.Errorf("exit code %d, %q", code, out)
	}
}

// TestTablesWithoutHeaders: --no-headers leaves out the heading of each table, and nothing else.
func TestTablesWithoutHeaders(t *testing.T) {
	k := newFakeKubectl(t, pod("n1", ""), pod("n2", ""))
	for _, node := range []string{"n1", "n2"} {
		k.answer(t, node, "status -o json", 0, good(node))
		k.answer(t, node, "check -o json", 0, `[{"level":"note","what":"conntrack","detail":"small"}]`)
		k.answer(t, node, "policies -o json", 0, control.Hits{Rules: []control.RuleHits{{Policy: "networkpolicy/shop/a", Rule: "ingress[0]"}}})
		k.answer(t, node, "services -o json", 0, control.Services{Proxy: true, Services: []control.Service{{Namespace: "shop", Name: "web", Ports: []control.ServicePort{{Protocol: model.TCP, Port: 80}}}}})
	}
	words := func(line string) string { return strings.Join(strings.Fields(line), " ") } // columns are as wide as their cells
	for command, heading := range map[string]string{
		"status": "NODE STATE BACKEND", "check": "RESULT NODES WHAT", "policies": "POLICY RULE NODES", "services": "SERVICE PORT ADDRESS", "version": "NODE AGENT", "backend get": "NODE BACKEND",
	} {
		args := append([]string{"--node", "n1", "--node", "n2"}, strings.Fields(command)...)
		code, with := run(t.Context(), "", args...)
		lines := strings.Split(with, "\n")
		rest := slices.DeleteFunc(slices.Clone(lines), func(l string) bool { return strings.HasPrefix(words(l), heading) })
		bareCode, without := run(t.Context(), "", append(args, "--no-headers")...)
		if len(rest) != len(lines)-1 || words(without) != words(strings.Join(rest, "\n")) || code != bareCode {
			t.Errorf("%s: exit code %d, with --no-headers %d\n%s\n%s", command, code, bareCode, with, without)
		}
	}
	k.answer(t, "n1", "policies --order node:n1 -o text --no-headers", 0, "the rules\n")
	if code, out := run(t.Context(), "", "policies", "--order", "node:n1", "--no-headers"); code != 0 || out != "the rules\n" {
		t.Errorf("--order: exit code %d\n%s", code, out)
	}
}

// TestDiffOfAllNodes prints the nodes that differ.
func TestDiffOfAllNodes(t *testing.T) {
	k := newFakeKubectl(t, pod("n1", ""), pod("n2", ""))
	k.answer(t, "n1", "diff live wanted", 0, "no difference\n")
	k.answer(t, "n2", "diff live wanted", 1, "a chain is missing\n")
	code, out := run(t.Context(), "", "--node", "n1", "--node", "n2", "diff", "live", "wanted")
	if code != 1 || out != "== n2\na chain is missing\n2 nodes: 1 differ, 1 do not\n" {
		t.Errorf("exit code %d, %q", code, out)
	}
}

// taken is the answer of backend set.
const taken = `{"backend": "openflow", "before": "nftables"}`

// after is the status of a node after the change.
func after(node string) control.Status {
	s := good(node)
	s.Backend = "openflow"
	return s
}

// TestBackendRolls: nodes change one after the other, and then the ConfigMap.
func TestBackendRolls(t *testing.T) {
	k := newFakeKubectl(t, pod("n1", ""), pod("n2", ""))
	k.file(t, "nodes", "node/n1\nnode/n2\n")
	for _, n := range []string{"n1", "n2"} {
		k.answer(t, n, "status -o json", 0, good(n))
		k.object(t, "agent-"+n+" status -o json.next", after(n))
		k.answer(t, n, "backend set openflow -o json", 0, taken)
	}
	volume := corev1.Volume{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}}}}
	k.object(t, "pod", corev1.Pod{Spec: corev1.PodSpec{Volumes: []corev1.Volume{volume}}})
	k.object(t, "configmap", corev1.ConfigMap{Data: map[string]string{configKey: "# backend: a comment\nbackend: nftables\nmtu: 1400\n"}})
	code, out := run(t.Context(), "", "backend", "set", "openflow")
	if code != 0 || out != "n1: openflow (was nftables)\nn2: openflow (was nftables)\nConfigMap settings: \"backend: openflow\" is set\n" {
		t.Errorf("exit code %d, %q", code, out)
	}
	expect(t, k.asked(t), "agent-n1 --container agent -- felixctl backend set openflow", "agent-n2 --container agent -- felixctl backend set openflow",
		"patch configmap settings", `"# backend: a comment\nbackend: openflow\nmtu: 1400\n"`)
}

// TestBackendStops: the first node that fails stops the command, and nothing is persisted.
func TestBackendStops(t *testing.T) {
	k := newFakeKubectl(t, pod("n1", ""), pod("n2", ""), pod("n3", ""))
	k.file(t, "nodes", "node/n1\nnode/n2\nnode/n3\n")
	for _, n := range []string{"n1", "n2", "n3"} {
		k.answer(t, n, "status -o json", 0, good(n))
		k.object(t, "agent-"+n+" status -o json.next", after(n))
		k.answer(t, n, "backend set openflow -o json", 0, taken)
	}
	k.answer(t, "n2", "backend set openflow -o json", 2, "")
	code, out := run(t.Context(), "", "backend", "set", "openflow")
	if code != 2 {
		t.Errorf("exit code %d", code)
	}
	expect(t, out, "n1: openflow (was nftables)", "stopped at node n2", "changed to openflow: n1")
	if asked := k.asked(t); strings.Contains(asked, "patch") || strings.Contains(asked, "agent-n3 --container agent -- felixctl backend set") {
		t.Errorf("it went on:\n%s", asked)
	}
	bad := good("n1")
	bad.LastApply.Error = "no space"
	k.answer(t, "n1", "status -o json", 1, bad)
	code, out = run(t.Context(), "", "backend", "set", "openflow")
	if code != 2 || strings.Contains(k.asked(t), "backend set") {
		t.Errorf("a node that is degraded was changed: %d, %s", code, out)
	}
	expect(t, out, "stopped at node n1", "before the change", "no space", "no node has changed")
}

// TestBackendComesBack: an agent that restarts with the former setting is not "all nodes have
// the backend".
func TestBackendComesBack(t *testing.T) {
	k := newFakeKubectl(t, pod("n1", ""))
	k.answer(t, "n1", "status -o json", 0, good("n1"))
	k.answer(t, "n1", "backend set openflow -o json", 0, taken)
	code, out := run(t.Context(), "", "--node", "n1", "--node", "n1", "backend", "set", "openflow")
	if code != 2 || !strings.Contains(out, "has nftables again") {
		t.Errorf("exit code %d, %s", code, out)
	}
}

// TestOddConfigMap: a setting that cannot be changed safely is left as it is.
func TestOddConfigMap(t *testing.T) {
	k := newFakeKubectl(t, pod("n1", ""))
	k.file(t, "nodes", "node/n1\n")
	k.answer(t, "n1", "status -o json", 0, good("n1"))
	k.object(t, "agent-n1 status -o json.next", after("n1"))
	k.answer(t, "n1", "backend set openflow -o json", 0, taken)
	volume := corev1.Volume{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}}}}
	k.object(t, "pod", corev1.Pod{Spec: corev1.PodSpec{Volumes: []corev1.Volume{volume}}})
	k.object(t, "configmap", corev1.ConfigMap{Data: map[string]string{configKey: "{backend: nftables, mtu: 1400}\n"}})
	code, out := run(t.Context(), "", "backend", "set", "openflow")
	if code != 2 || !strings.Contains(out, "by hand") || strings.Contains(k.asked(t), "patch") {
		t.Errorf("exit code %d, %s", code, out)
	}
}

// TestLostNodes: a kubectl that fails itself, or ends without an interrupt, is no answer.
func TestLostNodes(t *testing.T) {
	k := newFakeKubectl(t, pod("n1", ""), pod("n2", ""))
	k.answer(t, "n1", "drops", 0, "")
	k.answer(t, "n2", "drops", 1, "")
	k.file(t, "agent-n2 drops.cut", "")
	if code, out := run(t.Context(), "", "--node", "n1", "--node", "n2", "drops"); code != 2 || !strings.Contains(out, "n2: kubectl exec: exit code 1") {
		t.Errorf("drops: exit code %d, %s", code, out)
	}
	k.answer(t, "n1", "drops --follow", 0, "")
	k.answer(t, "n2", "drops --follow", 0, "")
	if code, out := run(t.Context(), "", "--node", "n1", "--node", "n2", "drops", "--follow"); code != 2 || !strings.Contains(out, "n1: the connection has ended") {
		t.Errorf("drops --follow: exit code %d, %s", code, out)
	}
	k.answer(t, "n1", "diff live wanted", 0, "")
	k.answer(t, "n2", "diff live wanted", 1, "half")
	k.file(t, "agent-n2 diff live wanted.cut", "")
	if code, out := run(t.Context(), "", "--node", "n1", "--node", "n2", "diff", "live", "wanted"); code != 2 || !strings.Contains(out, "n2: NO ANSWER") {
		t.Errorf("diff: exit code %d, %s", code, out)
	}
}
