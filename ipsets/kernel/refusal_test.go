package kernel

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/felixlike/felixlike/internal/isolate"
	"github.com/felixlike/felixlike/ipsets"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/test/eventually"
)

// The kernel swaps only sets of one type: while a rule holds a set of another,
// it is quarantined. When the rule is gone (its chain is closed), it is replaced.
func TestTypeChangeOfSetInUse(t *testing.T) {
	for _, variant := range []string{"legacy", "nft"} {
		t.Run(variant, func(t *testing.T) {
			ns := newNamespace(t, "iptables-"+variant)
			ns.feed(t, "create flx-aweb-4 hash:net\n", "ipset", "restore")
			rule := []string{"FORWARD", "-m", "set", "--match-set", "flx-aweb-4", "src", "-j", "ACCEPT"}
			ns.run(t, append([]string{"iptables-" + variant, "-A"}, rule...)...)
			s := ns.open(t)
			clock := time.Now()
			s.now = func() time.Time { return clock }
			s.CreateSet(addresses4)
			s.CreateSet(networks4)
			s.AddMembers("aweb-4", members("10.0.0.1"))
			r := apply(t, s)
			want := []tables.Refusal{{
				Object: "set", Name: "aweb-4", Since: clock, NextTry: clock.Add(time.Second), Attempts: 1,
				Reason: "the kernel has a set of another type under its name: the set is in use (ipset error 4100)",
			}}
			if d := cmp.Diff(want, r.Refused); d != "" {
				t.Errorf("refused (-want +got):\n%s", d)
			}
			foreign := []string{"create flx-aweb-4 hash:net family inet"}
			ns.want(t, foreign, saved(networks4))
			if r := apply(t, s); r.Messages != 0 || len(r.Refused) != 1 {
				t.Errorf("tried again before its time: %+v", r)
			}
			ns.run(t, append([]string{"iptables-" + variant, "-D"}, rule...)...)
			clock = clock.Add(time.Second)
			eventually.True(t, "the kernel takes all sets", func() bool {
				clock = clock.Add(isolate.LongestWait)
				return len(apply(t, s).Refused) == 0
			})
			ns.want(t, saved(addresses4, "10.0.0.1"), saved(networks4))
			wantSilent(t, s)
		})
	}
}

// The driver quarantines the sets that it cannot program, by name, and programs the
// others. It tries a quarantined set again when the set changes, or later.
func TestRefusals(t *testing.T) {
	ns := newNamespace(t)
	s := ns.open(t)
	clock := time.Now()
	s.now = func() time.Time { return clock }
	loadExample(s)
	s.CreateSet(ipsets.Set{Name: "odd", Kind: 9, Family: model.IPv4})
	// The kernel's null element, in the middle of many.
	var many []model.Member
	for i := range 3000 {
		many = append(many, nth(i+1))
	}
	s.CreateSet(ipsets.Set{Name: "anull-4", Kind: model.Addresses, Family: model.IPv4, Group: "anull"})
	s.AddMembers("anull-4", slices.Concat(many, members("0.0.0.0")))
	s.AddMembers("nblock-4", members("fd00::/8"))
	s.AddMembers("aweb-6", members("fd00::/8"))
	s.AddMembers("phttp-4", members("10.0.0.1"))
	s.AddMembers("unwanted", members("10.0.0.1"))
	r := apply(t, s)
	got := map[string]string{}
	for _, refusal := range r.Refused {
		got[refusal.Name] = refusal.Rule + ": " + refusal.Reason
		if got, want := refusal.Origin == tables.Origin(tables.OfGroup{ID: "anull"}), refusal.Name == "anull-4"; got != want {
			t.Errorf("%s: origin %v", refusal.Name, refusal.Origin)
		}
		if refusal.Attempts != 1 || !refusal.Since.Equal(clock) || !refusal.NextTry.Equal(clock.Add(time.Second)) {
			t.Errorf("%+v", refusal)
		}
	}
	want := map[string]string{
		"odd":      ": no such kind: kind(9)",
		"anull-4":  "0.0.0.0: add members: the null element cannot be stored (ipset error 4353)",
		"nblock-4": "fd00::/8: is not of IPv4",
		"aweb-6":   "fd00::/8: is not a single address",
		"phttp-4":  "10.0.0.1: is no member of a set of address-ports",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("refused (-want +got):\n%s", d)
	}
	save := strings.Join(ns.save(t), "\n")
	for _, line := range slices.Concat(saved(addresses4, "10.0.0.1"), saved(networks6, "ff00::/8"), saved(ports6, "fd00::1,udp:53")) {
		if !strings.Contains(save, line) {
			t.Errorf("no %q", line)
		}
	}
	if r := apply(t, s); r.Messages != 0 || len(r.Refused) != len(want) {
		t.Errorf("tried again before its time: %+v", r)
	}
	clock = clock.Add(time.Second)
	if r := apply(t, s); len(r.Refused) != len(want) || r.Refused[0].Attempts != 2 || !r.Refused[0].NextTry.Equal(clock.Add(2*time.Second)) {
		t.Errorf("second try: %+v", r.Refused)
	}
	// A corrected set is programmed at once.
	s.RemoveMembers("nblock-4", members("fd00::/8"))
	s.RemoveMembers("aweb-6", members("fd00::/8"))
	s.RemoveMembers("phttp-4", members("10.0.0.1"))
	s.RemoveMembers("anull-4", slices.Concat(many, members("0.0.0.0")))
	s.RemoveSet("odd")
	if r := apply(t, s); len(r.Refused) != 0 || len(r.Repaired) != 0 {
		t.Errorf("%+v", r)
	}
	ns.want(t, savedExample, saved(ipsets.Set{Name: "anull-4", Kind: model.Addresses, Family: model.IPv4}))
	wantSilent(t, s)
}

// A set that something still uses stays, is no failure, and goes later.
func TestSetInUseIsDestroyedLater(t *testing.T) {
	for _, variant := range []string{"legacy", "nft"} {
		t.Run(variant, func(t *testing.T) {
			ns := newNamespace(t, "iptables-"+variant)
			s := ns.open(t)
			s.CreateSet(addresses4)
			s.CreateSet(networks4)
			apply(t, s)
			rule := []string{"FORWARD", "-m", "set", "--match-set", "flx-aweb-4", "src", "-j", "ACCEPT"}
			ns.run(t, append([]string{"iptables-" + variant, "-A"}, rule...)...)
			s.RemoveSet("aweb-4")
			s.RemoveSet("nblock-4")
			apply(t, s)
			ns.want(t, saved(addresses4))
			if d := cmp.Diff([]string{"flx-aweb-4"}, s.Leftovers()); d != "" {
				t.Error(d)
			}
			if err := s.Remove(t.Context()); err == nil || !strings.Contains(err.Error(), "still in use: flx-aweb-4") {
				t.Errorf("remove: %v", err)
			}
			ns.run(t, append([]string{"iptables-" + variant, "-D"}, rule...)...)
			// nf_tables lets go of the set a little later, within the driver's patience.
			apply(t, s)
			ns.want(t)
			if left := s.Leftovers(); len(left) != 0 {
				t.Errorf("left: %v", left)
			}
		})
	}
}
