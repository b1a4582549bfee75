package nftables

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/ipsets"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/tables/nftables/kernel"
)

// connected returns a table with a connection and the example in the kernel.
func connected(t *testing.T) (namespace, *Table) {
	t.Helper()
	ns := newNamespace(t)
	table := ns.open(t)
	loadExample(table)
	apply(t, table)
	return ns, table
}

// TestAllRefusalsAreReported: the kernel goes on behind a message that it refuses; the error has all
// refusals, each with its object.
func TestAllRefusalsAreReported(t *testing.T) {
	ns, table := connected(t)
	before := ns.list(t, "-a")
	addresses := kernel.Shape{Kind: model.Addresses, Family: model.IPv4}
	stray := rule(tables.Accept{}, "here")
	ops := []kernel.Op{
		{Kind: kernel.FlushSet, Name: "none-1", Shape: addresses},
		{Kind: kernel.AddMembers, Name: "aweb-4", Shape: addresses, Changes: changesOf("10.7.7.7")},
		{Kind: kernel.AddMembers, Name: "none-2", Shape: addresses, Changes: changesOf("10.7.7.7", "10.7.7.8")},
		{Kind: kernel.AddRule, Name: "missing", Rule: &stray, Hash: "h", Echo: &kernel.Rule{}},
		{Kind: kernel.DeleteRule, Name: "forward", Handle: 77777},
		{Kind: kernel.FlushChain, Name: "to-pods"},
	}
	err := table.conn.Commit(ops)
	var refused *kernel.RefusedError
	if !errors.As(err, &refused) || refused.Commit != nil {
		t.Fatalf("error %v of type %T", err, err)
	}
	var got []int
	for i, r := range refused.Refused {
		got = append(got, r.Index)
		if o := refused.Objects[i]; !errors.Is(o, unix.ENOENT) {
			t.Errorf("object %v", o)
		}
	}
	if want := []int{0, 2, 3, 4}; len(got) != len(want) || got[0] != want[0] || got[1] != want[1] || got[2] != want[2] || got[3] != want[3] {
		t.Errorf("refused are %v, want %v", got, want)
	}
	for _, want := range []string{
		"set none-1: the kernel refuses: no such file or directory",
		"set none-2: one of 2 members from 10.7.7.7 to 10.7.7.8: the kernel refuses",
		"chain missing: rule 0 (accept, here): the kernel refuses",
		"chain forward: rule with handle 77777: the kernel refuses",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %q does not say %q", err, want)
		}
	}
	if after := ns.list(t, "-a"); after != before {
		t.Errorf("the kernel was changed:\n%s", after)
	}
	// The connection goes on to serve.
	if err := table.conn.Commit(ops[1:2]); err != nil {
		t.Error(err)
	}
	if !strings.Contains(ns.list(t), "10.7.7.7") {
		t.Error("the member is not there")
	}
}

// changesOf returns members to add or delete.
func changesOf(members ...string) []kernel.Change {
	var out []kernel.Change
	for _, m := range membersOf(members...) {
		out = append(out, kernel.Change{Member: m})
	}
	return out
}

// TestRefusedMemberIsNamed: the error names the refused one of many members in a message, for every kind of
// set.
func TestRefusedMemberIsNamed(t *testing.T) {
	_, table := connected(t)
	many := func(name string, list ...model.Member) kernel.Op {
		o := table.sets[name].op(kernel.DeleteMembers)
		for _, m := range list {
			o.Changes = append(o.Changes, kernel.Change{Member: m})
		}
		return o
	}
	for _, c := range []struct {
		o    kernel.Op
		want string
	}{
		{many("aweb-4", membersOf("10.0.0.1", "10.9.9.9", "10.0.0.2")...), "member 10.9.9.9"},
		{many("aweb-4", membersOf("10.9.9.9", "10.0.0.1", "10.0.0.2")...), "member 10.9.9.9"},
		{many("aweb-6", membersOf("fd00::1", "fd00::99")...), "member fd00::99"},
		{many("nblock-4", membersOf("10.1.0.0/16", "10.2.0.0/15", "10.64.0.0/16", "192.0.2.7/32")...), "member 10.64.0.0/16"},
		{many("phttp-4", triple("10.0.0.1", model.TCP, 80), triple("10.0.0.2", model.TCP, 5000)), "member 10.0.0.2,tcp/5000"},
		{many("to-pods-4", membersOf("10.0.0.1", "10.0.0.2", "10.0.0.77")...), "member 10.0.0.77"},
	} {
		var refused *kernel.RefusedError
		if err := table.conn.Commit([]kernel.Op{c.o}); !errors.As(err, &refused) || len(refused.Objects) != 1 || refused.Objects[0].Rule != c.want {
			t.Errorf("error %v, want one of %s", err, c.want)
		}
	}
}

// An error that is found at the commit, or concerns all of the transaction, names
// no message.
func TestCommitErrorNamesNoMessage(t *testing.T) {
	ns, table := connected(t)
	before := ns.list(t, "-a")
	// A loop of chains that nothing leads to but a new entry of a verdict map is
	// found when the map's message is seen or at the commit, by the kernel's age.
	for _, name := range []string{"loop-a", "loop-b"} {
		table.UpdateChain(tables.Chain{Name: name})
	}
	table.UpdateChain(tables.Chain{Name: "loop-a", Rules: []tables.Rule{rule(tables.Jump{Chain: "loop-b"}, "")}})
	table.UpdateChain(tables.Chain{Name: "loop-b", Rules: []tables.Rule{rule(tables.Jump{Chain: "loop-a"}, "")}})
	table.SetVerdict("to-pods-4", addr("10.0.0.9"), tables.Goto{Chain: "loop-a"})
	err := table.program(t.Context(), new(tables.Result))
	var refused *kernel.RefusedError
	if !errors.As(err, &refused) {
		t.Fatalf("error %v of type %T", err, err)
	}
	t.Log(err)
	if after := ns.list(t, "-a"); after != before {
		t.Errorf("the kernel was changed:\n%s", after)
	}
}

// TestLostAnswerIsNoSuccess: after a lost answer the outcome is unknown, and the next Apply reads the table.
func TestLostAnswerIsNoSuccess(t *testing.T) {
	ns, table := connected(t)
	// A buffer that is smaller than the echo of the load.
	if err := table.disconnect(); err != nil {
		t.Fatal(err)
	}
	table.answerBuffer = 1
	load(table, 20)
	_, err := table.Apply(t.Context())
	if !errors.Is(err, unix.ENOBUFS) {
		t.Fatalf("error %v", err)
	}
	// It was committed, in truth.
	if !strings.Contains(ns.list(t), "pin-ns/policy-19") {
		t.Error("nothing was committed")
	}
	if r := apply(t, table); !r.FullRead || r.Messages != 0 {
		t.Errorf("after the loss: %+v", r)
	}
}

// TestResultCountsWhatIsHeld: the result counts the kernel's objects after any change.
func TestResultCountsWhatIsHeld(t *testing.T) {
	_, table := connected(t)
	check := func(when string) {
		t.Helper()
		r := apply(t, table)
		state, err := table.conn.Read(DefaultTable)
		if err != nil {
			t.Fatal(err)
		}
		rules, elements := 0, 0
		for _, c := range state.Chains {
			rules += len(c.Rules)
		}
		for _, s := range state.Sets {
			elements += len(s.Members)
		}
		if r.Rules != rules || r.Elements != elements {
			t.Errorf("%s: %d rules and %d elements, want %d and %d", when, r.Rules, r.Elements, rules, elements)
		}
	}
	check("at first")
	load(table, 10)
	check("more")
	table.AddMembers("aweb-4", membersOf("10.0.0.3"))
	table.RemoveVerdict("to-pods-4", addr("10.0.0.3"))
	table.UpdateChain(tables.Chain{Name: "to-pods"})
	check("changed")
	table.Invalidate()
	check("read again")
	table.RemoveSet("aweb-4")
	table.CreateSet(ipsets.Set{Name: "aweb-4", Kind: model.Networks, Family: model.IPv4})
	check("rebuilt")
	table.UpdateChain(tables.Chain{Name: "forward", Hook: forwardHook})
	table.RemoveSet("phttp-4")
	table.UpdateChain(tables.Chain{Name: "pin-x/base-1"})
	check("less")
}
