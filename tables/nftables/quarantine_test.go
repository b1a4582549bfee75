package nftables

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/felixlike/felixlike/ipsets"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/tables/nftables/kernel"
)

func TestRefusedObjects(t *testing.T) {
	sample := newNamespace(t)
	clean := sample.open(t)
	loadExample(clean)
	apply(t, clean)
	want := sample.objects(t)
	const entry = "entry 10.0.0.1 : goto pods-in-x/base-1"
	oneEntry := func(o ObjectError) error {
		if o.Name == "to-pods-4" && (o.Rule == entry || strings.Contains(o.Rule, "members")) {
			return errInjected
		}
		return nil
	}
	for _, c := range []struct {
		name     string
		refuses  func(ObjectError) error
		refused  []string
		closed   []string
		anything []string
	}{
		{"rule", content("chain", "pin-x/base-1"), []string{"chain pin-x/base-1"}, []string{"pin-x/base-1", "pods-in-x/base-1"}, nil},
		{"chain", everything("chain", "pin-x/base-1"), []string{"chain pin-x/base-1"}, []string{"pods-in-x/base-1"}, []string{"chain pin-x/base-1"}},
		{"set", content("set", "nblock-6"), []string{"set nblock-6"}, []string{"pin-x/base-1", "pods-in-x/base-1"}, []string{"set nblock-6"}},
		{"map", everything("map", "to-pods-6"), []string{"map to-pods-6"}, []string{"to-pods"}, []string{"map to-pods-6"}},
		{"entry", oneEntry, []string{"map to-pods-4"}, nil, []string{"map to-pods-4"}},
		{
			"several", anyOf(content("set", "aweb-4"), everything("map", "to-pods-6")),
			[]string{"map to-pods-6", "set aweb-4"},
			[]string{"pin-x/base-1", "pods-in-x/base-1", "to-pods"},
			[]string{"set aweb-4", "map to-pods-6"},
		},
	} {
		for _, how := range []string{"named", "unnamed"} {
			for _, limit := range []int{maxBatch, 10} {
				for _, loaded := range []bool{false, true} {
					t.Run(fmt.Sprintf("%s/%s/limit=%d/loaded=%v", c.name, how, limit, loaded), func(t *testing.T) {
						ns := newNamespace(t)
						f := ns.openFaulty(t)
						f.limit = limit
						if loaded {
							// Something else is in force first.
							loadExample(f.Table)
							f.UpdateChain(tables.Chain{Name: "pin-x/base-1", Rules: []tables.Rule{rule(tables.Accept{}, "old")}})
							f.UpdateChain(tables.Chain{Name: "pods-in-x/base-1", Rules: []tables.Rule{rule(tables.Accept{}, "old")}})
							f.RemoveMembers("aweb-4", membersOf("10.0.0.1"))
							f.RemoveMembers("nblock-6", membersOf("fd00::5/128"))
							f.SetVerdict("to-pods-4", addr("10.0.0.1"), tables.Accept{})
							f.SetVerdict("to-pods-6", addr("fd00::1"), tables.Accept{})
							apply(t, f.Table)
						}
						f.refuses = c.refuses
						if how == "unnamed" {
							f.refuses = unnamed(c.refuses)
						}
						loadExample(f.Table)
						r := apply(t, f.Table)
						if diff := cmp.Diff(c.refused, refusedNames(r)); diff != "" {
							t.Errorf("refused: %s\n%+v", diff, r.Refused)
						}
						wantLike(t, want, ns.objects(t), c.closed, c.anything)
						wantSilent(t, f.Table)
						f.Invalidate()
						wantSilent(t, f.Table)

						// The fault goes away.
						f.refuses = nil
						f.now = f.now.Add(2 * time.Second)
						if r := apply(t, f.Table); len(r.Refused) != 0 {
							t.Errorf("still refused: %+v", r.Refused)
						}
						wantLike(t, want, ns.objects(t), nil, nil)
						wantSilent(t, f.Table)
						f.Invalidate()
						wantSilent(t, f.Table)
					})
				}
			}
		}
	}
}

// TestRefusedToClose: a chain may have to close because a chain that it asks refers to a refused object. If
// the kernel refuses the replacement, the search finds the chain, though it has not changed itself. It finds
// no other.
func TestRefusedToClose(t *testing.T) {
	for _, how := range []string{"named", "unnamed"} {
		t.Run(how, func(t *testing.T) {
			ns := newNamespace(t)
			f := ns.openFaulty(t)
			loadExample(f.Table)
			f.UpdateChain(tables.Chain{Name: "pods-in-x/other", Rules: []tables.Rule{rule(tables.Accept{}, "old")}})
			f.SetVerdict("to-pods-4", addr("10.0.0.2"), tables.Goto{Chain: "pods-in-x/other"})
			apply(t, f.Table)
			f.refuses = anyOf(everything("set", "anew-4"), everything("chain", "pods-in-x/base-1"))
			if how == "unnamed" {
				f.refuses = unnamed(f.refuses)
			}
			other := tables.Chain{Name: "pods-in-x/other", Rules: []tables.Rule{rule(tables.Drop{}, "new")}}
			f.UpdateChain(other)
			f.CreateSet(ipsets.Set{Name: "anew-4", Kind: model.Addresses, Family: model.IPv4})
			f.UpdateChain(tables.Chain{Name: "pin-x/base-1", Rules: []tables.Rule{rule(tables.Accept{}, "new", srcSet(model.IPv4, "anew-4"))}})
			r := apply(t, f.Table)
			if diff := cmp.Diff([]string{"chain pods-in-x/base-1", "set anew-4"}, refusedNames(r)); diff != "" {
				t.Errorf("refused: %s\n%+v", diff, r.Refused)
			}
			wantChain(t, f.Table, other)
			entries := ns.objects(t)["map to-pods-4"]
			for _, want := range []string{"10.0.0.1 : drop", "10.0.0.2 : goto pods-in-x/other"} {
				if !strings.Contains(entries, want) {
					t.Errorf("no entry %s: %s", want, entries)
				}
			}
			wantSilent(t, f.Table)
			f.refuses = nil
			f.now = f.now.Add(time.Hour)
			if r := apply(t, f.Table); len(r.Refused) != 0 {
				t.Errorf("still refused: %+v", r.Refused)
			}
			f.Invalidate()
			wantSilent(t, f.Table)
		})
	}
}

// One transaction is refused for no reason, and not again.
func TestPassingFault(t *testing.T) {
	ns := newNamespace(t)
	f := ns.openFaulty(t)
	left := 1
	f.refuses = func(ObjectError) error {
		if left > 0 {
			left--
			return kernel.ErrUnnamed
		}
		return nil
	}
	loadExample(f.Table)
	if r := apply(t, f.Table); len(r.Refused) != 0 || r.RulesAdded != exampleRules {
		t.Errorf("%+v", r)
	}
	wantSilent(t, f.Table)
}

// A kernel that refuses everything refuses no object.
func TestEverythingIsRefused(t *testing.T) {
	ns := newNamespace(t)
	f := ns.openFaulty(t)
	loadExample(f.Table)
	apply(t, f.Table)
	before := ns.list(t, "-a")
	f.refuses = func(ObjectError) error { return kernel.ErrUnnamed }
	f.AddMembers("aweb-4", membersOf("10.0.0.9"))
	f.UpdateChain(tables.Chain{Name: "pin-x/base-1", Rules: []tables.Rule{rule(tables.Drop{}, "")}})
	r, err := f.Apply(t.Context())
	if !errors.Is(err, kernel.ErrUnnamed) || len(r.Refused) != 0 || r.Messages != 0 {
		t.Errorf("%v, %+v", err, r)
	}
	if diff := cmp.Diff(before, ns.list(t, "-a")); diff != "" {
		t.Error(diff)
	}
	f.refuses = nil
	if r := apply(t, f.Table); r.ElementsAdded != 1 || r.RulesAdded != 1 {
		t.Errorf("%+v", r)
	}
	wantSilent(t, f.Table)
}

// TestRefusedDeletion: an object that could not be deleted stays, closes nothing, and goes later.
func TestRefusedDeletion(t *testing.T) {
	for _, how := range []string{"named", "unnamed"} {
		t.Run(how, func(t *testing.T) {
			ns := newNamespace(t)
			f := ns.openFaulty(t)
			loadExample(f.Table)
			f.UpdateChain(tables.Chain{Name: "gone", Rules: []tables.Rule{rule(tables.Accept{}, "", srcSet(model.IPv4, "agone-4"))}})
			f.define("agone-4", kernel.Shape{Kind: model.Addresses, Family: model.IPv4})
			apply(t, f.Table)
			f.refuses = everything("chain", "gone")
			if how == "unnamed" {
				f.refuses = unnamed(f.refuses)
			}
			f.RemoveChain("gone")
			f.RemoveSet("agone-4")
			f.SetVerdict("to-pods-4", addr("10.0.0.7"), tables.Drop{})
			r := apply(t, f.Table)
			// The set is in use by the chain.
			if diff := cmp.Diff([]string{"chain gone", "set agone-4"}, refusedNames(r)); diff != "" {
				t.Error(diff)
			}
			for _, x := range r.Refused {
				if len(x.Closed) != 0 {
					t.Errorf("%+v", x)
				}
			}
			if r.ElementsAdded != 1 {
				t.Errorf("%+v", r)
			}
			f.refuses = nil
			f.now = f.now.Add(time.Second)
			if r := apply(t, f.Table); len(r.Refused) != 0 {
				t.Errorf("%+v", r)
			}
			if s := ns.list(t); strings.Contains(s, "gone") {
				t.Error(s)
			}
			wantSilent(t, f.Table)
		})
	}
}
