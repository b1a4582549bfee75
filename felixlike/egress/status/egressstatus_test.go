package status

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"reflect"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/felixlike/felixlike/felixlike/antrea"
	"github.com/felixlike/felixlike/test/eventually"
	"github.com/felixlike/felixlike/test/kubernetestest"
)

// cluster is an API server and what its agents are to write.
type cluster struct {
	server   *kubernetestest.Server
	egresses dynamic.ResourceInterface
	pools    dynamic.ResourceInterface
	mu       sync.Mutex
	wanted   map[string][]Status
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{server: kubernetestest.NewServer(t), wanted: map[string][]Status{}}
	admin, err := dynamic.NewForConfig(c.server.Config(kubernetestest.Admin))
	if err != nil {
		t.Fatal(err)
	}
	c.egresses = admin.Resource(antrea.KindNodeEgress.GroupVersion().WithResource(antrea.KindNodeEgress.Resource()))
	c.pools = admin.Resource(antrea.KindOwnExternalIPPool.GroupVersion().WithResource(antrea.KindOwnExternalIPPool.Resource()))
	return c
}

// start starts the agent of a node.
func (c *cluster) start(t *testing.T, node string) {
	t.Helper()
	client, err := dynamic.NewForConfig(c.server.Config(node))
	if err != nil {
		t.Fatal(err)
	}
	o := Options{
		Client: client, Log: slog.New(slog.NewTextHandler(io.Discard, nil)), Every: 10 * time.Millisecond, TakeOver: 300 * time.Millisecond, Most: 10,
		Look: func(context.Context) ([]Status, error) {
			c.mu.Lock()
			defer c.mu.Unlock()
			return c.wanted[node], nil
		},
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := Run(ctx, o); err != nil {
			t.Error(err)
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
}

func (c *cluster) want(node string, all ...Status) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wanted[node] = all
}

func (c *cluster) create(t *testing.T, name string) {
	t.Helper()
	o := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": antrea.KindNodeEgress.GroupVersion().String(), "kind": "Egress", "metadata": map[string]any{"name": name}, "spec": map[string]any{},
	}}
	if _, err := c.egresses.Create(t.Context(), o, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// until waits until an Egress has a status, and returns it and its version.
func (c *cluster) until(t *testing.T, name string, want Status) (fields, string) {
	t.Helper()
	var o *unstructured.Unstructured
	var have fields
	eventually.True(t, fmt.Sprintf("Egress %s has %+v", name, want), func() bool {
		var err error
		if o, err = c.egresses.Get(t.Context(), name, metav1.GetOptions{}); err != nil {
			t.Fatal(err)
		}
		have = statusOf(o)
		return have.equal(want.status(have.condition()))
	}, func() string { return fmt.Sprint("it has ", o.Object["status"]) })
	return have, o.GetResourceVersion()
}

// TestStatus: the node with the address writes the status, once, and again if another program has changed it or the object is a new one.
// Without a node with the address, the first node by rank writes it, or, if that is dead, the next one.
func TestStatus(t *testing.T) {
	c := newCluster(t)
	c.create(t, "out")
	c.start(t, "n1")
	c.start(t, "n2")
	has := func(node string) Status {
		return Status{Kind: antrea.KindNodeEgress, Name: "out", Node: node, Address: "192.0.2.1", Reason: ReasonAssigned, Message: "node " + node + " has the address"}
	}
	c.want("n1", has("n1"), Status{Kind: antrea.KindNodeEgress, Name: "gone", Reason: ReasonNoNode})
	first, version := c.until(t, "out", has("n1"))
	time.Sleep(100 * time.Millisecond)
	if _, again := c.until(t, "out", has("n1")); again != version {
		t.Errorf("it was written again without need: version %s, then %s", version, again)
	}
	// Another node takes the address. The condition stays true.
	c.want("n1")
	c.want("n2", has("n2"))
	if second, _ := c.until(t, "out", has("n2")); !second.condition().LastTransitionTime.Equal(&first.condition().LastTransitionTime) {
		t.Errorf("the condition has changed: %+v, then %+v", first, second)
	}
	o, err := c.egresses.Get(t.Context(), "out", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	o.Object["status"] = map[string]any{"egressNode": "somewhere"}
	if _, err := c.egresses.Update(t.Context(), o, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.until(t, "out", has("n2"))
	if err := c.egresses.Delete(t.Context(), "out", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.create(t, "out")
	c.until(t, "out", has("n2"))
	// No node has it. The first by rank is dead.
	none := Status{Kind: antrea.KindNodeEgress, Name: "out", Reason: ReasonNoNode, Message: "spec.nodeSelector: no node matches it", Rank: 1}
	began := time.Now()
	c.want("n2")
	c.want("n1", none)
	c.until(t, "out", none)
	if took := time.Since(began); took < 300*time.Millisecond {
		t.Errorf("the second node has written after %s", took)
	}
	c.usePool(t)
	// The rights are those that are used.
	asked, granted := map[string]bool{}, map[string]bool{}
	for _, r := range c.server.Requests() {
		if r.Client != kubernetestest.Admin {
			asked[r.Verb+" "+r.Group+"/"+r.Resource] = true
		}
	}
	for _, r := range Rights() {
		for _, resource := range r.Resources {
			granted[r.Verbs[0]+" "+r.APIGroups[0]+"/"+resource] = true
		}
	}
	if !reflect.DeepEqual(asked, granted) {
		t.Errorf("asked for %v, granted are %v", asked, granted)
	}
}

// usePool: the first node by rank writes the usage of a pool, once. The second one writes it if the first one is dead.
func (c *cluster) usePool(t *testing.T) {
	t.Helper()
	o := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": antrea.KindOwnExternalIPPool.GroupVersion().String(), "kind": "ExternalIPPool", "metadata": map[string]any{"name": "out"}, "spec": map[string]any{},
	}}
	if _, err := c.pools.Create(t.Context(), o, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	until := func(want Usage) string {
		t.Helper()
		var o *unstructured.Unstructured
		eventually.True(t, fmt.Sprintf("the pool has %+v", want), func() bool {
			var err error
			if o, err = c.pools.Get(t.Context(), "out", metav1.GetOptions{}); err != nil {
				t.Fatal(err)
			}
			have := poolFieldsOf(o).Usage
			return have != nil && *have == want
		}, func() string { return fmt.Sprint("it has ", o.Object["status"]) })
		return o.GetResourceVersion()
	}
	usage := func(used int64, rank int) Status {
		return Status{Kind: antrea.KindOwnExternalIPPool, Name: "out", Usage: Usage{Total: 6, Used: used}, Rank: rank}
	}
	c.want("n1", usage(0, 0))
	c.want("n2", usage(0, 1))
	version := until(Usage{Total: 6})
	time.Sleep(400 * time.Millisecond) // the second node looks
	if again := until(Usage{Total: 6}); again != version {
		t.Errorf("it was written again without need: version %s, then %s", version, again)
	}
	began := time.Now()
	c.want("n1")
	c.want("n2", usage(2, 1))
	until(Usage{Total: 6, Used: 2})
	if took := time.Since(began); took < 300*time.Millisecond {
		t.Errorf("the second node has written after %s", took)
	}
}
