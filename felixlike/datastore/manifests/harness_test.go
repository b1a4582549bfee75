package manifests

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"go.uber.org/goleak"

	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/eventually"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// harness runs a source and keeps the sum of its batches.
type harness struct {
	t      *testing.T
	dir    string
	source *Source
	// stop ends the source.
	stop func()

	mu      sync.Mutex
	objects map[string]any // by "Kind namespace/name": the object, or a NetworkPolicyClosed
	batches []datastore.Batch
}

// start runs a source on a directory until the test ends. A long rescan time
// leaves noticing changes to inotify and Sync.
func start(t *testing.T, dir string, rescan time.Duration) *harness {
	t.Helper()
	return startWith(t, Options{Dir: dir, Rescan: rescan, Log: slog.New(slog.DiscardHandler)})
}

// startWith runs a source until the test ends, or stop is called.
func startWith(t *testing.T, o Options) *harness {
	t.Helper()
	h := &harness{t: t, dir: o.Dir, objects: map[string]any{}}
	h.source = New(o)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- h.source.Run(ctx, h.deliver) }()
	h.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(h.stop)
	return h
}

// delivered returns the batches up to now.
func (h *harness) delivered() []datastore.Batch {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.batches)
}

func (h *harness) deliver(b datastore.Batch) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if want := uint64(len(h.batches)) + 1; b.Revision != want {
		h.t.Errorf("revision %d; want %d", b.Revision, want)
	}
	if b.Seen.IsZero() || b.Seen.After(time.Now()) {
		h.t.Errorf("revision %d was seen at %s", b.Revision, b.Seen)
	}
	h.batches = append(h.batches, b)
	for _, e := range b.Events {
		h.event(e)
	}
}

func (h *harness) event(e datastore.Event) {
	set := func(kind string, o metav1.Object) { h.objects[objectName(kind, o.GetNamespace(), o.GetName())] = o }
	remove := func(kind, namespace, name string) {
		if _, exists := h.objects[objectName(kind, namespace, name)]; !exists {
			h.t.Errorf("deleted without having been set: %s", objectName(kind, namespace, name))
		}
		delete(h.objects, objectName(kind, namespace, name))
	}
	switch e := e.(type) {
	case datastore.NodeSet:
		set("Node", e.Node)
	case datastore.NamespaceSet:
		set("Namespace", e.Namespace)
	case datastore.PodSet:
		set("Pod", e.Pod)
	case datastore.NetworkPolicySet:
		set("NetworkPolicy", e.Policy)
	case datastore.ClusterNetworkPolicySet:
		set("ClusterNetworkPolicy", e.Policy)
	case datastore.ClusterNetworkPolicyDeleted:
		remove("ClusterNetworkPolicy", "", e.Name)
	case datastore.ServiceSet:
		set("Service", e.Service)
	case datastore.ServiceDeleted:
		remove("Service", e.Namespace, e.Name)
	case datastore.EndpointSliceSet:
		set("EndpointSlice", e.Slice)
	case datastore.EndpointSliceDeleted:
		remove("EndpointSlice", e.Namespace, e.Name)
	case datastore.NetworkPolicyClosed:
		h.objects[objectName("NetworkPolicy", e.Namespace, e.Name)] = e
	case datastore.NodeDeleted:
		remove("Node", "", e.Name)
	case datastore.NamespaceDeleted:
		remove("Namespace", "", e.Name)
	case datastore.PodDeleted:
		remove("Pod", e.ID.Namespace, e.ID.Name)
	case datastore.NetworkPolicyDeleted:
		remove("NetworkPolicy", e.Namespace, e.Name)
	}
}

func objectName(kind, namespace, name string) string {
	return model.ObjectRef{Kind: kind, Namespace: namespace, Name: name}.String()
}

// names lists the objects in force; closed policies are marked.
func (h *harness) names() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	names := []string{}
	for name, o := range h.objects {
		if _, closed := o.(datastore.NetworkPolicyClosed); closed {
			name += " (closed)"
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// problems lists the current problems as text.
func (h *harness) problems() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	texts := []string{}
	if len(h.batches) > 0 {
		for _, p := range h.batches[len(h.batches)-1].Problems {
			texts = append(texts, strings.ReplaceAll(p.Error(), h.dir, "DIR"))
		}
	}
	return texts
}

func (h *harness) inSync() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.batches) > 0 && h.batches[len(h.batches)-1].InSync
}

func (h *harness) object(name string) any {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.objects[name]
}

func (h *harness) policy(name string) *networkingv1.NetworkPolicy {
	h.t.Helper()
	p, ok := h.object("networkpolicy/" + name).(*networkingv1.NetworkPolicy)
	if !ok {
		h.t.Fatalf("policy %s is %T", name, h.object("networkpolicy/"+name))
	}
	return p
}

func (h *harness) pod(name string) *corev1.Pod {
	h.t.Helper()
	p, ok := h.object("pod/" + name).(*corev1.Pod)
	if !ok {
		h.t.Fatalf("pod %s is %T", name, h.object("pod/"+name))
	}
	return p
}

// sync looks again and returns the revision.
func (h *harness) sync() uint64 {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), eventually.Patience)
	defer cancel()
	revision, err := h.source.Sync(ctx)
	if err != nil {
		h.t.Fatalf("Sync: %v", err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.batches) == 0 || h.batches[len(h.batches)-1].Revision < revision {
		h.t.Errorf("Sync returned %d before its batch was delivered", revision)
	}
	return revision
}

// eventually waits for a condition without asking the source to look.
func (h *harness) eventually(what string, condition func() bool) {
	h.t.Helper()
	eventually.True(h.t, what, condition, func() string { return fmt.Sprintf("in force %v, problems %v", h.names(), h.problems()) })
}

func (h *harness) wantNames(want ...string) {
	h.t.Helper()
	slices.Sort(want)
	if want == nil {
		want = []string{}
	}
	if diff := cmp.Diff(want, h.names()); diff != "" {
		h.t.Errorf("in force (-want +got):\n%s", diff)
	}
}

// wantProblems compares the current problems, each by a part of its text.
func (h *harness) wantProblems(want ...string) {
	h.t.Helper()
	got := h.problems()
	if len(got) != len(want) {
		h.t.Errorf("problems:\n%s\nwant %d like\n%s", strings.Join(got, "\n"), len(want), strings.Join(want, "\n"))
		return
	}
	for i := range want {
		if !strings.Contains(got[i], want[i]) {
			h.t.Errorf("problem %d:\n%s\nwant it to contain\n%s", i, got[i], want[i])
		}
	}
}

// write replaces a file at once, as careful writers do.
func (h *harness) write(name, text string) { h.t.Helper(); writeFile(h.t, h.dir, name, text) }

func writeFile(t *testing.T, dir, name, text string) {
	t.Helper()
	temporary := filepath.Join(dir, ".new")
	if err := os.WriteFile(temporary, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(temporary, filepath.Join(dir, name)); err != nil {
		t.Fatal(err)
	}
}

// overwrite writes into the existing file.
func (h *harness) overwrite(name, text string) {
	h.t.Helper()
	if err := os.WriteFile(filepath.Join(h.dir, name), []byte(text), 0o644); err != nil {
		h.t.Fatal(err)
	}
}

func (h *harness) remove(name string) {
	h.t.Helper()
	if err := os.Remove(filepath.Join(h.dir, name)); err != nil {
		h.t.Fatal(err)
	}
}

// age makes a file's time old, so that it counts as settled.
func (h *harness) age(name string) {
	h.t.Helper()
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(filepath.Join(h.dir, name), old, old); err != nil {
		h.t.Fatal(err)
	}
}

func podYAML(namespace, name string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s, namespace: %s}\nstatus: {podIP: 10.0.0.1}\n", name, namespace)
}

func policyYAML(namespace, name, app string) string {
	return fmt.Sprintf("apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: %s, namespace: %s}\n"+
		"spec:\n  podSelector: {matchLabels: {app: %s}}\n", name, namespace, app)
}
