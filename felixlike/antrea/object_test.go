package antrea_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/felixlike/felixlike/felixlike/antrea"
)

// TestObjects: objects are put by kind, namespace and name, in the place of an older one.
func TestObjects(t *testing.T) {
	var objects antrea.Objects
	for _, kind := range antrea.Kinds() {
		for _, name := range []string{"a", "b", "a"} {
			o := kind.New()
			o.SetName(name)
			if kind.Namespaced() {
				o.SetNamespace("ns")
			}
			objects.Put(o)
		}
	}
	all := objects.All()
	if len(all) != 2*len(antrea.Kinds()) {
		t.Fatalf("%d objects", len(all))
	}
	for i, o := range all {
		id := antrea.ID{Kind: antrea.Kinds()[i/2], Name: string("ab"[i%2])}
		if id.Kind.Namespaced() {
			id.Namespace = "ns"
		}
		if o.ID() != id {
			t.Errorf("object %d: %v, want %v", i, o.ID(), id)
		}
	}
	p := &antrea.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p"}}
	if got := p.ID().Ref().String(); got != "networkpolicy.crd.antrea.io/ns/p" {
		t.Error(got)
	}
}
