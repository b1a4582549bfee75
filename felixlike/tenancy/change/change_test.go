package change_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/felixlike/felixlike/felixlike/tenancy/change"
	"github.com/felixlike/felixlike/model"
)

// memory is an API server that replaces only the version of an object that was read.
type memory struct {
	mu      sync.Mutex
	version int
	objects map[string]*unstructured.Unstructured
	// before is called before each write, without the lock.
	before func(name string)
}

func newMemory() *memory { return &memory{objects: map[string]*unstructured.Unstructured{}} }

func key(r change.Resource, name string) string { return r.Resource + "/" + name }

func (m *memory) Get(_ context.Context, r change.Resource, name string) (*unstructured.Unstructured, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if o := m.objects[key(r, name)]; o != nil {
		return o.DeepCopy(), nil
	}
	return nil, apierrors.NewNotFound(r.GroupResource(), name)
}

func (m *memory) List(_ context.Context, r change.Resource) (all []unstructured.Unstructured, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, k := range slices.Sorted(maps.Keys(m.objects)) {
		if strings.HasPrefix(k, r.Resource+"/") {
			all = append(all, *m.objects[k].DeepCopy())
		}
	}
	return all, nil
}

func (m *memory) Create(_ context.Context, r change.Resource, o *unstructured.Unstructured) error {
	return m.put(r, o, true)
}

func (m *memory) Update(_ context.Context, r change.Resource, o *unstructured.Unstructured) error {
	return m.put(r, o, false)
}

func (m *memory) put(r change.Resource, o *unstructured.Unstructured, create bool) error {
	runtime.Gosched() // let others write between the read and the write
	if m.before != nil {
		m.before(o.GetName())
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	is := m.objects[key(r, o.GetName())]
	switch {
	case create && is != nil:
		return apierrors.NewAlreadyExists(r.GroupResource(), o.GetName())
	case !create && (is == nil || is.GetResourceVersion() != o.GetResourceVersion()):
		return apierrors.NewConflict(r.GroupResource(), o.GetName(), fmt.Errorf("version %q", o.GetResourceVersion()))
	}
	m.version++
	o = o.DeepCopy()
	o.SetResourceVersion(fmt.Sprint(m.version))
	m.objects[key(r, o.GetName())] = o
	return nil
}

func (m *memory) Exists(_ context.Context, namespace string) (bool, error) {
	return namespace != "missing", nil
}

// edit writes the NetNamespace of a namespace as somebody else does.
func (m *memory) edit(name string, number any, annotation string) {
	o := &unstructured.Unstructured{Object: map[string]any{"netname": name, "netid": number}}
	o.SetName(name)
	if annotation != "" {
		o.SetAnnotations(map[string]string{change.Annotation: annotation, "own": "stays"})
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.version++
	o.SetResourceVersion(fmt.Sprint(m.version))
	m.objects["netnamespaces/"+name] = o
}

// numbers returns the number of each NetNamespace, as in "a=10 b=10".
func (m *memory) numbers(t *testing.T) string {
	t.Helper()
	all, err := change.Changer{Cluster: m}.All(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var words []string
	for _, o := range all {
		if o.NetID == nil {
			t.Errorf("%s has no number", o.Name)
			continue
		}
		words = append(words, fmt.Sprintf("%s=%d", o.Name, *o.NetID))
	}
	return strings.Join(words, " ")
}

// TestChanges: what each change writes, and that a change with nothing to do writes nothing.
func TestChanges(t *testing.T) {
	m := newMemory()
	c := change.Changer{Cluster: m, Namespace: "felixlike-system"}
	for _, step := range []struct {
		do, namespace, to string
		want              string
		idle              bool
	}{
		{do: "isolate", namespace: "a", idle: true, want: ""},
		{do: "join", namespace: "a", to: "b", want: "a=10 b=10"},
		{do: "join", namespace: "a", to: "b", idle: true, want: "a=10 b=10"},
		{do: "join", namespace: "c", to: "a", want: "a=10 b=10 c=10"},
		{do: "isolate", namespace: "a", want: "a=11 b=10 c=10"},
		{do: "isolate", namespace: "a", idle: true, want: "a=11 b=10 c=10"},
		{do: "join", namespace: "c", to: "a", want: "a=11 b=10 c=11"},
		{do: "isolate", namespace: "b", idle: true, want: "a=11 b=10 c=11"},
		{do: "global", namespace: "b", want: "a=11 b=0 c=11"},
		{do: "global", namespace: "d", want: "a=11 b=0 c=11 d=0"},
		{do: "isolate", namespace: "b", want: "a=11 b=12 c=11 d=0"}, // 10 is free, and not given out again
		{do: "join", namespace: "d", to: "e", want: "a=11 b=12 c=11 d=13 e=13"},
	} {
		var done change.Change
		var err error
		switch step.do {
		case "join":
			done, err = c.Join(t.Context(), step.namespace, step.to)
		case "isolate":
			done, err = c.Isolate(t.Context(), step.namespace)
		case "global":
			done, err = c.Global(t.Context(), step.namespace)
		}
		if got := m.numbers(t); err != nil || got != step.want || done.Written == step.idle {
			t.Errorf("%+v: %+v, %v, numbers %s", step, done, err, got)
		}
	}
	// Namespaces that have one number already are joined on purpose from now on, and isolated again.
	if done, err := c.Join(t.Context(), "e", "d"); err != nil || !done.Written || m.objects["netnamespaces/e"].GetAnnotations()[model.JoinedAnnotation] != "13" {
		t.Errorf("%+v, %v, %v", done, err, m.objects["netnamespaces/e"])
	}
	if _, err := c.Isolate(t.Context(), "e"); err != nil || m.objects["netnamespaces/e"].GetAnnotations() != nil {
		t.Errorf("%v, %v", err, m.objects["netnamespaces/e"])
	}
	m.edit("f", int64(15), "") // not from the Lease
	if _, err := c.Join(t.Context(), "g", "h"); err != nil || !strings.HasSuffix(m.numbers(t), "f=15 g=16 h=16") {
		t.Errorf("%v, numbers %s", err, m.numbers(t))
	}
	// A NetNamespace that is not understood isolates its namespace, and gets a number of its own.
	m.edit("h", "16", "")
	if _, err := c.Isolate(t.Context(), "h"); err != nil || !strings.HasSuffix(m.numbers(t), "g=16 h=17") {
		t.Errorf("%v, numbers %s", err, m.numbers(t))
	}
}

// TestRefusedChanges: a refused change writes nothing.
func TestRefusedChanges(t *testing.T) {
	m := newMemory()
	m.edit("global", int64(0), "")
	m.edit("a", int64(20), "")
	c := change.Changer{Cluster: m, Namespace: "felixlike-system"}
	for want, do := range map[string]func() (change.Change, error){
		"cannot join itself":              func() (change.Change, error) { return c.Join(t.Context(), "a", "a") },
		"namespace global is global":      func() (change.Change, error) { return c.Join(t.Context(), "a", "global") },
		"there is no namespace missing":   func() (change.Change, error) { return c.Join(t.Context(), "a", "missing") },
		"there is no namespace missing ":  func() (change.Change, error) { return c.Join(t.Context(), "missing", "b") },
		"is no namespace missing":         func() (change.Change, error) { return c.Isolate(t.Context(), "missing") },
		"no namespace missing":            func() (change.Change, error) { return c.Global(t.Context(), "missing") },
		`"open" is no change`:             func() (change.Change, error) { return c.Do(t.Context(), "a", "open") },
		`"join:" is no change`:            func() (change.Change, error) { return c.Do(t.Context(), "a", "join:") },
		"namespace b has no NetNamespace": func() (change.Change, error) { return c.Do(t.Context(), "a", "join:b") },
	} {
		if _, err := do(); err == nil || !strings.Contains(err.Error(), strings.TrimSpace(want)) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if got := m.numbers(t); got != "a=20 global=0" {
		t.Errorf("numbers %s", got)
	}
}

// TestAnnotation: the change that oc asks for is made with the write that removes the annotation, and one that has been
// replaced by another meanwhile is not made.
func TestAnnotation(t *testing.T) {
	m := newMemory()
	c := change.Changer{Cluster: m, Namespace: "felixlike-system"}
	m.edit("b", int64(30), "isolate")
	for asked, want := range map[string]string{"join:b": "a=30 b=30", "isolate:": "a=10 b=30", "global": "a=0 b=30"} {
		m.edit("a", int64(0), asked)
		if asked == "global" {
			m.edit("a", int64(31), asked)
		}
		_, err := c.Do(t.Context(), "a", asked)
		o := m.objects["netnamespaces/a"]
		if got := m.numbers(t); err != nil || got != want || o.GetAnnotations()[change.Annotation] != "" || o.GetAnnotations()["own"] != "stays" || (o.GetAnnotations()[model.JoinedAnnotation] == "30") != strings.HasPrefix(asked, "join") {
			t.Errorf("%s: %v, numbers %s, annotations %v", asked, err, got, o.GetAnnotations())
		}
	}
	if m.objects["netnamespaces/b"].GetAnnotations()[change.Annotation] != "isolate" {
		t.Error("the annotation of the namespace that was joined has gone")
	}
	m.edit("a", int64(31), "global")
	m.before = func(string) { m.before = nil; m.edit("a", int64(31), "isolate") }
	if done, err := c.Do(t.Context(), "a", "global"); err != nil || done.Written || m.numbers(t) != "a=31 b=30" {
		t.Errorf("%+v, %v, numbers %s", done, err, m.numbers(t))
	}
}

// TestJoinOfANamespaceThatLeaves: a namespace that another program isolates while a third one joins it is not joined, and the
// one who asked is told.
func TestJoinOfANamespaceThatLeaves(t *testing.T) {
	m := newMemory()
	c := change.Changer{Cluster: m, Namespace: "felixlike-system"}
	m.edit("b", int64(30), "")
	m.before = func(string) { m.before = nil; m.edit("b", int64(31), "") }
	if _, err := c.Join(t.Context(), "a", "b"); err == nil || !strings.Contains(err.Error(), "has changed b meanwhile") || m.numbers(t) != "a=30 b=31" {
		t.Errorf("%v, numbers %s", err, m.numbers(t))
	}
}

// TestJoinWithinAJoin: two joins of different namespaces, of which the second one runs as a whole before one of the first one's
// writes, give different numbers.
func TestJoinWithinAJoin(t *testing.T) {
	for _, write := range []string{change.LeaseName, "b", "a"} {
		m := newMemory()
		c := change.Changer{Cluster: m, Namespace: "felixlike-system"}
		m.before = func(name string) {
			if name != write {
				return
			}
			m.before = nil
			if _, err := c.Join(t.Context(), "x", "y"); err != nil {
				t.Error(err)
			}
		}
		_, err := c.Join(t.Context(), "a", "b")
		if got := m.numbers(t); err != nil || got != "a=10 b=10 x=11 y=11" && got != "a=11 b=11 x=10 y=10" {
			t.Errorf("before the write of %s: %v, numbers %s", write, err, got)
		}
	}
}

// TestChangesAtTheSameTime: many programs change pairs of namespaces at once, each its own pair. Then, and at each moment before,
// no namespace has the number of another pair.
func TestChangesAtTheSameTime(t *testing.T) {
	m := newMemory()
	c := change.Changer{Cluster: m, Namespace: "felixlike-system"}
	m.before = func(string) {
		owner := map[int64]string{}
		all, _ := c.All(t.Context())
		for _, o := range all {
			pair, _, _ := strings.Cut(o.Name, "-")
			if other, known := owner[*o.NetID]; known && other != pair {
				t.Errorf("pairs %s and %s have number %d", pair, other, *o.NetID)
			}
			owner[*o.NetID] = pair
		}
	}
	var programs sync.WaitGroup
	for pair := range 8 {
		programs.Go(func() {
			random := rand.New(rand.NewPCG(uint64(pair), 1))
			a, b := fmt.Sprintf("p%d-a", pair), fmt.Sprintf("p%d-b", pair)
			for range 30 {
				var err error
				switch random.IntN(3) {
				case 0:
					_, err = c.Join(t.Context(), a, b)
				case 1:
					_, err = c.Isolate(t.Context(), b)
				case 2:
					_, err = c.Join(t.Context(), b, a)
				}
				if err != nil && !apierrors.IsConflict(err) && !strings.Contains(err.Error(), "get a number from the Lease") {
					t.Error(err)
				}
			}
		})
	}
	programs.Wait()
}

// TestJoinWithOtherAddresses: namespaces with other egressIPs are not joined, also if only one that is joined already has them. Equal ones are.
func TestJoinWithOtherAddresses(t *testing.T) {
	for _, test := range []struct {
		own, to, member []any
		refused         string
	}{
		{own: []any{"192.0.2.1"}, to: []any{"192.0.2.2"}, refused: "b, which it would be joined with, has 192.0.2.2"},
		{own: []any{"192.0.2.1"}, member: []any{"192.0.2.2"}, refused: "c, which it would be joined with, has 192.0.2.2"},
		{own: []any{"192.0.2.1", "fd00::1"}, to: []any{"fd00:0::1", "192.0.2.1"}},
		{own: []any{"192.0.2.1"}},
		{to: []any{"192.0.2.1"}},
	} {
		m := newMemory()
		for name, addresses := range map[string][]any{"a": test.own, "b": test.to, "c": test.member} {
			m.edit(name, int64(20), "")
			if name == "a" {
				m.edit(name, int64(21), "")
			}
			if addresses != nil {
				m.objects["netnamespaces/"+name].Object["egressIPs"] = addresses
			}
		}
		_, err := change.Changer{Cluster: m, Namespace: "felixlike-system"}.Join(t.Context(), "a", "b")
		want := "a=20 b=20 c=20"
		if test.refused != "" {
			want = "a=21 b=20 c=20"
		}
		if got := m.numbers(t); got != want || (err == nil) != (test.refused == "") || err != nil && !strings.Contains(err.Error(), test.refused) {
			t.Errorf("%+v: %s, %v, want %s", test, got, err, want)
		}
	}
}
