package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/felixlike/felixlike/cmd/felixctl/labs"
	"github.com/felixlike/felixlike/felixlike/config"
)

// labKubectl makes a kubectl whose cluster is a lab: it lists an agent's pod for each node, runs felixctl beside the agent of the
// node, and knows one Service. Nodes that are named in the file "away" have no agent. It returns its folder.
func labKubectl(t *testing.T, nodes []labs.NodeStatus, service corev1.Service) string {
	t.Helper()
	dir := t.TempDir()
	write := func(name string, object any) {
		t.Helper()
		text, ok := object.(string)
		if !ok {
			data, err := json.Marshal(object)
			if err != nil {
				t.Fatal(err)
			}
			text = string(data)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	names := ""
	for _, n := range nodes {
		pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "agent-" + n.Name}, Spec: corev1.PodSpec{NodeName: n.Name}}
		running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "agent", Ready: true, State: running}}
		write("pod-"+n.Name, pod)
		write("socket-"+n.Name, n.ControlSocket)
		names += "node/" + n.Name + "\n"
	}
	write("nodes", names)
	write("service", service)
	write("services", corev1.ServiceList{Items: []corev1.Service{service}})
	write("kubectl", fmt.Sprintf(`#!/bin/sh
cd %s
case "$*" in
*" get --raw "*) echo '{"items": [{}]}';;
*" get pods "*)
  echo '{"items": ['; between=
  for pod in pod-*; do
    [ ! -e "away-${pod#pod-}" ] || continue
    case "$*" in *spec.nodeName=*) [ "pod-${*##*spec.nodeName=}" = "$pod" ] || continue;; esac
    printf '%%s' "$between"; cat "$pod"; between=,
  done
  echo ']}';;
*" get nodes "*) cat nodes;;
*" get service/db "*) cat service;;
*" get services "*spec.clusterIP=10.96.0.9*|*" get services "*"--field-selector  -o"*) cat services;;
*" get services "*) echo '{"items": []}';;
*" exec "*)
  pod=${*##*pod/agent-}; socket=$(cat "socket-${pod%%%% *}")
  while [ "$1" != -- ]; do shift; done; shift 2
  %s/felixctl "$@" --socket "$socket"; code=$?
  [ "$code" = 0 ] || echo "command terminated with exit code $code" >&2
  exit $code;;
*) echo "kubectl: $*" >&2; exit 1;;
esac
`, dir, buildDir))
	return dir
}

// TestTraceTogether: kubectl felixlike trace asks the nodes of both ends, and their answer is one: the policies and the rules of both,
// endpoints of a Service that it reads by itself, a firewall of another program on the second node. A node that gives no answer is a gap.
func TestTraceTogether(t *testing.T) {
	t.Parallel()
	needLab(t)
	for _, backend := range places() {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			name := fmt.Sprintf("tt-%d-%s", os.Getpid(), backend)
			name = name[:min(len(name), 24)]
			ctl := labNamed(t, name)
			t.Cleanup(func() { ctl(0, "down", "--ignore-not-found") })
			ctl(0, "up", "--backend", backend, "-f", file(t, strings.NewReplacer("labels: {app: api}", "labels: {app: api, tier: back}", "labels: {app: db}", "labels: {app: db, tier: back}").Replace(shop)))
			status, err := labs.NewClient(labs.DefaultRoot, name).Status(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			service := corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db"}}
			service.Kind = "Service"
			service.Spec.Selector = map[string]string{"app": "db"}
			service.Spec.ClusterIPs = []string{"10.96.0.9", "fd00:96::9"}
			service.Spec.ClusterIP, service.Spec.Ports = "10.96.0.9", []corev1.ServicePort{{Port: 5432, Protocol: corev1.ProtocolTCP}}
			kubectl := labKubectl(t, status.Nodes, service)
			given := "" // on standard input, if not empty
			var flags []string
			ask := func(code int, from, to, port string, texts ...string) {
				t.Helper()
				cmd := exec.CommandContext(t.Context(), filepath.Join(buildDir, "felixctl"), "--all-nodes", "trace", "--from", from, "--to", to, "--port", port)
				cmd.Args = append(cmd.Args, flags...)
				if cmd.Stdin = strings.NewReader(given); given != "" {
					cmd.Args = append(cmd.Args, "--services", "-")
				}
				cmd.Env = append(os.Environ(), "PATH="+kubectl+":"+os.Getenv("PATH"))
				out, err := cmd.CombinedOutput()
				if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != code {
					t.Errorf("%s -> %s %s: %v, want the exit code %d\n%s", from, to, port, err, code, out)
				}
				for _, text := range texts {
					without, not := strings.CutPrefix(text, "!")
					if strings.Contains(string(out), without) == not {
						t.Errorf("%s -> %s %s: want %q in\n%s", from, to, port, text, out)
					}
				}
			}
			agreed := "Agreed: policies and programmed state."
			ask(0, "shop/api", "shop/db", "pg/tcp", "ALLOWED", "  node1\n", "  node2\n", "networkpolicy/shop/db ingress[0]", agreed, "!note:")
			ask(1, "shop/web", "shop/db", "pg/tcp", "DENIED", "  node1\n", "  node2\n", agreed, "!note:")
			ask(1, "shop/db", "shop/api", "8080/tcp", "DENIED", agreed, "!note:")
			flags = []string{"--short"}
			ask(0, "shop/api", "shop/db", "pg/tcp", "ALLOWED  shop/api -> shop/db", "  ingress: allowed by networkpolicy/shop/db ingress[0]\n", "!node1\n", "!"+agreed)
			flags = nil
			ask(0, "shop/api", "fd00:96::9", "5432/tcp", "ALLOWED", "to the Service shop/db", "fd00:10::a0a:10a", agreed)
			for _, to := range []string{"service:shop/db", "db.shop.svc", "db.shop.svc.cluster.local", "10.96.0.9"} {
				ask(0, "shop/api", to, "5432/tcp", "ALLOWED", "to the Service shop/db", "  node2\n", agreed)
				ask(1, "shop/web", to, "5432/tcp", "DENIED", agreed)
			}
			ask(2, "shop/web", "shop/none", "80/tcp", "the agent knows no such pod")
			at := slices.IndexFunc(status.Nodes, func(n labs.NodeStatus) bool { return n.Name == "node2" })
			if foreignFirewall(t, status.Nodes[at].Namespace); backend == config.OpenFlow { // packets pass no host
				ask(0, "shop/api", "shop/db", "pg/tcp", "ALLOWED", agreed)
			} else {
				ask(1, "shop/api", "shop/db", "pg/tcp", "DENIED", "That is because a firewall of another program drops packets")
				flags = []string{"--short"}
				ask(1, "shop/api", "shop/db", "pg/tcp", "DENIED", "  ingress: allowed by networkpolicy/shop/db ingress[0]\n", "not as the policies say, because a firewall")
				flags = nil
				// The first endpoint is on the node of the source: the second node has to answer about its own all the same.
				given = "{apiVersion: v1, kind: Service, metadata: {namespace: shop, name: all}, spec: {clusterIP: 10.96.0.8, selector: {tier: back}, ports: [{port: 5432}]}}"
				ask(1, "shop/api", "service:shop/all", "5432/tcp", "-> shop/db", "That is because a firewall of another program drops packets", "!were not asked")
				given = ""
			}
			if err := os.WriteFile(filepath.Join(kubectl, "away-node2"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			ask(1, "shop/web", "shop/db", "pg/tcp", "DENIED", "ingress of shop/db is judged on node2, which gave no answer (no agent:")
			ask(0, "shop/api", "shop/db", "pg/tcp", "ALLOWED", "which gave no answer")
			killAgent(t, status.Nodes[at].AgentPID)
			if out, errs, code := felixctl(t, "trace", "--lab", name, "--from", "shop/web", "--to", "shop/db", "--port", "pg/tcp"); code != 1 || !strings.Contains(out, "which gave no answer") {
				t.Errorf("a lab with a dead agent: exit code %d\n%s%s", code, out, errs)
			}
		})
	}
}

// foreignFirewall drops all forwarded TCP by a table of another program.
func foreignFirewall(t *testing.T, netns string) {
	t.Helper()
	rules := "table inet other { chain forward { type filter hook forward priority 10; policy accept; meta l4proto tcp drop; }; }"
	if out, err := exec.CommandContext(t.Context(), "ip", "netns", "exec", netns, "nft", rules).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

func killAgent(t *testing.T, pid int) {
	t.Helper()
	p, err := os.FindProcess(pid)
	if err == nil {
		err = p.Kill()
	}
	if err != nil {
		t.Fatal(err)
	}
}
