package cluster

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/yaml"
)

// oneDaemonSet returns the manifest in the form that it had before Open vSwitch had pods of its
// own: its container is in the agents' pods.
func oneDaemonSet(t *testing.T, manifest string) string {
	t.Helper()
	var rest []string
	sets := map[string]*appsv1.DaemonSet{}
	for _, text := range strings.Split(string(mustRead(t, manifest)), "\n---\n") {
		if !strings.Contains(text, "\nkind: DaemonSet\n") {
			rest = append(rest, text)
			continue
		}
		set := new(appsv1.DaemonSet)
		if err := yaml.UnmarshalStrict([]byte(text), set); err != nil {
			t.Fatal(err)
		}
		sets[set.Name] = set
	}
	agent, ovs := sets["felixlike"], sets["felixlike-ovs"]
	if agent == nil || ovs == nil {
		t.Fatalf("%s has DaemonSets %v", manifest, sets)
	}
	pod := &agent.Spec.Template.Spec
	pod.Containers = append(pod.Containers, ovs.Spec.Template.Spec.Containers...)
	has := map[string]bool{}
	for _, v := range pod.Volumes {
		has[v.Name] = true
	}
	for _, v := range ovs.Spec.Template.Spec.Volumes {
		if !has[v.Name] {
			pod.Volumes = append(pod.Volumes, v)
		}
	}
	agent.Spec.Template.Labels["app.kubernetes.io/version"] = "before"
	text, err := yaml.Marshal(agent)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(append(rest, string(text)), "\n---\n")
}

// TestUpgradeFromOneDaemonSet upgrades an installation that has Open vSwitch in the pods of the
// agents, as before Open vSwitch had pods of its own, under traffic.
func TestUpgradeFromOneDaemonSet(t *testing.T) {
	if suite() != full {
		t.Skipf("some minutes: set %s=%s", suiteVariable, full)
	}
	s := newSite(t, "nftables", "iptables")
	s.before = s.snapshots(t)
	deploy := filepath.Join(s.kit.root, "deploy")
	s.apply(t, oneDaemonSet(t, filepath.Join(deploy, "felixlike.yaml")))
	s.kubectl(t, "-n", system, "rollout", "status", daemonSet, "--timeout=5m")
	if now := s.switchPods(t); len(now) > 0 {
		t.Fatalf("Open vSwitch has pods of its own: %v", now)
	}
	t.Run("upgrade", func(t *testing.T) {
		s.underTraffic(t, "two", func() {
			s.kubectl(t, "apply", "-f", filepath.Join(deploy, "felixlike.yaml"))
			s.kubectl(t, "-n", system, "rollout", "status", daemonSet, "--timeout="+rolledTime.String())
			until(t, rolledTime, func() error {
				for _, node := range s.Nodes() {
					if p := s.switchPods(t)[node]; len(p.Status.ContainerStatuses) == 0 || !p.Status.ContainerStatuses[0].Ready || restarts(p) > 0 {
						return fmt.Errorf("%s: pod %q of Open vSwitch is not ready, or its container has been started again", node, p.Name)
					}
				}
				return nil
			})
		})
		if log := s.kubectl(t, "-n", system, "logs", "-l", switchLabels, "--prefix", "--tail=-1"); !strings.Contains(log, "ANOTHER OPEN VSWITCH") {
			// On the node that is rolled first, the old one may end before the new one starts.
			t.Errorf("no new pod waited for the old one:\n%s", log)
		}
	})
	t.Run("agents alone", func(t *testing.T) { testAgentsAlone(t, s, "alone", func() { s.roll(t) }) })
	s.uninstall(t, filepath.Join(deploy, "felixlike.yaml"), filepath.Join(deploy, "uninstall.yaml"))
}
