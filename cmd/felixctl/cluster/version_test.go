package cluster

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/felixlike/felixlike/felixlike/version"
)

// TestVersionsOfAllNodes names the agents that do not fit.
func TestVersionsOfAllNodes(t *testing.T) {
	k := newFakeKubectl(t, pod("n1", ""), pod("n2", ""))
	old := good("n2")
	old.AgentVersion = "v99.0.0"
	k.answer(t, "n1", "status -o json", 0, good("n1"))
	k.answer(t, "n2", "status -o json", 0, old)
	code, out := run(t.Context(), "", "--node", "n1", "--node", "n2", "version")
	_, fits := version.Skew(version.String(), "v99.0.0")
	if fits {
		t.Skip("this build has no version, so every version fits")
	}
	if code != 1 {
		t.Errorf("exit code %d\n%s", code, out)
	}
	expect(t, out, "n1", "yes", "n2", "v99.0.0", "NO:")
}

// switchPod is the pod of Open vSwitch of a node, of a version.
func switchPod(node, version string) corev1.Pod {
	p := corev1.Pod{Spec: corev1.PodSpec{NodeName: node}}
	p.Name, p.Labels = "ovs-"+node, map[string]string{versionLabel: version}
	return p
}

// TestVersionOfSwitches: a pod of Open vSwitch that an upgrade has left alone is named. Agents fit
// all the same.
func TestVersionOfSwitches(t *testing.T) {
	var agents []corev1.Pod
	for _, node := range []string{"n1", "n2", "n3"} {
		p := pod(node, "")
		p.Labels = map[string]string{versionLabel: "v0.1.1"}
		agents = append(agents, p)
	}
	k := newFakeKubectl(t, agents...)
	replaced := switchPod("n2", "v0.1.0")
	replaced.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	k.object(t, "switches", corev1.PodList{Items: []corev1.Pod{switchPod("n1", "v0.1.0"), switchPod("n2", "v0.1.1"), replaced}})
	for _, node := range []string{"n1", "n2", "n3"} {
		k.answer(t, node, "status -o json", 0, good(node))
	}
	args := []string{"--node", "n1", "--node", "n2", "--node", "n3", "version"}
	code, out := run(t.Context(), "", args...)
	if code != 0 {
		t.Errorf("exit code %d", code)
	}
	expect(t, out, "OPEN VSWITCH", "n1", "v0.1.0", "n2", "v0.1.1", "n3", "-", "pod of another version on n1: delete")
	if _, out := run(t.Context(), "", append(args, "-o", "json")...); strings.Count(out, `"openVSwitchPending": true`) != 1 {
		t.Errorf("%s", out)
	}
}
