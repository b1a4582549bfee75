package cluster

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestCleaned: escape sequences are replaced, also if a character comes in two pieces.
func TestCleaned(t *testing.T) {
	for _, cut := range []int{0, 1, 2, 3, 4, 5, 6} {
		var out strings.Builder
		c := &cleaned{to: &out}
		const text = "é\u009b\x1b→\n"
		for _, piece := range []string{text[:cut], text[cut:]} {
			if n, err := c.Write([]byte(piece)); err != nil || n != len(piece) {
				t.Fatal(n, err)
			}
		}
		if got := out.String(); got != "é??→\n" {
			t.Errorf("cut at %d: %q", cut, got)
		}
	}
}

// TestOrderAndPreviewAreCleaned: what the node writes does not reach the terminal as it is. --order refuses flags that it does not use.
func TestOrderAndPreviewAreCleaned(t *testing.T) {
	k := newFakeKubectl(t, pod("n1", ""))
	k.object(t, "pod", corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db"}, Spec: corev1.PodSpec{NodeName: "n1"}})
	k.answer(t, "n1", "policies --order shop/db -o text", 0, "\x1b[31mEVIL\n")
	k.answer(t, "n1", "preview --delete shop/db", 0, "\x1b[31mEVIL\n")
	for _, args := range [][]string{{"policies", "--order", "shop/db"}, {"preview", "--delete", "shop/db"}} {
		if code, out := run(t.Context(), "", args...); code != 0 || !strings.Contains(out, "?[31mEVIL\n") {
			t.Errorf("%v: exit code %d, %q", args, code, out)
		}
	}
	if code, out := run(t.Context(), "", "policies", "--order", "shop/db", "-n", "shop"); code != 2 {
		t.Errorf("-n: exit code %d, %q", code, out)
	}
	if code, out := run(t.Context(), "", "--node", "n1", "--node", "n2", "policies", "--order", "shop/db"); code != 2 || !strings.Contains(out, "leave out --node") {
		t.Errorf("two nodes: exit code %d, %q", code, out)
	}
}
