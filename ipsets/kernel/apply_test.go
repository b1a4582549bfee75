package kernel

import (
	"context"
	"errors"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/felixlike/felixlike/ipsets"
	"github.com/felixlike/felixlike/model"
)

func TestAllKindsAndFamilies(t *testing.T) {
	ns := newNamespace(t)
	s := ns.open(t)
	loadExample(s)
	r := apply(t, s)
	if !r.FullRead || r.ElementsAdded != 14 || r.Elements != 14 {
		t.Errorf("first apply: %+v", r)
	}
	ns.want(t, savedExample)
	wantSilent(t, s)
	if r := apply(t, s); r.FullRead {
		t.Error("the steady state reads")
	}

	restarted := ns.open(t)
	loadExample(restarted)
	wantSilent(t, restarted)

	restarted.RemoveMembers("aweb-4", members("10.0.0.1", "10.9.9.9"))
	restarted.AddMembers("aweb-4", members("10.0.0.7", "10.0.0.2"))
	restarted.RemoveSet("phttp-6")
	restarted.RemoveSet("unknown")
	r = apply(t, restarted)
	if r.ElementsAdded != 1 || r.ElementsDeleted != 1 || r.Messages != 3 || r.FullRead {
		t.Errorf("one in, one out, a set less: %+v", r)
	}
	ns.want(t, saved(addresses4, "10.0.0.2", "10.0.0.7", "255.255.255.255"), savedExample[4:len(savedExample)-2])

	if err := restarted.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	ns.want(t)
	if r := apply(t, restarted); len(r.Repaired) != 0 {
		t.Errorf("what was removed counts as repaired: %+v", r)
	}
	ns.want(t, saved(addresses4, "10.0.0.2", "10.0.0.7", "255.255.255.255"), savedExample[4:len(savedExample)-2])
}

// A set goes in the second phase only, so that rules can name it until then,
// and one that comes back before is kept.
func TestDeletionIsAPhaseOfItsOwn(t *testing.T) {
	ns := newNamespace(t)
	s := ns.open(t)
	s.CreateSet(addresses4)
	s.AddMembers(addresses4.Name, members("10.0.0.1"))
	apply(t, s)
	s.RemoveSet(addresses4.Name)
	if _, err := s.ApplyUpdates(t.Context()); err != nil {
		t.Fatal(err)
	}
	ns.want(t, saved(addresses4, "10.0.0.1"))
	s.CreateSet(addresses4)
	s.AddMembers(addresses4.Name, members("10.0.0.1", "10.0.0.2"))
	if r := apply(t, s); r.ElementsAdded != 1 {
		t.Errorf("the set came back with one member more: %+v", r)
	}
	ns.want(t, saved(addresses4, "10.0.0.1", "10.0.0.2"))
	s.RemoveSet(addresses4.Name)
	apply(t, s)
	ns.want(t)
	s.RemoveSet(addresses4.Name)
	wantSilent(t, s)
}

// A prefix of length zero is two halves in the kernel, which can be members
// themselves.
func TestAllAddresses(t *testing.T) {
	ns := newNamespace(t)
	s := ns.open(t)
	s.CreateSet(networks4)
	s.CreateSet(networks6)
	s.AddMembers("nblock-4", members("0.0.0.0/0"))
	s.AddMembers("nblock-6", members("::/0", "8000::/1"))
	apply(t, s)
	all := saved(networks4, "0.0.0.0/1", "128.0.0.0/1")
	ns.want(t, all, saved(networks6, "::/1", "8000::/1"))
	restarted := ns.open(t)
	restarted.CreateSet(networks4)
	restarted.CreateSet(networks6)
	restarted.AddMembers("nblock-4", members("0.0.0.0/0"))
	restarted.AddMembers("nblock-6", members("::/0", "8000::/1"))
	wantSilent(t, restarted)
	restarted.RemoveMembers("nblock-6", members("::/0"))
	apply(t, restarted)
	ns.want(t, all, saved(networks6, "8000::/1"))
	restarted.AddMembers("nblock-6", members("::/0"))
	restarted.RemoveMembers("nblock-6", members("8000::/1"))
	restarted.RemoveMembers("nblock-4", members("0.0.0.0/0"))
	apply(t, restarted)
	ns.want(t, saved(networks4), saved(networks6, "::/1", "8000::/1"))
}

// A set without rules that is wanted with another type is replaced at once.
func TestTypeAndFamilyChange(t *testing.T) {
	ns := newNamespace(t)
	s := ns.open(t)
	for _, c := range []struct {
		kind   model.GroupKind
		family model.Family
		member model.Member
		saved  string
	}{
		{model.Addresses, model.IPv4, members("10.0.0.1")[0], "10.0.0.1"},
		{model.Networks, model.IPv4, members("10.0.0.0/8")[0], "10.0.0.0/8"},
		{model.Networks, model.IPv6, members("fd00::/8")[0], "fd00::/8"},
		{model.AddressPorts, model.IPv4, triple("10.0.0.1", model.TCP, 80), "10.0.0.1,tcp:80"},
	} {
		set := ipsets.Set{Name: "changing", Kind: c.kind, Family: c.family}
		s.CreateSet(set)
		s.AddMembers(set.Name, []model.Member{c.member})
		apply(t, s)
		ns.want(t, saved(set, c.saved))
		wantSilent(t, s)
	}
	s.RemoveSet("changing")
	s.CreateSet(ipsets.Set{Name: "changing", Kind: model.Addresses, Family: model.IPv4})
	apply(t, s)
	ns.want(t, saved(ipsets.Set{Name: "changing", Kind: model.Addresses, Family: model.IPv4}))
}

// A set that rules name is swapped as a whole if it is too small, or has options that
// ours never have.
func TestSwapOfSetInUse(t *testing.T) {
	for _, c := range []struct{ name, script, repaired string }{
		{"too small", "create flx-aweb-4 hash:ip maxelem 2\nadd flx-aweb-4 10.0.0.1\nadd flx-aweb-4 10.9.9.9\n", ""},
		{"timeout", "create flx-aweb-4 hash:ip timeout 600\nadd flx-aweb-4 10.0.0.1\n", ""},
		{"counters", "create flx-aweb-4 hash:ip counters\n", ""},
		{"netmask", "create flx-aweb-4 hash:ip netmask 24\nadd flx-aweb-4 10.0.0.0\n", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			ns := newNamespace(t, "iptables-nft")
			ns.feed(t, c.script, "ipset", "restore")
			ns.run(t, "iptables-nft", "-A", "FORWARD", "-m", "set", "--match-set", "flx-aweb-4", "src", "-j", "ACCEPT")
			s := ns.open(t)
			s.CreateSet(addresses4)
			s.AddMembers("aweb-4", members("10.0.0.1", "10.0.0.2", "10.0.0.3"))
			apply(t, s)
			ns.want(t, saved(addresses4, "10.0.0.1", "10.0.0.2", "10.0.0.3"))
			if references := ns.run(t, "ipset", "list", "flx-aweb-4", "-t"); !strings.Contains(references, "References: 1") {
				t.Errorf("the rule has lost its set:\n%s", references)
			}
			wantSilent(t, s)
			restarted := ns.open(t)
			restarted.CreateSet(addresses4)
			restarted.AddMembers("aweb-4", members("10.0.0.1", "10.0.0.2", "10.0.0.3"))
			wantSilent(t, restarted)
		})
	}
}

// Exceptions in a set of networks that are not wanted go.
func TestForeignExceptionsAreRemoved(t *testing.T) {
	ns := newNamespace(t)
	s := ns.open(t)
	s.CreateSet(networks4)
	s.AddMembers("nblock-4", members("10.0.0.0/8"))
	apply(t, s)
	ns.feed(t, "destroy flx-nblock-4\ncreate flx-nblock-4 hash:net\nadd flx-nblock-4 10.0.0.0/8\n", "ipset", "restore")
	s.Invalidate()
	wantSilent(t, s) // of another revision, but the same
	ns.run(t, "ipset", "add", "flx-nblock-4", "10.1.0.0/16", "nomatch")
	s.Invalidate()
	r := apply(t, s)
	if len(r.Repaired) != 1 || r.Repaired[0].What != "1 foreign member" {
		t.Errorf("repaired: %+v", r.Repaired)
	}
	ns.want(t, saved(networks4, "10.0.0.0/8"))
}

// The longest prefix decides, also where it was no exception before; a restart
// writes nothing.
func TestExceptions(t *testing.T) {
	ns := newNamespace(t)
	s := ns.open(t)
	excepted := func(list ...string) []model.Member {
		all := members(list...)
		for i := range all {
			all[i].Except = true
		}
		return all
	}
	has := func(want bool, addresses ...string) {
		t.Helper()
		for _, a := range addresses {
			set := "flx-nblock-4"
			if strings.Contains(a, ":") {
				set = "flx-nblock-6"
			}
			if err := exec.Command("ip", "netns", "exec", ns.name, "ipset", "test", set, a).Run(); (err == nil) != want {
				t.Errorf("%s: %v, want %v", a, err == nil, want)
			}
		}
	}
	s.CreateSet(networks4)
	s.CreateSet(networks6)
	s.AddMembers("nblock-4", append(members("10.0.0.0/8", "10.1.2.0/24"), excepted("10.1.0.0/16", "10.1.2.3/32")...))
	s.AddMembers("nblock-6", append(members("::/1", "8000::/1"), excepted("fd00::/16")...))
	apply(t, s)
	ns.want(t, saved(networks4, "10.0.0.0/8", "10.1.0.0/16 nomatch", "10.1.2.0/24", "10.1.2.3 nomatch"),
		saved(networks6, "8000::/1", "::/1", "fd00::/16 nomatch"))
	has(true, "10.2.0.1", "10.1.2.4", "fd01::1", "::1")
	has(false, "10.1.0.1", "10.1.2.3", "11.0.0.1", "fd00::1")
	wantSilent(t, s)
	restarted := ns.open(t)
	restarted.CreateSet(networks4)
	restarted.CreateSet(networks6)
	restarted.AddMembers("nblock-4", append(members("10.0.0.0/8", "10.1.2.0/24"), excepted("10.1.0.0/16", "10.1.2.3/32")...))
	restarted.AddMembers("nblock-6", append(members("::/1", "8000::/1"), excepted("fd00::/16")...))
	wantSilent(t, restarted)
	restarted.RemoveMembers("nblock-4", append(members("10.1.2.0/24"), excepted("10.1.0.0/16")...))
	restarted.AddMembers("nblock-4", append(members("10.1.0.0/16"), excepted("10.1.2.0/24")...))
	apply(t, restarted)
	ns.want(t, saved(networks4, "10.0.0.0/8", "10.1.0.0/16", "10.1.2.0/24 nomatch", "10.1.2.3 nomatch"),
		saved(networks6, "8000::/1", "::/1", "fd00::/16 nomatch"))
	has(true, "10.1.0.1")
	has(false, "10.1.2.4")
	wantSilent(t, restarted)
}

// A set grows beyond its capacity by a swap, while rules name it.
func TestGrowth(t *testing.T) {
	ns := newNamespace(t, "iptables-nft")
	s := ns.open(t)
	s.capacity = 4
	s.CreateSet(addresses4)
	apply(t, s)
	ns.run(t, "iptables-nft", "-A", "FORWARD", "-m", "set", "--match-set", "flx-aweb-4", "src", "-j", "ACCEPT")
	var want []string
	for i := range 100 {
		m := nth(i + 1)
		s.AddMembers("aweb-4", []model.Member{m})
		want = append(want, m.String())
		apply(t, s)
	}
	ns.want(t, saved(addresses4, want...))
	wantSilent(t, s)
}

// Apply repairs foreign changes of our sets after Invalidate, or when it notices them.
// It leaves the sets of other programs alone.
func TestForeignChanges(t *testing.T) {
	ns := newNamespace(t)
	ns.feed(t, "create flannel hash:ip\nadd flannel 10.0.0.1\ncreate flx hash:net\ncreate cali40s hash:net family inet6\n", "ipset", "restore")
	others := ns.save(t)
	s := ns.open(t)
	loadExample(s)
	apply(t, s)
	for _, c := range []struct {
		name, script string
		want         map[string]string
	}{
		{"nothing", "", nil},
		{"members", "del flx-aweb-4 10.0.0.1\nadd flx-aweb-4 10.6.6.6\nadd flx-nblock-6 fd01::/16\n", map[string]string{"aweb-4": "1 member missing, 1 foreign member", "nblock-6": "1 foreign member"}},
		{"flush", "flush flx-nblock-4\n", map[string]string{"nblock-4": "4 members missing"}},
		{"destroyed", "destroy flx-phttp-4\n", map[string]string{"phttp-4": "the set was missing"}},
		{"all flushed", "flush\nadd flannel 10.0.0.1\n", map[string]string{
			"aweb-4": "3 members missing", "aweb-6": "1 member missing", "nblock-4": "4 members missing",
			"nblock-6": "3 members missing", "phttp-4": "2 members missing", "phttp-6": "1 member missing",
		}},
		{"another type", "destroy flx-phttp-6\ncreate flx-phttp-6 hash:net family inet6\n", map[string]string{"phttp-6": "the set was of another type"}},
		{"another family", "destroy flx-aweb-6\ncreate flx-aweb-6 hash:ip\n", map[string]string{"aweb-6": "the set was of another type"}},
		{"a set that is not wanted", "create flx-more hash:net\n", nil},
		{"swapped", "create flx-more hash:ip\nadd flx-more 10.6.6.6\nswap flx-more flx-aweb-4\n", map[string]string{"aweb-4": "3 members missing, 1 foreign member"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			ns.feed(t, c.script, "ipset", "restore")
			s.Invalidate()
			r := apply(t, s)
			got := map[string]string{}
			for _, repair := range r.Repaired {
				got[repair.Name] = repair.What
			}
			if c.want == nil {
				c.want = map[string]string{}
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Errorf("repaired (-want +got):\n%s", d)
			}
			ns.want(t, savedExample, others)
			wantSilent(t, s)
		})
	}
	t.Run("noticed without Invalidate", func(t *testing.T) {
		ns.run(t, "ipset", "del", "flx-aweb-4", "10.0.0.1")
		ns.run(t, "ipset", "add", "flx-aweb-4", "10.0.0.9")
		ns.run(t, "ipset", "destroy", "flx-aweb-6")
		s.RemoveMembers("aweb-4", members("10.0.0.1"))
		s.AddMembers("aweb-4", members("10.0.0.9"))
		s.AddMembers("aweb-6", members("fd00::2"))
		r := apply(t, s)
		if len(r.Repaired) != 1 || r.Repaired[0].Name != "aweb-6" || len(r.Refused) != 0 || r.FullRead {
			t.Errorf("%+v", r)
		}
		ns.want(t, saved(addresses4, "10.0.0.2", "10.0.0.9", "255.255.255.255"), saved(addresses6, "fd00::1", "fd00::2"), savedExample[6:], others)
	})
	if err := s.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	ns.want(t, others)
}

func TestContextEnds(t *testing.T) {
	ns := newNamespace(t)
	s := ns.open(t)
	loadExample(s)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.ApplyUpdates(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("updates: %v", err)
	}
	if _, err := s.ApplyDeletions(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("deletions: %v", err)
	}
	if err := s.Remove(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("remove: %v", err)
	}
	apply(t, s)
	ns.want(t, savedExample)
	s.AddMembers("aweb-4", members("10.0.0.9"))
	if _, err := s.ApplyUpdates(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("updates: %v", err)
	}
	if r := apply(t, s); !r.FullRead || r.ElementsAdded != 1 || len(r.Repaired) != 0 {
		t.Errorf("after a failure: %+v", r)
	}
	wantSilent(t, s)
}
