package cluster

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/felixlike/felixlike/felixlike/control"
)

// TestPodThatCannotStart: the fault names the container that prevents it, init containers first, with the reason, and the last log line of one that has
// crashed.
func TestPodThatCannotStart(t *testing.T) {
	waiting := func(reason, message string) corev1.ContainerState {
		return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
	}
	ended := func(code int32) corev1.ContainerState {
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Reason: "Error"}}
	}
	main := corev1.ContainerStatus{Name: container, State: waiting("PodInitializing", "")}
	for want, statuses := range map[string][2][]corev1.ContainerStatus{
		`init container install-cni of pod agent-n1 waits: ImagePullBackOff: Back-off pulling image "x"`: {
			{{Name: "done", State: ended(0)}, {Name: "install-cni", State: waiting("ImagePullBackOff", `Back-off pulling image "x"`)}}, {main},
		},
		"init container install-cni of pod agent-n1 waits: CrashLoopBackOff (exit code 2, Error); its log ends: no kernel module ?openvswitch": {
			{{Name: "install-cni", State: waiting("CrashLoopBackOff", "back-off 5m0s restarting"), LastTerminationState: ended(2)}}, {main},
		},
		"init container install-cni of pod agent-n1 has ended: Error (exit code 3); its log ends: no kernel": {{{Name: "install-cni", State: ended(3)}}, {main}},
		"init container install-cni of pod agent-n1 runs and has not ended": {
			{{Name: "install-cni", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}, {main},
		},
		"container agent of pod agent-n1 waits: Odd?[31m": {
			{{Name: "sidecar", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}, {{Name: container, State: waiting("Odd\x1b[31m", "")}},
		},
		"container agent of pod agent-n1 waits: CrashLoopBackOff (exit code 1, Error); its log ends: bad setting": {
			{{Name: "install-cni", State: ended(0)}}, {{Name: container, State: waiting("CrashLoopBackOff", ""), LastTerminationState: ended(1)}},
		},
		"pod agent-n1 does not run: Failed Evicted low on memory": {},
	} {
		p := pod("n1", "")
		p.Status.InitContainerStatuses, p.Status.ContainerStatuses = statuses[0], statuses[1]
		always, yes := corev1.ContainerRestartPolicyAlways, true
		p.Spec.InitContainers = []corev1.Container{{Name: "install-cni"}, {Name: "sidecar", RestartPolicy: &always}}
		for i := range p.Status.InitContainerStatuses { // kubelet sets it for each that runs
			p.Status.InitContainerStatuses[i].Started = &yes
		}
		p.Status.Phase, p.Status.Reason, p.Status.Message = "Failed", "Evicted", "low on memory"
		k := newFakeKubectl(t, p)
		k.file(t, "log --namespace felixlike-system logs pod agent-n1 --container install-cni --tail 1 --limit-bytes 4096", "no kernel module \x1bopenvswitch\n")
		k.file(t, "log --namespace felixlike-system logs pod agent-n1 --container agent --tail 1 --limit-bytes 4096", "bad setting\n")
		if code, out := run(t.Context(), "", "--node", "n1", "status"); code != 2 || !strings.Contains(out, want) {
			t.Errorf("exit code %d, want %q in\n%s", code, want, out)
		}
		k.asked(t)
		run(t.Context(), "", "version")
		if asked := k.asked(t); strings.Contains(asked, " logs ") {
			t.Errorf("version reads logs:\n%s", asked)
		}
	}
}

// TestNamespaceBefore: -n before the command is the namespace that is asked about, as behind it. The agents' own is also
// found elsewhere, by their ClusterRoleBinding: pods of tenants may have the labels of agents.
func TestNamespaceBefore(t *testing.T) {
	k := newFakeKubectl(t, pod("n1", ""), pod("n2", ""))
	for _, n := range []string{"n1", "n2"} {
		k.answer(t, n, "status -o json", 0, good(n))
		k.answer(t, n, "status -o name --namespace shop", 0, "")
		k.answer(t, n, "policies -o json --namespace shop", 0, control.Hits{Rules: []control.RuleHits{{Policy: "networkpolicy/shop/db", Rule: "ingress[0]"}}})
	}
	nodes := []string{"--node", "n1", "--node", "n2", "-n", "shop"}
	if code, out := run(t.Context(), "", append(nodes, "policies", "-o", "name")...); code != 0 || out != "networkpolicy/shop/db\n" {
		t.Errorf("policies: exit code %d\n%s", code, out)
	}
	if code, out := run(t.Context(), "", append(nodes, "status")...); code != 0 || !strings.Contains(out, "2 nodes, 2 ready") {
		t.Errorf("status: exit code %d\n%s", code, out)
	}
	if code, out := run(t.Context(), "", append(nodes, "check")...); code != 2 || !strings.Contains(out, "--agents-namespace") {
		t.Errorf("check: exit code %d\n%s", code, out)
	}
	k.asked(t)
	k.file(t, "raw", `{"items": []}`)
	binding := rbacv1.ClusterRoleBinding{Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: "felixlike", Namespace: "net"}}}
	k.object(t, "binding", binding)
	if code, out := run(t.Context(), "", append(nodes, "status")...); code != 0 || !strings.Contains(out, "the agents are in namespace net") {
		t.Errorf("agents elsewhere: exit code %d\n%s", code, out)
	}
	expect(t, k.asked(t), "--namespace net get pods", "--namespace net exec pod/agent-n1")
	binding.Subjects = nil
	k.object(t, "binding", binding)
	if code, out := run(t.Context(), "", append(nodes, "status")...); code != 2 || !strings.Contains(out, "has no subjects[0].namespace; name their namespace by --agents-namespace") {
		t.Errorf("no subject: exit code %d\n%s", code, out)
	}
}

// TestNoRightToFindAgents: without the right to look for the agents, the error says which one and the remedy. An API server that does not answer is
// another error.
func TestNoRightToFindAgents(t *testing.T) {
	k := newFakeKubectl(t, pod("n1", ""))
	k.file(t, "raw", `{"items": []}`)
	for _, c := range []struct{ refused, want string }{
		{"", "namespace felixlike-system has none, and ClusterRoleBinding felixlike, which names theirs, cannot be read"},
		{"Error from server (Forbidden): pods is forbidden", "no right to list the pods of namespace felixlike-system, and ClusterRoleBinding"},
		{"The connection to the server was refused", "find the agents: kubectl get: exit status 1: The connection"},
	} {
		if c.refused != "" {
			k.file(t, "raw-refused", c.refused)
		}
		code, out := run(t.Context(), "", "status")
		if code != 2 || !strings.Contains(out, c.want) || !strings.Contains(c.want, "find the agents:") && !strings.Contains(out, "--agents-namespace") {
			t.Errorf("%q: exit code %d\n%s", c.refused, code, out)
		}
	}
	k.answer(t, "n1", "status", 0, "fine\n")
	k.file(t, "agent-n1 status.stdin", "")
	if code, out := run(t.Context(), "", "--agents-namespace", "net", "--node", "n1", "status"); code != 0 || !strings.Contains(out, "fine") {
		t.Errorf("--agents-namespace: exit code %d\n%s", code, out)
	}
}
