package tenancy_test

import (
	"strings"
	"testing"

	"k8s.io/utils/ptr"

	"github.com/felixlike/felixlike/felixlike/antrea"
	"github.com/felixlike/felixlike/felixlike/tenancy"
	"github.com/felixlike/felixlike/model"
)

func netNamespace(name string, id *int64) *antrea.NetNamespace {
	o := &antrea.NetNamespace{NetName: name, NetID: id}
	o.Name = name
	return o
}

// TestClasses: namespaces with equal numbers are one class, a namespace with number 0 is global, and an object that is missing or not
// understood joins nobody.
func TestClasses(t *testing.T) {
	c := tenancy.New()
	objects := map[string]*antrea.NetNamespace{
		"tea": netNamespace("tea", ptr.To[int64](7)), "milk": netNamespace("milk", ptr.To[int64](7)), "other": netNamespace("other", ptr.To[int64](8)),
		"common": netNamespace("common", ptr.To[int64](0)), "shared": netNamespace("shared", ptr.To[int64](0)),
		"no-number": netNamespace("no-number", nil), "negative": netNamespace("negative", ptr.To[int64](-1)), "great": netNamespace("great", ptr.To[int64](1<<24)),
		"copied": netNamespace("tea", ptr.To[int64](7)), "egress": netNamespace("egress", ptr.To[int64](9)),
	}
	objects["copied"].Name = "copied"
	objects["egress"].EgressIPs = []string{"192.0.2.1"}
	for name, o := range objects {
		c.Set(name, o)
	}
	for name, want := range map[string]tenancy.Class{
		"tea": {Number: 7}, "milk": {Number: 7}, "other": {Number: 8}, "egress": {Number: 9},
		"common": {Namespace: "common", Global: true}, "shared": {Namespace: "shared", Global: true},
		"no-number": {Namespace: "no-number"}, "negative": {Namespace: "negative"}, "great": {Namespace: "great"}, "copied": {Namespace: "copied"},
		"without": {Namespace: "without"},
	} {
		if got := c.Of(name); got != want {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
	for want, class := range map[string]tenancy.Class{
		"milk tea": {Number: 7}, "other": {Number: 8}, "common": {Namespace: "common", Global: true}, "without": {Namespace: "without"}, "": {Namespace: "tea"},
	} {
		if got := strings.Join(c.Members(class), " "); got != want {
			t.Errorf("members of %+v: %q, want %q", class, got, want)
		}
	}
	var problems []string
	for _, p := range c.Problems() {
		problems = append(problems, p.Error())
	}
	const kind = "netnamespace.network.openshift.io/"
	want := []string{
		kind + `copied: netname: "tea" is not the name of the object; the namespace is isolated from all others`,
		kind + "great: netid: 16777216 is not between 0 and 16777215; the namespace is isolated from all others",
		kind + "milk: netid: 7 is also the number of tea: these namespaces are joined",
		kind + "negative: netid: -1 is not between 0 and 16777215; the namespace is isolated from all others",
		kind + "no-number: netid: there is no number; the namespace is isolated from all others",
	}
	// Global namespaces share no number: 0 stands for none.
	if got := strings.Join(problems, "\n"); got != strings.Join(want, "\n") {
		t.Errorf("problems:\n%s\nwant:\n%s", got, strings.Join(want, "\n"))
	}
	for name := range objects {
		c.Set(name, nil)
	}
	if names, problems := c.Names(), c.Problems(); len(names)+len(problems) > 0 || c.Of("tea").Number != 0 {
		t.Errorf("left: %v, %v, %+v", names, problems, c.Of("tea"))
	}
}

// TestJoinedOnPurpose: a number that several namespaces have is no problem if all but one were joined with it.
func TestJoinedOnPurpose(t *testing.T) {
	joined := func(name string, id int64, with string) *antrea.NetNamespace {
		o := netNamespace(name, &id)
		o.Annotations = map[string]string{model.JoinedAnnotation: with}
		return o
	}
	for _, step := range []struct {
		object   *antrea.NetNamespace
		problems int
	}{
		{netNamespace("tea", ptr.To[int64](7)), 0},
		{joined("milk", 7, "7"), 0},
		{joined("cake", 7, "7"), 0},
		{netNamespace("copied", ptr.To[int64](7)), 1}, // it has a number that others have, and nobody joined it
		{joined("copied", 7, "6"), 1},                 // it was joined with another number, before
		{joined("copied", 7, "7"), 0},
	} {
		c := tenancy.New()
		for _, o := range []*antrea.NetNamespace{netNamespace("tea", ptr.To[int64](7)), joined("milk", 7, "7"), step.object} {
			c.Set(o.Name, o)
		}
		if all := c.Problems(); len(all) != step.problems {
			t.Errorf("%s %v: %v", step.object.Name, step.object.Annotations, all)
		}
	}
}
