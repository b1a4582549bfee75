package kubernetes_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/felixlike/felixlike/felixlike/antrea"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/eventually"
	"github.com/felixlike/felixlike/test/kubernetestest"
)

func (f *fixture) open(t *testing.T) *kubernetestest.View {
	t.Helper()
	return kubernetestest.Open(t, f.Config("agent"), slog.New(slog.DiscardHandler), kubernetestest.NetNamespaces)
}

func (f *fixture) pods(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		p := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: name, Labels: map[string]string{"app": name}},
			Spec:       corev1.PodSpec{NodeName: "n2"},
		}
		if _, err := f.CoreV1().Pods("x").Create(t.Context(), p, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

func (f *fixture) deletePod(t *testing.T, name string) {
	t.Helper()
	err := f.CoreV1().Pods("x").Delete(t.Context(), name, metav1.DeleteOptions{})
	if errors.Is(err, io.EOF) { // the connection was one to a server that has stopped
		err = f.CoreV1().Pods("x").Delete(t.Context(), name, metav1.DeleteOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
}

func names(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("p%05d", i)
	}
	return all
}

func has(name string) func(kubernetestest.Seen) bool {
	return func(s kubernetestest.Seen) bool { return s.Pods[model.PodID{Namespace: "x", Name: name}] != nil }
}

// away reports whether the problems say that no kind can be read.
func away(s kubernetestest.Seen) bool {
	resources := 0
	for _, p := range s.Last.Problems {
		resources += len(strings.Split(p.Field, ", "))
	}
	return resources == 6+len(antrea.Kinds())
}

func inOrder(s kubernetestest.Seen) bool { return len(s.Last.Problems) == 0 }

// TestOutage: while the API server is away, the known objects stay; afterwards all changes of the outage
// arrive.
func TestOutage(t *testing.T) {
	f := newFixture(t)
	f.pods(t, "a", "b")
	v := f.open(t)
	before := v.Sync(t)
	f.Refuse(http.StatusServiceUnavailable)
	f.Break()
	v.Until(t, "a problem that names the unreadable kinds", away)
	ctx, cancel := context.WithTimeout(t.Context(), eventually.Patience)
	defer cancel()
	if _, err := v.Source().Sync(ctx); err == nil || ctx.Err() != nil || !strings.Contains(err.Error(), "Service Unavailable") {
		t.Errorf("sync while it is away: %v", err)
	}
	f.deletePod(t, "a")
	f.pods(t, "c")
	if now := v.Now(); now.Events != before.Events || !now.Last.InSync {
		t.Errorf("events while it is away: %d", now.Events-before.Events)
	}
	f.Refuse(0)
	seen := v.Until(t, "the changes of the outage", func(s kubernetestest.Seen) bool { return has("c")(s) && !has("a")(s) && inOrder(s) })
	if !has("b")(seen) || seen.Deleted != 1 {
		t.Errorf("after the outage: %d deleted", seen.Deleted)
	}
}

// TestRestart: an API server that restarts has forgotten where watches were.
func TestRestart(t *testing.T) {
	for _, streams := range []bool{true, false} {
		t.Run(fmt.Sprintf("streams=%v", streams), func(t *testing.T) {
			f := newFixture(t)
			f.StreamLists(streams)
			f.pods(t, names(20)...)
			v := f.open(t)
			before := v.Sync(t)
			f.Stop()
			v.Until(t, "a problem", away)
			f.Compact()
			if err := f.Start(); err != nil {
				t.Fatal(err)
			}
			seen := v.Until(t, "read again", inOrder)
			if seen.Events != before.Events {
				t.Errorf("%d events of objects that have not changed", seen.Events-before.Events)
			}
			f.pods(t, "new")
			v.Until(t, "a new pod", has("new"))
		})
	}
}

// TestForgottenVersions: a watch with a version that is too old is followed by a list, which brings the
// missed changes.
func TestForgottenVersions(t *testing.T) {
	for _, streams := range []bool{true, false} {
		t.Run(fmt.Sprintf("streams=%v", streams), func(t *testing.T) {
			f := newFixture(t)
			f.StreamLists(streams)
			f.pods(t, "a", "b")
			v := f.open(t)
			v.Sync(t)
			release := f.HoldLists() // nothing can catch up but by a list
			f.Refuse(http.StatusTooManyRequests)
			f.Break()
			f.deletePod(t, "a")
			f.pods(t, "c")
			f.Compact()
			f.Refuse(0)
			release()
			v.Until(t, "the missed changes", func(s kubernetestest.Seen) bool { return has("c")(s) && !has("a")(s) && has("b")(s) })
		})
	}
}

// TestCutList: a list that breaks off deletes nothing.
func TestCutList(t *testing.T) {
	for _, streams := range []bool{true, false} {
		t.Run(fmt.Sprintf("streams=%v", streams), func(t *testing.T) {
			f := newFixture(t)
			f.StreamLists(streams)
			f.pods(t, names(600)...)
			v := f.open(t)
			before := v.Sync(t)
			f.CutLists(500)
			f.Refuse(http.StatusServiceUnavailable) // no watch may bring the change
			f.Stop()
			if err := f.Start(); err != nil {
				t.Fatal(err)
			}
			f.deletePod(t, "p00007")
			f.Compact()
			f.Refuse(0)
			time.Sleep(500 * time.Millisecond) // some lists break off
			if now := v.Now(); now.Events != before.Events {
				t.Errorf("%d events out of lists that broke off", now.Events-before.Events)
			}
			f.CutLists(0)
			seen := v.Until(t, "the deleted pod", func(s kubernetestest.Seen) bool { return !has("p00007")(s) })
			if seen.Events != before.Events+1 || seen.Deleted != 1 {
				t.Errorf("%d events, %d deleted", seen.Events-before.Events, seen.Deleted)
			}
		})
	}
}

// TestGate: before everything was listed once, nothing is in sync.
func TestGate(t *testing.T) {
	f := newFixture(t)
	f.pods(t, names(2500)...)
	f.Refuse(http.StatusForbidden, "networkpolicies")
	v := f.open(t)
	seen := v.Until(t, "pods and a problem", func(s kubernetestest.Seen) bool { return len(s.Pods) == 2500 && len(s.Last.Problems) == 1 })
	if seen.Last.InSync || seen.Services != nil {
		t.Error("in sync without policies")
	}
	if p := seen.Last.Problems[0]; p.Field != "networkpolicies" || !strings.Contains(p.Reason, "Forbidden") {
		t.Errorf("problem: %v", p)
	}
	if seen.Largest > 1000 {
		t.Errorf("a batch of %d objects before all is in sync", seen.Largest)
	}
	f.Refuse(0)
	v.Until(t, "in sync", func(s kubernetestest.Seen) bool { return s.Last.InSync && inOrder(s) })
}

// TestReconnect: changes come by a connection of after the node's addresses have
// moved, and nothing is taken for gone.
func TestReconnect(t *testing.T) {
	f := newFixture(t)
	f.pods(t, "a", "b")
	v := f.open(t)
	before := v.Sync(t)
	v.Source().Reconnect()
	f.pods(t, "c")
	seen := v.Until(t, "a change of after", func(s kubernetestest.Seen) bool { return has("c")(s) && inOrder(s) })
	if seen.Events != before.Events+1 || seen.Deleted != 0 {
		t.Errorf("%d events, %d deleted", seen.Events-before.Events, seen.Deleted)
	}
}

// TestReconnectReadsNothingTwice: an agent that moves its uplink reconnects within a
// second of being in sync. It continues its watches and lists nothing again.
func TestReconnectReadsNothingTwice(t *testing.T) {
	cluster := &kubernetestest.Large{Nodes: 2, Namespaces: 2, Pods: 20, Policies: 2}
	server := httptest.NewUnstartedServer(cluster)
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	defer server.CloseClientConnections()
	config := &rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
	v := kubernetestest.Open(t, config, slog.New(slog.DiscardHandler))
	v.Until(t, "in sync", func(s kubernetestest.Seen) bool { return s.Last.InSync })
	resources := []string{"nodes", "namespaces", "pods", "networkpolicies", "servicecidrs"}
	before := map[string]int{}
	for _, r := range resources {
		before[r] = cluster.Watches(r)
	}
	v.Source().Reconnect()
	deadline := time.After(eventually.Patience)
	for _, r := range resources {
		for cluster.Watches(r) == before[r] {
			select {
			case <-deadline:
				t.Fatalf("%s are not watched again", r)
			case <-time.After(time.Millisecond):
			}
		}
		if n := cluster.Reads(r); n != 1 {
			t.Errorf("%s were read %d times", r, n)
		}
	}
}

// TestFirstListBreaksOff: objects of the first list are delivered before the list is
// complete, while out of sync. The complete list deletes objects that are gone.
func TestFirstListBreaksOff(t *testing.T) {
	for _, streams := range []bool{true, false} {
		t.Run(fmt.Sprintf("streams=%v", streams), func(t *testing.T) {
			f := newFixture(t)
			f.StreamLists(streams)
			f.pods(t, names(600)...)
			f.CutLists(550)
			v := f.open(t)
			seen := v.Until(t, "the first pods", func(s kubernetestest.Seen) bool { return len(s.Pods) >= 500 })
			if seen.Last.InSync || !has("p00007")(seen) {
				t.Errorf("in sync: %v, with %d pods", seen.Last.InSync, len(seen.Pods))
			}
			f.deletePod(t, "p00007")
			f.CutLists(0)
			seen = v.Until(t, "in sync", func(s kubernetestest.Seen) bool { return s.Last.InSync })
			if has("p00007")(seen) || len(seen.Pods) != 599 || seen.Deleted != 1 {
				t.Errorf("%d pods, %d deleted", len(seen.Pods), seen.Deleted)
			}
		})
	}
}
