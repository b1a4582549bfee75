package netnamespace_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/felixlike/felixlike/cmd/felixctl/netnamespace"
	"github.com/felixlike/felixlike/test/kubernetestest"
)

const agents = "felixlike-system"

// access is a real kubectl, and agents of the test.
type access struct {
	kubeconfig string
	// answer is what each agent answers.
	answer netnamespace.Answer
	// asked are the commands that the agents got, with their standard input.
	asked []string
	// before is called before kubectl runs.
	before func(args []string)
	// refused is the resource that may not be read.
	refused string
}

func (a *access) AgentNamespace() string { return agents }

func (a *access) Ask(_ context.Context, _ io.Writer, stdin []byte, command ...string) ([]netnamespace.Answer, error) {
	a.asked = append(a.asked, strings.Join(command, " ")+" < "+string(stdin))
	return []netnamespace.Answer{a.answer}, nil
}

func (a *access) Kubectl(ctx context.Context, stdin []byte, args ...string) ([]byte, error) {
	if a.before != nil {
		a.before(args)
	}
	if a.refused != "" && strings.HasPrefix(args[1], a.refused) {
		return nil, errors.New("kubectl get: Error from server (Forbidden)")
	}
	// The cache outlives tests, and is by host and port.
	cache := filepath.Join(filepath.Dir(a.kubeconfig), "cache")
	cmd := exec.CommandContext(ctx, "kubectl", append([]string{"--kubeconfig", a.kubeconfig, "--cache-dir", cache, "--namespace", agents}, args...)...)
	cmd.Stdin = bytes.NewReader(stdin)
	out, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return nil, fmt.Errorf("kubectl %s: %w: %s", args[0], err, bytes.TrimSpace(exit.Stderr))
	}
	return out, err
}

// newAccess starts an API server with four namespaces, still without the definition of NetNamespaces.
func newAccess(t *testing.T) *access {
	t.Helper()
	if testing.Short() {
		t.Skip("takes seconds")
	}
	if _, err := exec.LookPath("kubectl"); err != nil {
		t.Skipf("the test needs kubectl: %v", err)
	}
	config := kubernetestest.StartAPIServer(t)
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(api.Config{
		Clusters:  map[string]*api.Cluster{"c": {Server: config.Host, InsecureSkipTLSVerify: true}},
		AuthInfos: map[string]*api.AuthInfo{"u": {Token: config.BearerToken}},
		Contexts:  map[string]*api.Context{"x": {Cluster: "c", AuthInfo: "u"}}, CurrentContext: "x",
	}, file); err != nil {
		t.Fatal(err)
	}
	client, err := clientset.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{agents, "shop", "test", "stage", "monitoring", "bank", "bank-test"} {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if _, err := client.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	return &access{kubeconfig: file, answer: netnamespace.Answer{Node: "n1", Out: []byte("{}")}}
}

// define creates the definition of NetNamespaces.
func (a *access) define(t *testing.T) {
	t.Helper()
	definition, err := os.ReadFile("../../../deploy/components/netnamespaces-crd/crd.yaml")
	if err != nil {
		t.Fatal(err)
	}
	a.apply(t, string(definition))
	if _, err := a.Kubectl(t.Context(), nil, "wait", "--for=condition=Established", "crd/netnamespaces.network.openshift.io", "--timeout=1m"); err != nil {
		t.Fatal(err)
	}
}

func (a *access) apply(t *testing.T, text string) {
	t.Helper()
	if _, err := a.Kubectl(t.Context(), []byte(text), "apply", "-f", "-"); err != nil {
		t.Fatal(err)
	}
}

// run runs a command, and returns its whole output and its error.
func (a *access) run(t *testing.T, args ...string) (string, error) {
	t.Helper()
	c := netnamespace.Command(a)
	c.SilenceUsage, c.SilenceErrors = true, true
	var out bytes.Buffer
	c.SetOut(&out)
	c.SetErr(&out)
	c.SetArgs(args)
	err := c.ExecuteContext(t.Context())
	return out.String(), err
}

// expect runs a command that succeeds, and compares its output.
func (a *access) expect(t *testing.T, want string, args ...string) {
	t.Helper()
	if out, err := a.run(t, args...); err != nil || strings.TrimSpace(out) != strings.TrimSpace(want) {
		t.Errorf("%v: %v\n%s\nwant\n%s", args, err, out, want)
	}
}

// fails runs a command that fails.
func (a *access) fails(t *testing.T, want string, args ...string) {
	t.Helper()
	if out, err := a.run(t, args...); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v: %v, want %s\n%s", args, err, want, out)
	}
}

// numbers returns the numbers of the namespaces that the test has made.
func (a *access) numbers(t *testing.T) string {
	t.Helper()
	out, err := a.run(t, "list", "-o", "json")
	var answer struct {
		Namespaces []struct {
			Name  string
			NetID *int64
		}
	}
	if err != nil || json.Unmarshal([]byte(out), &answer) != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var words []string
	for _, n := range answer.Namespaces {
		if n.NetID != nil {
			words = append(words, fmt.Sprintf("%s=%d", n.Name, *n.NetID))
		}
	}
	return strings.Join(words, " ")
}

// TestCommands runs the commands by kubectl against a real API server.
func TestCommands(t *testing.T) {
	a := newAccess(t)
	testChanges(t, a)
	testDenied(t, a)
}

func testChanges(t *testing.T, a *access) {
	t.Helper()
	a.fails(t, "deploy/components/netnamespaces-crd", "list")
	a.fails(t, "deploy/components/netnamespaces-crd", "global", "shop")
	a.define(t)

	a.expect(t, "namespace test is joined to shop (number 10)\nnamespace stage is joined to shop (number 10)", "join", "test", "stage", "--to", "shop")
	a.expect(t, "namespace test is already joined to shop (number 10)", "join", "test", "--to", "shop")
	a.expect(t, "namespace monitoring is global (number 0)", "global", "monitoring")
	a.expect(t, "namespace kube-system is already isolated (no number)", "isolate", "kube-system")
	a.apply(t, "apiVersion: network.openshift.io/v1\nkind: NetNamespace\nmetadata: {name: gone}\nnetname: gone\nnetid: 99\negressIPs: [192.0.2.1, 192.0.2.2]\n")
	out, err := a.run(t, "list")
	want := "NAME              NETID  EGRESS IPS\n" +
		"bank              -\n" +
		"bank-test         -\n" +
		"default           -\n" +
		"felixlike-system  -\n" +
		"gone              99     192.0.2.1,192.0.2.2\n"
	if err != nil || !strings.HasPrefix(trimmed(out), want) || !strings.Contains(out, "NetNamespace gone: there is no such namespace") || !strings.Contains(trimmed(out), "\nstage             10\n") {
		t.Errorf("%v\n%s", err, out)
	}

	a.fails(t, "namespace monitoring is global", "join", "shop", "--to", "monitoring")
	a.fails(t, "namespace monitoring is global", "join", "shop", "--to", "monitoring", "--dry-run")
	a.fails(t, "namespace shop cannot join itself", "join", "test", "shop", "--to", "shop", "--dry-run")
	a.fails(t, `"--kubeconfig=x" is no name of a namespace`, "isolate", "--dry-run", "--", "--kubeconfig=x")
	a.fails(t, `"-A" is no name of a namespace`, "join", "shop", "--to=-A")
	a.refused = "netnamespaces"
	a.fails(t, "Forbidden", "isolate", "test", "--dry-run")
	a.refused = ""
	a.fails(t, "there is no namespace nobody", "join", "shop", "--to", "nobody")
	// With an unknown name nothing of the others is changed.
	a.fails(t, "there is no namespace nobody", "isolate", "stage", "nobody")
	a.fails(t, `required flag(s) "to" not set`, "join", "shop")
	a.fails(t, "requires at least 1 arg", "global")
	if got := a.numbers(t); got != "gone=99 monitoring=0 shop=10 stage=10 test=10" {
		t.Errorf("numbers %s", got)
	}

	// Another program writes between the read and the write: the write begins again, and keeps what it wrote.
	a.before = func(args []string) {
		if args[0] == "replace" {
			a.before = nil
			if _, err := a.Kubectl(t.Context(), nil, "annotate", "netnamespace", "stage", "owner=someone"); err != nil {
				t.Error(err)
			}
		}
	}
	a.expect(t, "namespace stage is isolated (number 11)", "isolate", "stage")
	if out, err := a.Kubectl(t.Context(), nil, "get", "netnamespace", "stage", "-o", "jsonpath={.metadata.annotations.owner} {.netid}"); err != nil || string(out) != "someone 11" {
		t.Errorf("%v: %s", err, out)
	}
	if got := a.numbers(t); got != "gone=99 monitoring=0 shop=10 stage=11 test=10" {
		t.Errorf("numbers %s", got)
	}
}

func trimmed(out string) string {
	var lines []string
	for line := range strings.Lines(out) {
		lines = append(lines, strings.TrimRight(line, " \n"))
	}
	return strings.Join(lines, "\n")
}

// testDenied: join and isolate print the connections that they deny, as the agents name them.
func testDenied(t *testing.T, a *access) {
	t.Helper()
	before := a.numbers(t)
	a.answer.Out = []byte(`{"outlivedConnections": [{"protocol": "tcp", "source": "10.0.0.1", "sourcePort": 40000, "destination": "10.0.0.2", "port": 80, "from": "bank/a", "to": "bank-test/b"}]}`)
	const denied = "the change denies 1 established connection:\n  tcp 10.0.0.1:40000 -> 10.0.0.2:80  (bank/a -> bank-test/b)\n"
	a.expect(t, denied+"dry run: nothing is changed", "join", "bank-test", "--to", "bank", "--dry-run")
	if got := a.numbers(t); got != before {
		t.Errorf("numbers %s", got)
	}
	manifest := func(name string) string {
		return fmt.Sprintf(`{"apiVersion":"network.openshift.io/v1","kind":"NetNamespace","metadata":{"name":%q},"netid":1,"netname":%[1]q}`, name)
	}
	a.expect(t, "namespace bank-test is joined to bank (number 12)", "join", "bank-test", "--to", "bank", "--connections=false")
	a.expect(t, denied+"dry run: nothing is changed", "isolate", "bank-test", "default", "--dry-run")
	a.expect(t, "namespace default is already isolated (no number)", "isolate", "default") // there is nothing to ask
	want := []string{
		`preview -o json -f - < {"apiVersion":"v1","items":[` + manifest("bank") + "," + manifest("bank-test") + `],"kind":"List"}`,
		"preview -o json --delete netnamespace.network.openshift.io/bank-test < ",
	}
	if got := strings.Join(a.asked, "\n"); !strings.HasSuffix(got, strings.Join(want, "\n")) {
		t.Errorf("the agents were asked\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}

	// An agent that gives no answer is named. It stops only a dry run.
	a.answer = netnamespace.Answer{Node: "n1", Fault: "no agent"}
	if out, err := a.run(t, "isolate", "bank-test", "--dry-run"); err == nil || !strings.Contains(out, "n1: no agent") {
		t.Errorf("%v\n%s", err, out)
	}
	if out, err := a.run(t, "isolate", "bank-test"); err != nil || !strings.Contains(out, "n1: no agent") || !strings.Contains(out, "namespace bank-test is isolated (number 13)") {
		t.Errorf("%v\n%s", err, out)
	}
}
