package cluster

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/felixlike/felixlike/felixlike/control"
)

// TestPagesOfCluster: felixctl ui runs here, asks all agents, and one of them for the objects. --node bounds the nodes and does not send it there.
func TestPagesOfCluster(t *testing.T) {
	k := newFakeKubectl(t, pod("n1", ""), pod("n2", ""), pod("n3", "CrashLoopBackOff"))
	for _, node := range []string{"n1", "n2"} {
		k.answer(t, node, "ui data", 0, map[string]any{"status": good(node)})
	}
	shop := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Status: corev1.PodStatus{PodIPs: []corev1.PodIP{{IP: "10.0.0.1"}}}}
	objects := control.Objects{Node: "n1", InSync: true, Pods: []*corev1.Pod{shop}, Namespaces: []*corev1.Namespace{{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}}}
	k.answer(t, "n1", "ui data --objects", 0, map[string]any{"status": good("n1"), "objects": objects})
	for _, c := range []struct {
		nodes []string
		code  int
		want  string
	}{{nil, 2, "2 of 4 nodes ready"}, {[]string{"--node", "n1"}, 0, "1 of 1 node ready"}} {
		path := filepath.Join(t.TempDir(), "report.html")
		if code, out := run(t.Context(), "", append(c.nodes, "ui", "--once", "--out", path)...); code != c.code {
			t.Fatalf("%v: exit code %d\n%s", c.nodes, code, out)
		}
		text, err := os.ReadFile(path)
		if err != nil || !strings.Contains(string(text), c.want) || !strings.Contains(string(text), "shop/web") {
			t.Errorf("%v: %v\n%s", c.nodes, err, text)
		}
	}
}

// TestProofInPart: pages get the certificate of a proof that ends with the exit code 3.
func TestProofInPart(t *testing.T) {
	k := newFakeKubectl(t, pod("n1", ""))
	k.answer(t, "n1", "prove live backend:openflow", 3, map[string]any{"notProved": []string{"later packets"}})
	answers, err := pageAccess{target{client: client{namespace: namespace}}}.Ask(t.Context(), []string{"n1"}, nil, "prove", "live", "backend:openflow")
	if err != nil || len(answers) != 1 || !strings.Contains(string(answers[0].Out), "later packets") {
		t.Errorf("%+v, %v", answers, err)
	}
}

// TestAnswerWithoutEnd: a node that sends too much has a fault, and is not asked again.
func TestAnswerWithoutEnd(t *testing.T) {
	k := newFakeKubectl(t, pod("n1", ""), pod("n2", ""))
	k.answer(t, "n1", "status -o json", 0, strings.Repeat(" ", maxAnswer+1))
	k.answer(t, "n2", "status -o json", 0, good("n2"))
	replies, err := target{client: client{namespace: namespace}}.ask(t.Context(), io.Discard, "status", "-o", "json")
	if err != nil || len(replies) != 3 || replies[1].Fault != "the answer is too large: more than 64 MiB" || len(replies[1].out) > 0 || replies[2].Fault != "" {
		t.Errorf("%.300v, %v", replies, err)
	}
	if n := strings.Count(k.asked(t), "agent-n1"); n != 1 {
		t.Errorf("asked %d times", n)
	}
}
