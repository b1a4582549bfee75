package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/rules"
	"github.com/felixlike/felixlike/test/cluster/kubelab"
)

// testServicesWithoutProxy moves the nodes from kube-proxy to the agents by the steps of felixctl migrate kube-proxy, goes through the Services,
// and gives kube-proxy its place back.
func testServicesWithoutProxy(t *testing.T, s *site) {
	var before corev1.ConfigMap
	if err := s.Get(t.Context(), &before, "-n", system, "configmap", "felixlike-config"); err != nil {
		t.Fatal(err)
	}
	configure := func(more string) {
		t.Helper()
		var text strings.Builder
		for line := range strings.Lines(before.Data["agent.yaml"] + more) {
			text.WriteString("    " + line)
		}
		s.kubectl(t, "-n", system, "patch", "configmap", "felixlike-config", "--type=merge", "--patch", "data:\n  agent.yaml: |\n"+text.String())
	}
	defer func() {
		s.kubectl(t, "label", "nodes", "--all", "felixlike.io/services-")
		s.kubectl(t, "-n", proxySystem, "delete", "daemonset/kube-proxy", "configmap/kube-proxy", "--wait")
		for _, node := range s.Nodes() {
			s.exec(t, node, `pgrep -x kube-proxy >/dev/null || setsid $(cat /run/kube-proxy.command) >/run/kube-proxy.log 2>&1 </dev/null &`)
		}
		configure("")
		s.roll(t)
		for _, node := range s.Nodes() {
			if tables := s.exec(t, node, "nft list tables"); strings.Contains(tables, "felixlike-services") {
				t.Errorf("%s still has the table of Services:\n%s", node, tables)
			}
		}
	}()
	steps := s.standIn(t)
	take := func(step int, node string) {
		t.Helper()
		for _, command := range steps[step].Commands {
			if strings.Contains(command, " wait --for=delete ") || strings.Contains(command, " patch ") || strings.Contains(command, " label ") {
				s.shell(t, strings.ReplaceAll(command, "NODE", node))
			}
		}
	}
	take(1, "")
	s.kubectl(t, "-n", proxySystem, "rollout", "status", "daemonset/kube-proxy", "--timeout=2m")
	configure(fmt.Sprintf("serviceProxy: full\napiServer: [%s]\n", outside()[model.IPv4]))
	s.kubectl(t, "-n", system, "rollout", "restart", daemonSet)
	left := s.Nodes()
	for len(left) > 0 {
		var next string
		until(t, rolledTime, func() error {
			for _, node := range left {
				if strings.Contains(s.exec(t, node, "nft list tables"), rules.ServicesTable) {
					next = node
					return nil
				}
			}
			return errors.New("no agent serves Services")
		})
		take(3, next)
		s.exec(t, next, `pid=$(pgrep -x kube-proxy) && tr '\0' ' ' </proc/$pid/cmdline >/run/kube-proxy.command && kill $pid
while kill -0 $pid 2>/dev/null; do sleep 0.1; done
$(cut -d ' ' -f 1 /run/kube-proxy.command) --cleanup`)
		left = slices.DeleteFunc(left, func(node string) bool { return node == next })
	}
	s.kubectl(t, "-n", system, "rollout", "status", daemonSet, "--timeout="+rolledTime.String())
	t.Run("ways", func(t *testing.T) { testServices(t, s) })
	if err := s.StartDNS(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// The test's context is over.
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		if err := s.StopDNS(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Run("names", func(t *testing.T) { testNames(t, s) })
	t.Run("specs", func(t *testing.T) {
		if !s.kit.HasSpecs() {
			t.Skipf("upstream's specs are not built here: any suite but %s builds them", quick)
		}
		s.specs(t, fastServiceSpecs, "")
	})
}

// fastServiceSpecs are upstream specs of Services that take seconds: several ports, no endpoint, a Service that changes.
const fastServiceSpecs = `\[sig-network\] Services should (serve multiport endpoints from pods|be rejected when no endpoints exist|be updated after adding or deleting ports)`

// testNames looks a Service up from a pod, over UDP and TCP, and connects to it by its name.
func testNames(t *testing.T, s *site) {
	const ns = "names"
	s.inNamespace(t, ns)
	agnhost := func(name, node, args string) string {
		return strings.NewReplacer(`image: "kubelab.local/pause:1"`, `image: "kubelab.local/agnhost:1", args: [`+args+"]").Replace(sleeper(ns, name, node))
	}
	nodes := s.Nodes()
	s.start(t, ns, agnhost("server", nodes[0], "netexec, --http-port=8080")+agnhost("client", nodes[1], "pause")+fmt.Sprintf(`---
apiVersion: v1
kind: Service
metadata: {namespace: %s, name: web}
spec: {ipFamilyPolicy: RequireDualStack, selector: {pod: server}, ports: [{port: 80, targetPort: 8080}]}
`, ns))
	want := strings.Fields(s.kubectl(t, "-n", ns, "get", "service", "web", "-o", "jsonpath={.spec.clusterIPs[*]}"))
	for _, flags := range []string{"+notcp", "+tcp"} {
		until(t, time.Minute, func() error {
			out, err := s.Kubectl(t.Context(), "-n", ns, "exec", "client", "--", "sh", "-c", fmt.Sprintf("dig %[1]s +short +search web A && dig %[1]s +short +search web AAAA", flags))
			if got := strings.Fields(out); err != nil || !slices.Equal(got, want) {
				return fmt.Errorf("%s: web is %q, want %q: %w", flags, got, want, err)
			}
			return nil
		})
	}
	until(t, time.Minute, func() error {
		out, err := s.Kubectl(t.Context(), "-n", ns, "exec", "client", "--", "curl", "-s", "--max-time", "2", "http://web/hostname")
		if err != nil || out != "server" {
			return fmt.Errorf("http://web is %q, want the server: %w", out, err)
		}
		return nil
	})
}

// proxySystem is the namespace of kube-proxy's objects.
const proxySystem = "kube-system"

// moveStep is a step of felixctl migrate kube-proxy.
type moveStep struct{ Commands []string }

// standIn makes the objects that kubeadm makes for kube-proxy, which runs as a process here, with settings that the agents take over, and returns the steps of felixctl migrate kube-proxy.
func (s *site) standIn(t *testing.T) []moveStep {
	t.Helper()
	s.apply(t, fmt.Sprintf(`
apiVersion: apps/v1
kind: DaemonSet
metadata: {namespace: %[1]s, name: kube-proxy}
spec:
  selector: {matchLabels: {k8s-app: kube-proxy}}
  template:
    metadata: {labels: {k8s-app: kube-proxy}}
    spec: {hostNetwork: true, terminationGracePeriodSeconds: 0, tolerations: [{operator: Exists}], containers: [{name: kube-proxy, image: "kubelab.local/pause:1"}]}
---
apiVersion: v1
kind: ConfigMap
metadata: {namespace: %[1]s, name: kube-proxy}
data:
  config.conf: "{apiVersion: kubeproxy.config.k8s.io/v1alpha1, kind: KubeProxyConfiguration, mode: nftables, nodePortAddresses: [0.0.0.0/0, '::/0'], healthzBindAddress: '127.0.0.1:10256'}"
  kubeconfig.conf: "{clusters: [{name: default, cluster: {server: 'https://%[2]s:6443'}}]}"
`, proxySystem, outside()[model.IPv4]))
	objects := s.kubectl(t, "-n", proxySystem, "get", "daemonset/kube-proxy", "configmap/kube-proxy", "-o", "yaml")
	cmd := exec.CommandContext(t.Context(), filepath.Join(s.kit.root, "bin", "felixctl"), "migrate", "kube-proxy", "-f", "-", "-o", "json")
	cmd.Stdin = strings.NewReader(objects)
	out, err := cmd.Output()
	var m struct{ Steps []moveStep }
	if err = errors.Join(err, json.Unmarshal(out, &m)); err != nil || len(m.Steps) != 5 {
		t.Fatalf("felixctl migrate kube-proxy: %v\n%s", err, out)
	}
	return m.Steps
}

// shell runs a command of the cluster's administrator.
func (s *site) shell(t *testing.T, command string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "ip", "netns", "exec", kubelab.ControlPlane, "sh", "-c", command)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+s.Kubeconfig(), "PATH="+filepath.Dir(s.kit.Bin("kubectl"))+":"+os.Getenv("PATH"))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", command, err, out)
	}
}
