package nftables

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
)

// faulty is a driver whose kernel refuses more than the real one, at a clock
// that the test moves.
type faulty struct {
	*Table
	now time.Time
	// refuses says why a message is refused; nil for none.
	refuses func(ObjectError) error
	// asked counts the transactions, by their first message.
	messages int
}

func (n namespace) openFaulty(t testing.TB) *faulty {
	t.Helper()
	f := &faulty{now: time.Unix(1_700_000_000, 0)}
	f.Table = New(Options{NetNS: n.fd, Fault: func(o ObjectError) error {
		f.messages++
		if f.refuses == nil {
			return nil
		}
		return f.refuses(o)
	}})
	f.quarantine.now = func() time.Time { return f.now }
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

var errInjected = errors.New("no")

// content refuses what is wanted of an object, but not that it stands closed.
func content(object, name string) func(ObjectError) error {
	return func(o ObjectError) error {
		if o.Object == object && o.Name == name && !strings.Contains(o.Rule, "refused: ") && !strings.HasPrefix(o.Rule, "rule with handle") && (object != "chain" || o.Rule != "") {
			return errInjected
		}
		return nil
	}
}

// everything refuses all messages about an object.
func everything(object, name string) func(ObjectError) error {
	return func(o ObjectError) error {
		if o.Object == object && o.Name == name {
			return errInjected
		}
		return nil
	}
}

// unnamed has the kernel not name what it refuses.
func unnamed(refuses func(ObjectError) error) func(ObjectError) error {
	return func(o ObjectError) error {
		if err := refuses(o); err != nil {
			return fmt.Errorf("%w: %w", err, ErrUnnamed)
		}
		return nil
	}
}

func anyOf(all ...func(ObjectError) error) func(ObjectError) error {
	return func(o ObjectError) error {
		for _, refuses := range all {
			if err := refuses(o); err != nil {
				return err
			}
		}
		return nil
	}
}

func refusedNames(r tables.Result) []string {
	var out []string
	for _, x := range r.Refused {
		out = append(out, x.Object+" "+x.Name)
	}
	return slices.Compact(out)
}

var blockStart = regexp.MustCompile(`(?m)^\t(chain|set|map) (\S+) \{`)

// objects divides nft's listing of the table by object, without counters.
func (n namespace) objects(t testing.TB) map[string]string {
	t.Helper()
	out := map[string]string{}
	listing := strings.TrimSuffix(n.list(t, "-s"), "}\n")
	at := blockStart.FindAllStringSubmatchIndex(listing, -1)
	for i, m := range at {
		end := len(listing)
		if i+1 < len(at) {
			end = at[i+1][0]
		}
		out[listing[m[2]:m[3]]+" "+listing[m[4]:m[5]]] = strings.TrimSpace(listing[m[0]:end])
	}
	return out
}

// wantLike checks that the kernel holds what it holds in another namespace, but
// for the chains that stand closed, and the objects that may be anything.
func wantLike(t testing.TB, clean, got map[string]string, closed, anything []string) {
	t.Helper()
	clean, got = mapClone(clean), mapClone(got)
	for _, name := range closed {
		if body := got["chain "+name]; strings.Count(body, "comment") != 1 || !strings.Contains(body, "drop comment \"flx:") {
			t.Errorf("chain %s does not stand closed: %s", name, body)
		}
		delete(clean, "chain "+name)
		delete(got, "chain "+name)
	}
	for _, name := range anything {
		delete(clean, name)
		delete(got, name)
	}
	if diff := cmp.Diff(clean, got); diff != "" {
		t.Errorf("the kernel differs (-clean +got):\n%s", diff)
	}
}

func mapClone(m map[string]string) map[string]string {
	out := map[string]string{}
	for k, v := range m {
		out[k] = v
	}
	return out
}

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
		{"rule", content("chain", "pin-x/base-1"), []string{"chain pin-x/base-1"}, []string{"pin-x/base-1"}, nil},
		{"chain", everything("chain", "pin-x/base-1"), []string{"chain pin-x/base-1"}, []string{"pods-in-x/base-1"}, []string{"chain pin-x/base-1"}},
		{"set", content("set", "nblock-6"), []string{"set nblock-6"}, []string{"pin-x/base-1"}, []string{"set nblock-6"}},
		{"map", everything("map", "to-pods-6"), []string{"map to-pods-6"}, []string{"to-pods"}, []string{"map to-pods-6"}},
		{"entry", oneEntry, []string{"map to-pods-4"}, nil, []string{"map to-pods-4"}},
		{
			"several", anyOf(content("set", "aweb-4"), content("chain", "pods-in-x/base-1"), everything("map", "to-pods-6")),
			[]string{"chain pods-in-x/base-1", "map to-pods-6", "set aweb-4"},
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

// One transaction is refused for no reason, and not again.
func TestPassingFault(t *testing.T) {
	ns := newNamespace(t)
	f := ns.openFaulty(t)
	left := 1
	f.refuses = func(ObjectError) error {
		if left > 0 {
			left--
			return ErrUnnamed
		}
		return nil
	}
	loadExample(f.Table)
	if r := apply(t, f.Table); len(r.Refused) != 0 || r.RulesAdded != 24 {
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
	f.refuses = func(ObjectError) error { return ErrUnnamed }
	f.AddMembers("aweb-4", membersOf("10.0.0.9"))
	f.UpdateChain(tables.Chain{Name: "pin-x/base-1", Rules: []tables.Rule{rule(tables.Drop{}, "")}})
	r, err := f.Apply(t.Context())
	if !errors.Is(err, ErrUnnamed) || len(r.Refused) != 0 || r.Messages != 0 {
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

// What could not be deleted stays, closes nothing, and goes later.
func TestRefusedDeletion(t *testing.T) {
	for _, how := range []string{"named", "unnamed"} {
		t.Run(how, func(t *testing.T) {
			ns := newNamespace(t)
			f := ns.openFaulty(t)
			loadExample(f.Table)
			f.UpdateChain(tables.Chain{Name: "gone", Rules: []tables.Rule{rule(tables.Accept{}, "", srcSet(model.IPv4, "agone-4"))}})
			f.define("agone-4", shape{kind: model.Addresses, family: model.IPv4})
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

// The waits double, nothing is tried before its time, and a trial touches nothing
// but what is tried.
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
		if len(r.Refused) != 1 || r.Refused[0].Attempts != attempt || !r.Refused[0].Since.Equal(start) || !r.Refused[0].NextTry.Equal(f.now.Add(wait)) {
			t.Fatalf("attempt %d: %+v", attempt, r.Refused)
		}
		if next, ok := f.NextTry(); !ok || !next.Equal(f.now.Add(wait)) {
			t.Fatalf("next try %v, %v", next, ok)
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
	if r := apply(t, f.Table); len(r.Refused) != 0 || r.Messages != 2 {
		t.Errorf("%+v", r)
	}
	if next, ok := f.NextTry(); ok {
		t.Errorf("next try %v", next)
	}
}

// A change of what is refused, or of what it refers to, is tried at once; other
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
	wantChain(t, f.Table, *f.chains["pin-x/base-1"].want)

	// What is not wanted any more is not refused any more.
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
