package netnamespaces_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/felixlike/felixlike/felixlike/leases/elect"
	"github.com/felixlike/felixlike/felixlike/netnamespaces"
	"github.com/felixlike/felixlike/felixlike/tenancy/change"
	"github.com/felixlike/felixlike/test/eventually"
	"github.com/felixlike/felixlike/test/kubernetestest"
)

const system = "felixlike-system"

// install creates the objects of a manifest.
func install(t *testing.T, client dynamic.Interface, file string) {
	t.Helper()
	text, err := os.ReadFile("../../deploy/" + file)
	if err != nil {
		t.Fatal(err)
	}
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), &o.Object); err != nil {
			t.Fatal(err)
		}
		gvk := o.GroupVersionKind()
		r := client.Resource(gvk.GroupVersion().WithResource(strings.ToLower(gvk.Kind) + "s"))
		var in dynamic.ResourceInterface = r
		switch gvk.Kind {
		case "ServiceAccount", "Role", "RoleBinding":
			in = r.Namespace(system)
		}
		if _, err := in.Create(t.Context(), o, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// output is a log.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// start starts two agents with the rights of deploy/ on a real API server. It returns an administrator's client, their log, and functions
// that end each.
func start(t *testing.T, number bool) (dynamic.Interface, *output, map[string]func()) {
	t.Helper()
	if testing.Short() {
		t.Skip("takes seconds")
	}
	admin := kubernetestest.StartAPIServer(t)
	all, err := dynamic.NewForConfig(admin)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"base/namespace.yaml", "base/rbac.yaml", "components/netnamespaces-crd/crd.yaml", "components/isolation/rbac.yaml"} {
		install(t, all, file)
	}
	objects := all.Resource(change.NetNamespaces().GroupVersionResource)
	eventually.True(t, "NetNamespaces are served", func() bool {
		_, err := objects.List(t.Context(), metav1.ListOptions{})
		return err == nil
	}, func() string { return "not served" })

	out, stops := &output{}, map[string]func(){}
	for _, node := range []string{"n1", "n2"} {
		config := rest.CopyConfig(admin)
		config.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:" + system + ":felixlike"}
		client, err := dynamic.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = netnamespaces.Run(ctx, netnamespaces.Options{
				Client: client, Node: node, Namespace: system, Nodes: func() int { return 2 }, Needed: func() bool { return true }, Number: number,
				Exists: func(name string) bool { return name != "nobody" }, Log: slog.New(slog.NewTextHandler(out, nil)).With("node", node),
				Timing: netnamespaces.Timing{
					Election: elect.Timing{Lease: 6 * time.Second, Poll: 100 * time.Millisecond, PerNode: time.Millisecond, Needed: 10 * time.Millisecond},
					Retry:    50 * time.Millisecond, RetryMost: 100 * time.Millisecond,
				},
			})
		}()
		stops[node] = func() { cancel(); <-ended }
		t.Cleanup(stops[node])
	}
	return all, out, stops
}

// TestAnnotations: two agents, with the rights of deploy/, on a real API server. An annotation is answered by the number that it asks
// for, with the write that removes it; one that cannot be followed stays, and is followed as soon as it can be. If the agent that
// does it ends, the other one does.
func TestAnnotations(t *testing.T) {
	all, out, stops := start(t, false)
	objects := all.Resource(change.NetNamespaces().GroupVersionResource)
	put := func(name string, number int64) {
		t.Helper()
		o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "network.openshift.io/v1", "kind": "NetNamespace", "netname": name, "netid": number}}
		o.SetName(name)
		if _, err := objects.Create(t.Context(), o, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	// ask does as oc does: it reads, sets the annotation, and writes.
	ask := func(name, what string) {
		t.Helper()
		o, err := objects.Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		o.SetAnnotations(map[string]string{change.Annotation: what, "own": "stays"})
		if _, err := objects.Update(t.Context(), o, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	state := func(name string) string {
		t.Helper()
		o, err := objects.Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(o.Object["netid"], " ", o.GetAnnotations()[change.Annotation], " ", o.GetAnnotations()["own"])
	}
	until := func(name, want string) {
		t.Helper()
		eventually.True(t, name+" is "+want, func() bool { return state(name) == want }, func() string { return state(name) + "\n" + out.String() })
	}
	put("a", 20)
	put("b", 21)
	put("nobody", 22)
	ask("a", "join:b")
	until("a", "21  stays")
	ask("a", "isolate:")
	until("a", "10  stays")
	ask("b", "global:")
	until("b", "0  stays")

	ask("a", "join:c")
	eventually.True(t, "the log says why", func() bool { return strings.Contains(out.String(), "namespace c has no NetNamespace") }, out.String)
	ask("nobody", "isolate")
	eventually.True(t, "the log says why", func() bool { return strings.Contains(out.String(), "there is no namespace nobody") }, out.String)
	if got := state("a") + ", " + state("nobody"); got != "10 join:c stays, 22 isolate stays" {
		t.Error(got)
	}
	put("c", 30)
	until("a", "30  stays")
	if n := strings.Count(out.String(), "namespace c has no NetNamespace"); n != 1 {
		t.Errorf("said %d times\n%s", n, out.String())
	}

	lease, err := all.Resource(schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}).Namespace(system).Get(t.Context(), netnamespaces.LeaseName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	holder, _, _ := unstructured.NestedString(lease.Object, "spec", "holderIdentity")
	if stops[holder] == nil {
		t.Fatalf("the Lease is held by %q", holder)
	}
	stops[holder]()
	ask("c", "isolate")
	until("c", "11  stays")
}

// TestNumbers: with Options.Number each namespace gets a number of its own, once, also one that comes later; a NetNamespace that is there stays
// as it is.
func TestNumbers(t *testing.T) {
	all, out, _ := start(t, true)
	objects, namespaces := all.Resource(change.NetNamespaces().GroupVersionResource), all.Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"})
	global := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "network.openshift.io/v1", "kind": "NetNamespace", "netname": "dns", "netid": int64(0)}}
	global.SetName("dns")
	if _, err := objects.Create(t.Context(), global, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"dns", "shop", "bank"} {
		o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace"}}
		o.SetName(name)
		if _, err := namespaces.Create(t.Context(), o, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	have := func() map[string]int64 {
		list, err := objects.List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		numbers := map[string]int64{}
		for _, o := range list.Items {
			numbers[o.GetName()], _, _ = unstructured.NestedInt64(o.Object, "netid")
		}
		return numbers
	}
	eventually.True(t, "all namespaces have a number", func() bool {
		now := have()
		_, system := now[system]
		return system && now["shop"] != 0 && now["bank"] != 0
	}, out.String)
	now, used := have(), map[int64]string{}
	for name, number := range now {
		if other, taken := used[number]; taken {
			t.Errorf("%s and %s have number %d", name, other, number)
		}
		used[number] = name
	}
	if now["dns"] != 0 {
		t.Errorf("the global namespace has number %d", now["dns"])
	}
	if number, has := now["default"]; has {
		t.Errorf("the namespace default has number %d", number)
	}
}
