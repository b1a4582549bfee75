package deploy

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/ovsfwd/wireguard"
)

// daemonSets returns the DaemonSets of a file, by name: the agent's, and that of Open vSwitch.
func daemonSets(t *testing.T, path string) map[string]appsv1.DaemonSet {
	t.Helper()
	all := map[string]appsv1.DaemonSet{}
	for name, o := range read(t, path) {
		if o["kind"] == "DaemonSet" {
			all[strings.TrimPrefix(name, "DaemonSet ")] = as[appsv1.DaemonSet](t, o)
		}
	}
	return all
}

// TestSwitchOutlivesAgent: Open vSwitch has pods of its own, which a new version or setting does
// not replace. They have no token of the API server.
func TestSwitchOutlivesAgent(t *testing.T) {
	sets := daemonSets(t, "felixlike.yaml")
	agent, ovs := sets["felixlike"], sets["felixlike-ovs"]
	if len(sets) != 2 || ovs.Spec.UpdateStrategy.Type != appsv1.OnDeleteDaemonSetStrategyType || agent.Spec.UpdateStrategy.Type != "" {
		t.Fatalf("%d DaemonSets, that of Open vSwitch is updated %q, the agent's %q", len(sets), ovs.Spec.UpdateStrategy.Type, agent.Spec.UpdateStrategy.Type)
	}
	if maps.Equal(agent.Spec.Selector.MatchLabels, ovs.Spec.Selector.MatchLabels) {
		t.Errorf("both select %v", ovs.Spec.Selector.MatchLabels)
	}
	names := func(of []corev1.Container) (all []string) {
		for _, c := range of {
			all = append(all, c.Name)
		}
		return all
	}
	for _, c := range []struct {
		what string
		have []corev1.Container
		want string
	}{
		{"the agent's pod", agent.Spec.Template.Spec.Containers, "agent"},
		{"the agent's pod, first", agent.Spec.Template.Spec.InitContainers, "install"},
		{"the switch's pod", ovs.Spec.Template.Spec.Containers, "ovs"},
		{"the switch's pod, first", ovs.Spec.Template.Spec.InitContainers, "modules"},
	} {
		if have := names(c.have); !slices.Equal(have, []string{c.want}) {
			t.Errorf("%s has %v, want %s", c.what, have, c.want)
		}
	}
	for _, v := range ovs.Spec.Template.Spec.Volumes {
		if v.Projected != nil {
			t.Errorf("the switch's pod has volume %s", v.Name)
		}
	}
	for _, field := range []func(corev1.PodSpec) any{
		func(s corev1.PodSpec) any { return s.Tolerations },
		func(s corev1.PodSpec) any { return s.NodeSelector },
		func(s corev1.PodSpec) any { return s.PriorityClassName },
		func(s corev1.PodSpec) any { return s.SecurityContext },
		func(s corev1.PodSpec) any { return s.HostNetwork },
	} {
		if d := cmp.Diff(field(agent.Spec.Template.Spec), field(ovs.Spec.Template.Spec)); d != "" {
			t.Errorf("the pods do not run on the same nodes in the same way (-agent +ovs):\n%s", d)
		}
	}
}

// TestSwitchMayTakeBursts: the container of ovs-vswitchd has the capabilities that
// the supervisor needs to widen receive buffers and to give packets priority.
func TestSwitchMayTakeBursts(t *testing.T) {
	for _, c := range daemonSets(t, "felixlike.yaml")["felixlike-ovs"].Spec.Template.Spec.Containers {
		for _, capability := range []corev1.Capability{"SYS_PTRACE", "SYS_NICE"} {
			if !slices.Contains(c.SecurityContext.Capabilities.Add, capability) {
				t.Errorf("no %s among %v", capability, c.SecurityContext.Capabilities.Add)
			}
		}
	}
}

// No container has more than it needs, and all are of one image.
func TestContainers(t *testing.T) {
	for _, set := range daemonSets(t, "felixlike.yaml") {
		pod := set.Spec.Template.Spec
		for _, c := range append(pod.InitContainers, pod.Containers...) {
			s := c.SecurityContext
			switch {
			case c.Image != "felixlike:dev" || c.ImagePullPolicy != corev1.PullIfNotPresent:
				t.Errorf("%s: image %s, pulled %s", c.Name, c.Image, c.ImagePullPolicy)
			case s.Privileged != nil || !*s.ReadOnlyRootFilesystem || *s.AllowPrivilegeEscalation:
				t.Errorf("%s: %+v", c.Name, s)
			case len(s.Capabilities.Drop) != 1 || s.Capabilities.Drop[0] != "ALL" || len(s.Capabilities.Add) == 0:
				t.Errorf("%s: capabilities %+v", c.Name, s.Capabilities)
			case len(c.Resources.Requests) != 2 || len(c.Resources.Limits) != 0:
				t.Errorf("%s: resources %+v", c.Name, c.Resources)
			}
			for _, m := range c.VolumeMounts {
				if m.Name == "token" && c.Name != "agent" {
					t.Errorf("%s: has the API server's token", c.Name)
				}
			}
		}
		if *pod.AutomountServiceAccountToken {
			t.Errorf("%s: the token is mounted into every container", set.Name)
		}
	}
}

// The agent's root directory is read-only. It writes copies of manifests and its key of WireGuard to the node's directory, and
// has no other part of the state there.
func TestAgentKeepsManifests(t *testing.T) {
	objects := read(t, "felixlike.yaml")
	pod := as[appsv1.DaemonSet](t, objects["DaemonSet felixlike"]).Spec.Template.Spec
	state := config.Defaults().StateDir
	for _, v := range pod.Volumes {
		if v.Name == "state" && v.HostPath.Path != state {
			t.Errorf("the volume is %s; the agent's state directory %s", v.HostPath.Path, state)
		}
	}
	for _, c := range pod.Containers {
		if c.Name != "agent" {
			continue
		}
		mounts := slices.DeleteFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name != "state" })
		var want []corev1.VolumeMount
		for _, dir := range []string{"manifests", filepath.Dir(wireguard.KeyFile), backend.HostsDir} {
			want = append(want, corev1.VolumeMount{Name: "state", MountPath: filepath.Join(state, dir), SubPath: dir})
		}
		if diff := cmp.Diff(want, mounts); diff != "" {
			t.Errorf("mounts of the state directory (-want +got):\n%s", diff)
		}
	}
}

// TestVersionRolls: version and digest, which a release sets, are in the pod templates, so the
// next version's manifest rolls the agents, and a pod of Open vSwitch that is deleted comes back
// in that version. They are in no selector, which cannot change.
func TestVersionRolls(t *testing.T) {
	for _, set := range daemonSets(t, "felixlike.yaml") {
		const label = "app.kubernetes.io/version"
		if set.Spec.Template.Labels[label] != "dev" || set.Spec.Template.Annotations["felixlike.io/image-digest"] != "none" {
			t.Errorf("%s: pod template: labels %v, annotations %v", set.Name, set.Spec.Template.Labels, set.Spec.Template.Annotations)
		}
		if _, there := set.Spec.Selector.MatchLabels[label]; there {
			t.Errorf("%s: selector %v", set.Name, set.Spec.Selector.MatchLabels)
		}
	}
}

// Probes work with any settings: none names healthAddress, and the timeout of
// each is longer than that of its command.
func TestProbes(t *testing.T) {
	probes := map[string]int{}
	for _, set := range daemonSets(t, "felixlike.yaml") {
		for _, c := range set.Spec.Template.Spec.Containers {
			for _, p := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
				if p == nil {
					continue
				}
				probes[c.Name]++
				if p.Exec == nil || p.Exec.Command[0] != "felixlike-agent" || p.TimeoutSeconds < 5 {
					t.Errorf("%s: probe %+v", c.Name, p)
				}
				if c.Name == "agent" && slices.Contains(p.Exec.Command, "--config") {
					t.Errorf("%v reads a file that may be half edited", p.Exec.Command)
				}
			}
		}
	}
	if want := map[string]int{"agent": 2, "ovs": 1}; !maps.Equal(probes, want) {
		t.Errorf("probes %v, want %v", probes, want)
	}
}
