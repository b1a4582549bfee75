package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// fakeKubectl is a kubectl that answers from files of its folder and records its arguments.
type fakeKubectl struct{ dir string }

// newFakeKubectl puts a kubectl into the PATH. It knows the nodes and their pods; a pod is
// named agent-NODE.
func newFakeKubectl(t *testing.T, pods ...corev1.Pod) fakeKubectl {
	t.Helper()
	k := fakeKubectl{t.TempDir()}
	script := `#!/bin/sh
cd ` + k.dir + `
printf '%s\n' "$*" >> asked
case "$*" in
*"--namespace felixlike-traffic-"*) case "$*" in
  *" create "*) cat > created; echo "$*" > deletable;;
  *" delete namespace felixlike-traffic-"*) rm deletable;;
  *" wait "*) [ ! -e wait-hangs ] || { touch waiting; exec sleep 100; };;
  *" get pods "*) cat traffic-pods;;
  *" get service "*) cat traffic-service;;
  *" get services --all-namespaces "*) cat traffic-services;;
  *" get nodes "*) cat traffic-nodes;;
  *" exec "*) name=${*#* exec }; name=sent-${name%% *}; cat "$name"; [ ! -e "$name.next" ] || mv "$name.next" "$name";;
  esac;;
*" get endpointslices "*) cat endpointslices;;
*" get --raw "*) [ ! -e raw-refused ] || { cat raw-refused >&2; exit 1; }; cat raw 2>/dev/null || echo '{"items": [{}]}';;
*" logs pod/"*) cat "log $(echo "$*" | tr / " ")" 2>/dev/null || exit 1;;
*" get clusterrolebinding/felixlike "*) cat binding || { echo 'Error from server (Forbidden): clusterrolebindings is forbidden' >&2; exit 1; };;
*" get pods --selector "*) cat selected 2>/dev/null;;
*" get pods "*component=ovs*) cat switches 2>/dev/null || cat pods-none;;
*" get pods "*spec.nodeName=*) node=${*##*spec.nodeName=}; cat "pods-$node" 2>/dev/null || cat pods-none;;
*" get pods "*"-o json"*) cat pods;;
*" get nodes "*"-o name"*) cat nodes;;
*" exec "*) pod=${*##*pod/}; pod=${pod%% *}; name="$pod $(echo "${*##*-- felixctl }" | tr / _)"
  [ -e "$name" ] || { echo "no such answer: $name" >&2; exit 1; }
  [ -e "$name.stdin" ] && cat
  code=$(cat "$name.code" 2>/dev/null || echo 0)
  cat "$name"
  cat "$name.errors" >&2 2>/dev/null
  [ -e "$name.next" ] && mv "$name.next" "$name" && echo 0 > "$name.code"
  [ "$code" = 0 ] || [ -e "$name.cut" ] || echo "command terminated with exit code $code" >&2
  exit $code;;
*" get netnamespaces"*) cat netnamespaces;;
*" get pod "*|*" get pod/"*) cat pod;;
*" get configmap "*) cat configmap;;
"get networkpolicies.networking.k8s.io/"*|*" get networkpolicies.networking.k8s.io/"*|"get clusternetworkpolicies.policy.networking.k8s.io/"*|*" get clusternetworkpolicies.policy.networking.k8s.io/"*) cat policy;;
*" patch "*|*" annotate "*) ;;
*) echo some text;;
esac
`
	k.file(t, "kubectl", script)
	if err := os.Chmod(filepath.Join(k.dir, "kubectl"), 0o755); err != nil {
		t.Fatal(err)
	}
	nodes := ""
	for _, p := range pods {
		nodes += "node/" + p.Spec.NodeName + "\n"

		k.object(t, "pods-"+p.Spec.NodeName, corev1.PodList{Items: []corev1.Pod{p}})
	}
	k.file(t, "nodes", nodes+"node/bare\n")
	k.object(t, "pods", corev1.PodList{Items: pods})
	k.object(t, "pods-none", corev1.PodList{})
	t.Setenv("PATH", k.dir+":"+os.Getenv("PATH"))
	return k
}

func (k fakeKubectl) file(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(k.dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (k fakeKubectl) object(t *testing.T, name string, object any) {
	t.Helper()
	data, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	k.file(t, name, string(data))
}

// answer is the reply of a node's felixctl to a command, with an exit code.
func (k fakeKubectl) answer(t *testing.T, node, command string, code int, reply any) {
	t.Helper()
	name := "agent-" + node + " " + strings.ReplaceAll(command, "/", "_")
	if text, ok := reply.(string); ok {
		k.file(t, name, text)
	} else {
		k.object(t, name, reply)
	}
	k.file(t, name+".code", fmt.Sprint(code))
}

// asked returns the arguments of the calls since the last time.
func (k fakeKubectl) asked(t *testing.T) string {
	t.Helper()
	path := filepath.Join(k.dir, "asked")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// pod is the agent's pod of a node; it runs if reason is empty, and waits for it otherwise.
func pod(node, reason string) corev1.Pod {
	p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "agent-" + node}, Spec: corev1.PodSpec{NodeName: node}}
	status := corev1.ContainerStatus{Name: container, Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}
	if reason != "" {
		status.Ready, status.State = false, corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}
	}
	p.Status.ContainerStatuses = []corev1.ContainerStatus{status}
	return p
}

// run runs a command and returns its exit code, and its output with errors.
func run(ctx context.Context, stdin string, args ...string) (int, string) {
	var out, errs bytes.Buffer
	code, err := Run(ctx, args, Streams{strings.NewReader(stdin), &out, &errs})
	if err != nil {
		fmt.Fprintln(&errs, err)
	}
	return code, out.String() + errs.String()
}

// TestOneNode: with one node the command, its standard input and its exit code are passed
// on as they are.
func TestOneNode(t *testing.T) {
	k := newFakeKubectl(t, pod("n1", ""))
	k.answer(t, "n1", "preview -f -", 1, "previewed")
	k.file(t, "agent-n1 preview -f -.stdin", "")
	if code, out := run(t.Context(), "kind: NetworkPolicy\n", "--context", "c1", "--node=n1", "preview", "-f", "-"); code != 1 || !strings.HasPrefix(out, "kind: NetworkPolicy\npreviewed") {
		t.Errorf("exit code %d, %q", code, out)
	}
	want := "--context c1 --namespace felixlike-system get --raw /api/v1/namespaces/felixlike-system/pods?limit=1&labelSelector=app.kubernetes.io%2Fname%3Dfelixlike%2Capp.kubernetes.io%2Fcomponent%3Dagent\n" +
		"--context c1 --namespace felixlike-system get pods -l app.kubernetes.io/name=felixlike,app.kubernetes.io/component=agent " +
		"-o json --field-selector spec.nodeName=n1\n" +
		"--context c1 --namespace felixlike-system exec --stdin pod/agent-n1 --container agent -- felixctl preview -f -\n"
	if asked := k.asked(t); asked != want {
		t.Errorf("kubectl was asked\n%s, want\n%s", asked, want)
	}
}

// TestOneNodeWithoutAnswer: an exit code of kubectl itself is none of the command, whose 1 may mean that a packet is denied.
func TestOneNodeWithoutAnswer(t *testing.T) {
	newFakeKubectl(t, pod("n1", "")) // kubectl exec ends with 1
	if code, out := run(t.Context(), "", "--node", "n1", "trace"); code != 2 || !strings.Contains(out, "no such answer") {
		t.Errorf("exit code %d, %q", code, out)
	}
}

// TestAnyNode: reach is answered by the first node with an agent that can be asked.
func TestAnyNode(t *testing.T) {
	k := newFakeKubectl(t, pod("n1", "CrashLoopBackOff"), pod("n2", ""))
	k.answer(t, "n2", "reach --deny", 1, "passes")
	k.file(t, "agent-n2 reach --deny.stdin", "")
	if code, out := run(t.Context(), "", "--all-nodes", "reach", "--deny"); code != 1 || !strings.HasPrefix(out, "passes") {
		t.Errorf("exit code %d, %q", code, out)
	}
	k.asked(t)
	for _, args := range [][]string{{"reach", "--help"}, {"--node", "n2", "dump", "-h"}} {
		run(t.Context(), "", args...)
		if asked := k.asked(t); !strings.Contains(asked, " exec ") || strings.Count(asked, "--namespace felixlike-system ") != strings.Count(asked, "\n") {
			t.Errorf("%v: kubectl was asked\n%s", args, asked)
		}
	}
	if err := (client{}).kubectl(t.Context(), "get", "pods").Run(); err == nil || !strings.Contains(err.Error(), "namespace is not known") {
		t.Errorf("without a namespace: %v", err)
	}
}

// TestUsage: wrong usage is exit code 2 with the remedy.
func TestUsage(t *testing.T) {
	newFakeKubectl(t, pod("n1", ""), pod("n3", "CrashLoopBackOff"))
	for _, c := range []struct {
		want string
		args []string
	}{
		{"node n2: no agent", []string{"--node", "n2", "status"}},
		{"node n3: container agent of pod agent-n3 waits: CrashLoopBackOff", []string{"--node", "n3", "status"}},
		{"dump is for one node: give one --node", []string{"dump"}},
		{"unknown flag --nodes", []string{"--nodes", "n1", "status"}},
		{"a value is missing", []string{"--node"}},
		{"unknown flag: --wide", []string{"status", "--wide"}},
	} {
		if code, out := run(t.Context(), "", c.args...); code != 2 || !strings.Contains(out, c.want) {
			t.Errorf("%v: exit code %d, %q; want %q", c.args, code, out, c.want)
		}
	}
	if code, out := run(t.Context(), "", "--help"); code != 0 || !strings.Contains(out, "kubectl felixlike --node") {
		t.Errorf("help: %d, %q", code, out)
	}
}

// TestWanted: the plugin's name and a leading flag say that a cluster is meant.
func TestWanted(t *testing.T) {
	for args, want := range map[string]bool{
		"/usr/local/bin/kubectl-felixlike":    true,
		"kubectl-felixlike.exe status":        true,
		"felixctl --node=n1 status":           true,
		"felixctl --all-nodes status":         true,
		"felixctl --context c status":         true,
		"felixctl status":                     false,
		"felixctl":                            false,
		"felixctl trace --node n1 --from a/b": false,
	} {
		if got := Wanted(strings.Fields(args)); got != want {
			t.Errorf("%s: %v", args, got)
		}
	}
}

// TestNetNamespaces: netnamespace is for the cluster that the flags name. All agents say which connections a change denies.
func TestNetNamespaces(t *testing.T) {
	k := newFakeKubectl(t, pod("n1", ""), pod("n2", ""))
	if code, out := run(t.Context(), "", "--node", "n1", "netnamespace", "list"); code != 2 || !strings.Contains(out, "leave out --node") {
		t.Errorf("exit code %d, %q", code, out)
	}
	k.file(t, "nodes", "node/n1\nnode/n2\n")
	k.file(t, "netnamespaces", `{"apiVersion": "v1", "kind": "List", "items": []}`)
	k.answer(t, "n1", "preview -o json -f -", 0, map[string]any{})
	k.answer(t, "n2", "preview -o json -f -", 1, map[string]any{"outlivedConnections": []any{map[string]any{"protocol": "udp", "source": "10.0.0.1", "destination": "10.0.0.2", "from": "a/x", "to": "b/y"}}})
	code, out := run(t.Context(), "", "--context", "c1", "--agents-namespace", "agents", "netnamespace", "join", "a", "--to", "b", "--dry-run")
	if code != 0 || out != "the change denies 1 established connection:\n  udp 10.0.0.1 -> 10.0.0.2  (a/x -> b/y)\ndry run: nothing is changed\n" {
		t.Errorf("exit code %d, %q", code, out)
	}
	asked := k.asked(t)
	for _, want := range []string{
		"--context c1 --namespace agents get netnamespaces.v1.network.openshift.io -o json\n",
		"--context c1 --namespace agents exec --stdin pod/agent-n2 --container agent -- felixctl preview -o json -f -\n",
	} {
		if !strings.Contains(asked, want) {
			t.Errorf("kubectl was not asked %q but\n%s", want, asked)
		}
	}
}
