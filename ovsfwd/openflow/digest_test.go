package openflow_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/felixlike/felixlike/ovsfwd/openflow"
	"github.com/felixlike/felixlike/test/ovstest"
)

// Flows 201174 and 1043199 of numbered have one cookie.
func twins() (a, b []openflow.Flow) { return numberedFrom(201174, 1), numberedFrom(1043199, 1) }

func TestFlowsOfEqualCookie(t *testing.T) {
	b := ovstest.NewBridge(t)
	table := connected(t, b)
	left, right := twins()
	table.SetFlows("left", fixed(left))
	table.SetFlows("right", fixed(right))
	apply(t, b, table, openflow.Result{Messages: 2, Added: 2})
	if n := len(slices.Compact(cookies(b))); n != 1 {
		t.Fatalf("%d cookies: another pair of flows is needed", n)
	}
	known(t, b, slices.Concat(left, right))

	// Deletion is by cookie; the other one stays.
	table.RemoveFlows("left")
	apply(t, b, table, openflow.Result{Messages: 2, Added: 1, Deleted: 1})
	if diff := cmp.Diff(texts(right), b.Flows()); diff != "" {
		t.Error(diff)
	}
	// One goes and the other comes.
	table.SetFlows("left", fixed(left))
	table.RemoveFlows("right")
	apply(t, b, table, openflow.Result{Messages: 2, Added: 1, Deleted: 1})
	if diff := cmp.Diff(texts(left), b.Flows()); diff != "" {
		t.Error(diff)
	}
	// Both go.
	table.SetFlows("right", fixed(right))
	apply(t, b, table, openflow.Result{Messages: 1, Added: 1})
	table.RemoveFlows("left")
	table.RemoveFlows("right")
	apply(t, b, table, openflow.Result{Messages: 1, Deleted: 1})
	if flows := b.Flows(); len(flows) != 0 {
		t.Error(flows)
	}
	apply(t, b, table, openflow.Result{})
}

// The programmer sends a flow if its actions change and its cookie stays the same. Two
// contents with one cookie can be found within a second.
func TestContentsOfEqualCookie(t *testing.T) {
	b := ovstest.NewBridge(t)
	table := connected(t, b)
	content := func(id uint32) []openflow.Flow {
		return []openflow.Flow{{Table: 10, Priority: 1, Match: openflow.IPv4(), Actions: []openflow.Action{openflow.Conjunction(id, 1, 2)}}}
	}
	before, after := content(453309), content(561879)
	table.SetFlows("a", fixed(before))
	apply(t, b, table, openflow.Result{Messages: 1, Added: 1})
	cookie := cookies(b)
	known(t, b, before)
	table.SetFlows("a", fixed(after))
	apply(t, b, table, openflow.Result{Messages: 1, Added: 1})
	if !slices.Equal(cookie, cookies(b)) {
		t.Fatalf("cookies %v and %v: another pair is needed", cookie, cookies(b))
	}
	if diff := cmp.Diff(texts(after), b.Flows()); diff != "" {
		t.Error(diff)
	}
	// So it is after a restart.
	again := connected(t, b)
	again.SetFlows("a", fixed(before))
	apply(t, b, again, openflow.Result{Messages: 1, Added: 1, FullRead: true})
	if diff := cmp.Diff(texts(before), b.Flows()); diff != "" {
		t.Error(diff)
	}
}

// cookies returns the cookies of the installed flows, sorted.
func cookies(b *ovstest.Bridge) []string {
	var all []string
	for line := range strings.Lines(b.Ofctl("dump-flows")) {
		if cookie, _, found := strings.Cut(strings.TrimSpace(line), ","); found && strings.HasPrefix(cookie, "cookie=") {
			all = append(all, cookie)
		}
	}
	slices.Sort(all)
	return all
}

func TestReadBackFlowsAreCheckedNotTrusted(t *testing.T) {
	b := ovstest.NewBridge(t)
	table := connected(t, b)
	table.SetFlows("a", fixed(numbered(3)))
	apply(t, b, table, openflow.Result{Messages: 3, Added: 3})
	cookie := cookies(b)[0]
	for name, tamper := range map[string]func(){
		"other actions under the same cookie": func() { b.Ofctl("mod-flows", cookie+"/-1,actions=NORMAL") },
		"another flow under the same cookie":  func() { b.Ofctl("add-flow", cookie+",table=10,priority=201,ip,actions=NORMAL") },
		"the same in another table":           func() { b.Ofctl("add-flow", cookie+",table=11,priority=200,ip,actions=NORMAL") },
		"our owner":                           func() { b.Ofctl("add-flow", "cookie=0xf11c000000000005,table=10,priority=202,arp,actions=NORMAL") },
		"one is gone":                         func() { b.Ofctl("del-flows", cookie+"/-1") },
	} {
		t.Run(name, func(t *testing.T) {
			tamper()
			again := connected(t, b)
			again.SetFlows("a", fixed(numbered(3)))
			if _, err := again.Apply(b.Context()); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(texts(numbered(3)), b.Flows()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestOwnersLeaveEachOtherAlone(t *testing.T) {
	b := ovstest.NewBridge(t)
	ours := connected(t, b)
	ours.SetFlows("a", fixed(numberedFrom(0, 3)))
	apply(t, b, ours, openflow.Result{Messages: 3, Added: 3})
	theirs := openflow.NewFlowTable(owner+1, 1)
	theirs.Connect(dial(t, b))
	theirs.SetFlows("b", fixed(numberedFrom(3, 3)))
	apply(t, b, theirs, openflow.Result{Messages: 3, Added: 3})
	known(t, b, numberedFrom(0, 3))
	ours.RemoveFlows("a")
	apply(t, b, ours, openflow.Result{Messages: 3, Deleted: 3})
	if diff := cmp.Diff(texts(numberedFrom(3, 3)), b.Flows()); diff != "" {
		t.Error(diff)
	}
}

func TestRenderingOtherFlowsThanSetIsRefused(t *testing.T) {
	b := ovstest.NewBridge(t)
	table := connected(t, b)
	flows := numbered(2)
	table.SetFlows("shaky", func() []openflow.Flow { return flows })
	for _, other := range [][]openflow.Flow{numbered(1), numberedFrom(1, 2)} {
		flows = other
		if _, err := table.Apply(b.Context()); err == nil || !strings.Contains(err.Error(), "shaky") {
			t.Errorf("got %v", err)
		}
		if flows := b.Flows(); len(flows) != 0 {
			t.Errorf("%d flows are installed", len(flows))
		}
	}
	flows = numbered(2)
	apply(t, b, table, openflow.Result{Messages: 2, Added: 2})
}
