package kubernetes

import (
	"context"
	"log/slog"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"pgregory.net/rapid"

	"github.com/felixlike/felixlike/felixlike/antrea"
	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/felixlike/policy"
	"github.com/felixlike/felixlike/internal/seeded"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/policytest"
)

// TestTrimmedObjectsMeanTheSame: policy computes the same model from a whole and from a trimmed object, and
// finds the same problems.
func TestTrimmedObjectsMeanTheSame(t *testing.T) {
	kinds := map[kindName]*kind{
		kindNode:      {name: kindNode, trim: trimmed(trimNode), decode: decodeNode},
		kindNamespace: {name: kindNamespace, trim: trimmed(trimNamespace), decode: decodeNamespace},
		kindPod:       {name: kindPod, trim: trimmed(trimPod), decode: decodePod},
	}
	seeded.Check(t, func(t *rapid.T) {
		c := policytest.TieredCluster(t)
		whole, left := policy.New("node1"), policy.New("node1")
		var problems, problemsLeft []model.Problem
		for _, n := range c.Nodes {
			problems = append(problems, whole.SetNode(n)...)
			problemsLeft = append(problemsLeft, left.SetNode(passed(t, kinds[kindNode], n).(datastore.NodeSet).Node)...)
		}
		for _, n := range c.Namespaces {
			whole.SetNamespace(n)
			left.SetNamespace(passed(t, kinds[kindNamespace], n).(datastore.NamespaceSet).Namespace)
		}
		for _, p := range c.Pods {
			spoil(t, p)
			problems = append(problems, whole.SetPod(p)...)
			problemsLeft = append(problemsLeft, left.SetPod(passed(t, kinds[kindPod], p).(datastore.PodSet).Pod)...)
		}
		for _, p := range c.Policies {
			whole.SetNetworkPolicy(p)
			left.SetNetworkPolicy(p)
		}
		for _, p := range c.ClusterPolicies {
			whole.SetClusterNetworkPolicy(p)
			left.SetClusterNetworkPolicy(p)
		}
		if diff := cmp.Diff(problems, problemsLeft); diff != "" {
			t.Fatalf("problems:\n%s", diff)
		}
		if a, b := whole.Flush(), left.Flush(); !reflect.DeepEqual(a, b) {
			t.Fatalf("model of whole objects:\n%+v\nof trimmed objects:\n%+v", a, b)
		}
	})
}

// spoil makes some pods ones that something is wrong with.
func spoil(t *rapid.T, p *corev1.Pod) {
	always := corev1.ContainerRestartPolicyAlways
	port := corev1.ContainerPort{Name: "web", ContainerPort: 80, Protocol: corev1.Protocol(rapid.SampledFrom([]string{"TCP", "UDP", "QUIC", ""}).Draw(t, "protocol"))}
	switch rapid.IntRange(0, 5).Draw(t, "spoil") {
	case 0:
		p.Spec.InitContainers = []corev1.Container{{Name: "first"}, {Name: "second", RestartPolicy: &always, Ports: []corev1.ContainerPort{{ContainerPort: 1}, port}}}
	case 1:
		p.Spec.InitContainers = []corev1.Container{{Name: "only", Ports: []corev1.ContainerPort{port}}}
	case 2:
		p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: "no address"})
	case 3:
		p.Spec.Containers = append([]corev1.Container{{Name: "plain"}}, p.Spec.Containers...)
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "last", Ports: []corev1.ContainerPort{port}})
	}
}

// passed returns the event of an object after its way through a source.
func passed(t *rapid.T, k *kind, o runtime.Object) datastore.Event {
	i, err := k.item(o)
	if err != nil {
		t.Fatal(err)
	}
	d, err := k.decode(i)
	if err != nil {
		t.Fatal(err)
	}
	return d.event
}

// TestStagedWithFaults: a staged policy that is not understood is left out, so it closes nothing. Other faults still do.
func TestStagedWithFaults(t *testing.T) {
	for _, c := range []struct {
		kind   kindName
		decode func(*item) (decoded, error)
	}{{kindPolicy, decodePolicy}, {kindClusterPolicy, decodeClusterPolicy}, {kindAntreaPolicy, decodeAntrea(kindAntreaPolicy)}, {kindAntreaClusterPolicy, decodeAntrea(kindAntreaClusterPolicy)}} {
		for value, left := range map[string]bool{`"no"`: true, `"yes"`: false, `"No"`: false, `7`: false} {
			text := `{"metadata":{"name":"p","annotations":{"` + model.EnforceAnnotation + `":` + value + `}},"spec":{"sni":"x"}}`
			d, err := c.decode(&item{key: key{name: "p"}, data: []byte(text)})
			if err != nil {
				t.Fatal(err)
			}
			_, one := d.event.(datastore.NetworkPolicyDeleted)
			_, two := d.event.(datastore.ClusterNetworkPolicyDeleted)
			_, three := d.event.(datastore.AntreaDeleted)
			if (one || two || three) != left || len(d.problems) == 0 || strings.Contains(d.problems[0].Reason, "is staged") != left {
				t.Errorf("kind %d, %s: %T, %v", c.kind, value, d.event, d.problems)
			}
		}
	}
}

// TestTrimmedPolicyKeepsItsLog: of the metadata of a policy only the annotations with a meaning
// are kept, and a change of one is a change of the policy.
func TestTrimmedPolicyKeepsItsLog(t *testing.T) {
	object := func(annotations map[string]any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
			"metadata": map[string]any{"namespace": "x", "name": "p", "annotations": annotations}, "spec": map[string]any{"podSelector": map[string]any{}},
		}}
	}
	k := &kind{name: kindPolicy, trim: trimPolicy, decode: decodePolicy}
	sums := map[sum]bool{}
	for _, annotations := range []map[string]any{
		{"other": "1"}, {"other": "2"}, {model.LogAnnotation: "true"}, {model.LogAnnotation: "allow", model.LogLabelAnnotation: "audit"},
	} {
		i, err := k.item(object(annotations))
		if err != nil {
			t.Fatal(err)
		}
		sums[i.sum] = true
		d, err := k.decode(i)
		if err != nil || len(d.problems) > 0 {
			t.Fatal(err, d.problems)
		}
		got := d.event.(datastore.NetworkPolicySet).Policy.Annotations
		for _, name := range []string{model.LogAnnotation, model.LogLabelAnnotation, "other"} {
			want, _ := annotations[name].(string)
			if name == "other" {
				want = ""
			}
			if got[name] != want {
				t.Errorf("%v: %s is %q", annotations, name, got[name])
			}
		}
	}
	if len(sums) != 3 {
		t.Errorf("%d different objects, want 3", len(sums))
	}
}

// TestDenyActionIsKept: of a ClusterNetworkPolicy's metadata, the annotation with a meaning
// comes to the agent, and a change of another one is no change.
func TestDenyActionIsKept(t *testing.T) {
	k := &kind{name: kindClusterPolicy, trim: trimPolicy, decode: decodeClusterPolicy}
	of := func(annotations map[string]string) *item {
		t.Helper()
		u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"tier": "Admin", "priority": int64(1), "subject": map[string]any{"namespaces": map[string]any{}}}}}
		u.SetName("p")
		u.SetAnnotations(annotations)
		i, err := k.item(u)
		if err != nil {
			t.Fatal(err)
		}
		return i
	}
	rejects := of(map[string]string{model.DenyActionAnnotation: "reject", "a": "b"})
	if rejects.sum != of(map[string]string{model.DenyActionAnnotation: "reject"}).sum || rejects.sum == of(nil).sum {
		t.Error("the item does not depend on this annotation alone")
	}
	d, err := decodeClusterPolicy(rejects)
	if err != nil || len(d.problems) > 0 {
		t.Fatal(err, d.problems)
	}
	event, ok := d.event.(datastore.ClusterNetworkPolicySet)
	if !ok || event.Policy.Name != "p" || event.Policy.Annotations[model.DenyActionAnnotation] != "reject" {
		t.Errorf("%+v", d.event)
	}
}

// TestTrimmedObjectsKeepTheirAge: the age decides who owns an address.
func TestTrimmedObjectsKeepTheirAge(t *testing.T) {
	born := metav1.Unix(1234567890, 0)
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u", CreationTimestamp: born}}
	e := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": antrea.OwnGroupName + "/" + antrea.OwnVersion, "kind": "Egress", "metadata": map[string]any{"name": "e", "uid": "u"},
		"spec": map[string]any{"egressIP": "192.0.2.1", "node": "n", "appliedTo": map[string]any{"podSelector": map[string]any{}}},
	}}
	e.SetCreationTimestamp(born)
	of := kindAntreaTier + kindName(antrea.KindNodeEgress-antrea.KindTier)
	for _, c := range []struct {
		kind   *kind
		object runtime.Object
	}{
		{&kind{name: kindNode, trim: trimmed(trimNode), decode: decodeNode}, n},
		{&kind{name: of, trim: trimPolicy, decode: decodeAntrea(of)}, e},
	} {
		i, err := c.kind.item(c.object)
		if err != nil {
			t.Fatal(err)
		}
		d, err := c.kind.decode(i)
		if err != nil || len(d.problems) > 0 {
			t.Fatal(err, d.problems)
		}
		var kept metav1.Object
		switch event := d.event.(type) {
		case datastore.NodeSet:
			kept = event.Node
		case datastore.AntreaSet:
			kept = event.Object
		}
		if at := kept.GetCreationTimestamp(); !at.Equal(&born) || kept.GetUID() != "u" {
			t.Errorf("%s: created %v, UID %s", kept.GetName(), at, kept.GetUID())
		}
	}
}

// TestWatchBegunWhileConnectionsClose: a watch that begins on a new connection while the agent closes all, and is cut off with them, goes on
// from its version. A watch that another program ends does not.
func TestWatchBegunWhileConnectionsClose(t *testing.T) {
	for closing, want := range map[uint64]int{0: 0, 1: 1, 2: 0} {
		ended := watch.NewFake()
		ended.Stop()
		k := &kind{name: kindPolicy, trim: trimPolicy, watch: func(context.Context, metav1.ListOptions) (watch.Interface, error) { return ended, nil }}
		s := &source{kind: k, state: newState(), reconnects: &atomic.Uint64{}, log: slog.New(slog.DiscardHandler)}
		s.reconnects.Store(closing)
		w, err := s.Watch(t.Context(), metav1.ListOptions{ResourceVersion: "7"})
		if err != nil {
			t.Fatal(err)
		}
		bookmarks := 0
		for e := range w.ResultChan() {
			if i, is := e.Object.(*item); is && e.Type == watch.Bookmark && i.version == "7" {
				bookmarks++
			}
		}
		if bookmarks != want {
			t.Errorf("%d: %d bookmarks, want %d", closing, bookmarks, want)
		}
	}
}
