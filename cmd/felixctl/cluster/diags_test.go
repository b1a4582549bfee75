package cluster

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestDiagsOfAllNodes: one archive with a folder for each node; missing parts are named.
func TestDiagsOfAllNodes(t *testing.T) {
	k := newFakeKubectl(t, pod("n1", ""), pod("n2", "CrashLoopBackOff"))
	var inner bytes.Buffer
	z := gzip.NewWriter(&inner)
	w := tar.NewWriter(z)
	for _, name := range []string{"felixlike-diags/status.json", "felixlike-diags/../../../etc/passwd"} {
		if err := errors.Join(w.WriteHeader(&tar.Header{Name: name, Size: 2, Mode: 0o600})); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte("{}")); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	k.answer(t, "n1", "diags --file -", 0, inner.String())
	k.object(t, "switches", corev1.PodList{Items: []corev1.Pod{switchPod("n1", "")}})
	path := filepath.Join(t.TempDir(), "c.tar.gz")
	code, out := run(t.Context(), "", "--node", "n1", "--node", "n2", "diags", "--file", path)
	if code != 2 || !strings.Contains(out, "left out: n2: container agent of pod agent-n2 waits") {
		t.Errorf("exit code %d, %s", code, out)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	outer, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]bool{}
	for r := tar.NewReader(outer); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(h.Name, "..") {
			t.Errorf("%s leaves the folder", h.Name)
		}
		got[h.Name] = true
	}
	for _, name := range []string{"c/n1/status.json", "c/n1/logs.txt", "c/n1/ovs-logs.txt", "c/n2/logs.txt", "c/errors.txt", "c/pods.txt"} {
		if !got[name] {
			t.Errorf("%s is missing in %v", name, got)
		}
	}
	if code, out := run(t.Context(), "", "--node", "n1", "--node", "n2", "diags", "--file", path); code != 2 || !strings.Contains(out, "exists") {
		t.Errorf("written over: %d, %s", code, out)
	}
}
