package nftables

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
)

// TestRetriesBackOff: the waits double, no retry comes before its time, and a retry touches only its object.
func TestRetriesBackOff(t *testing.T) {
	ns := newNamespace(t)
	f := ns.openFaulty(t)
	loadExample(f.Table)
	apply(t, f.Table)
	f.refuses = content("chain", "pin-x/base-1")
	f.UpdateChain(tables.Chain{Name: "pin-x/base-1", Rules: []tables.Rule{rule(tables.Return{}, "new")}})
	r := apply(t, f.Table)
	before := ns.list(t, "-a")
	start, wait := f.now, time.Second
	for attempt := 1; attempt < 15; attempt++ {
		if len(r.Refused) != 1 || !slices.Equal(r.Refused[0].Closed, []string{"pin-x/base-1", "pods-in-x/base-1"}) {
			t.Fatalf("attempt %d: %+v", attempt, r.Refused)
		}
		if r.Refused[0].Attempts != attempt || !r.Refused[0].Since.Equal(start) || !r.Refused[0].NextTry.Equal(f.now.Add(wait)) {
			t.Fatalf("attempt %d: %+v", attempt, r.Refused)
		}
		f.now = f.now.Add(wait - 1)
		f.messages = 0
		if apply(t, f.Table); f.messages != 0 {
			t.Errorf("tried %d messages too early", f.messages)
		}
		f.now = f.now.Add(1)
		f.messages = 0
		if r = apply(t, f.Table); r.Messages != 0 || r.FullRead || f.messages == 0 || f.messages > 3 {
			t.Errorf("trial with %d messages: %+v", f.messages, r)
		}
		wait = min(2*wait, 5*time.Minute)
	}
	if diff := cmp.Diff(before, ns.list(t, "-a")); diff != "" {
		t.Errorf("the trials have changed:\n%s", diff)
	}
	f.refuses = nil
	f.now = f.now.Add(wait)
	// A rule for a rule in the one chain, seven for one in the chain that asks it.
	if r := apply(t, f.Table); len(r.Refused) != 0 || r.Messages != 2+8 {
		t.Errorf("%+v", r)
	}
}

// TestChangeIsTriedAtOnce: a change of a refused object, or of one that it refers to, is tried at once; other
// changes are not.
func TestChangeIsTriedAtOnce(t *testing.T) {
	ns := newNamespace(t)
	f := ns.openFaulty(t)
	loadExample(f.Table)
	apply(t, f.Table)
	edit := func(comment string) {
		f.UpdateChain(tables.Chain{Name: "pin-x/base-1", Rules: []tables.Rule{rule(tables.Return{}, comment, srcSet(model.IPv4, "aweb-4"))}})
	}
	f.refuses = content("chain", "pin-x/base-1")
	edit("first")
	tried := func() bool {
		f.messages = 0
		r := apply(t, f.Table)
		if len(r.Refused) != 1 {
			t.Fatalf("%+v", r)
		}
		return f.messages > r.Messages
	}
	if !tried() {
		t.Error("not refused at all")
	}
	f.AddMembers("nblock-4", membersOf("10.9.0.0/16"))
	if tried() {
		t.Error("tried after a change of something else")
	}
	f.AddMembers("aweb-4", membersOf("10.0.0.9"))
	if !tried() {
		t.Error("not tried after a change of a set that it refers to")
	}
	edit("second")
	if !tried() {
		t.Error("not tried after a change")
	}
	f.refuses = nil
	edit("third")
	if r := apply(t, f.Table); len(r.Refused) != 0 {
		t.Errorf("%+v", r)
	}
	wantChain(t, f.Table, *f.chains["pin-x/base-1"].desired)

	// An object that is no longer desired is no longer refused.
	f.refuses = content("set", "aweb-6")
	f.AddMembers("aweb-6", membersOf("fd00::7"))
	f.UpdateChain(tables.Chain{Name: "pods-in-x/base-1", Rules: []tables.Rule{rule(tables.Return{}, "", srcSet(model.IPv6, "aweb-6"))}})
	if r := apply(t, f.Table); len(r.Refused) != 1 || !slices.Equal(r.Refused[0].Closed, []string{"pods-in-x/base-1"}) {
		t.Errorf("%+v", r)
	}
	f.refuses = nil
	f.UpdateChain(tables.Chain{Name: "pods-in-x/base-1"})
	f.RemoveSet("aweb-6")
	if r := apply(t, f.Table); len(r.Refused) != 0 || strings.Contains(ns.list(t), "aweb-6") {
		t.Errorf("%+v", r)
	}
	wantSilent(t, f.Table)
	f.Invalidate()
	wantSilent(t, f.Table)
}
