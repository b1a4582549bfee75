package kernel

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/felixlike/felixlike/ipsets"
	"github.com/felixlike/felixlike/model"
)

// loadMembers wants n members in a set, n+1 being none of them.
func loadMembers(s *Sets, set ipsets.Set, n int) {
	s.CreateSet(set)
	all := make([]model.Member, n)
	for i := range all {
		all[i] = nth(i + 1)
	}
	s.AddMembers(set.Name, all)
}

func TestTwoHundredThousandMembers(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	ns := newNamespace(t)
	s := ns.open(t)
	const n = 200_000
	loadMembers(s, addresses4, n)
	r := apply(t, s)
	t.Logf("first load: %v, %d messages", r.Duration, r.Messages)
	if list := ns.run(t, "ipset", "list", "-t", "flx-aweb-4"); !strings.Contains(list, fmt.Sprintf("Number of entries: %d\n", n)) {
		t.Errorf("the kernel has not all members:\n%s", list)
	}
	wantSilent(t, s)
	restarted := ns.open(t)
	start := time.Now()
	loadMembers(restarted, addresses4, n)
	setters := time.Since(start)
	r = apply(t, restarted)
	t.Logf("restart: setters %v, apply %v, %d messages", setters, r.Duration, r.Messages)
	if r.Messages != 0 {
		t.Error("the restart has written")
	}
	restarted.AddMembers("aweb-4", []model.Member{nth(n + 1)})
	r = apply(t, restarted)
	t.Logf("one member more: %v", r.Duration)
	if r.Messages != 1 {
		t.Errorf("one member more: %+v", r)
	}
	restarted.capacity = n + 1
	restarted.observed["flx-aweb-4"] = observedSet{kind: model.Addresses, family: model.IPv4, capacity: n + 1, plain: true}
	restarted.AddMembers("aweb-4", []model.Member{nth(n + 2)})
	r = apply(t, restarted)
	t.Logf("grown by a swap: %v", r.Duration)
	restarted.RemoveSet("aweb-4")
	start = time.Now()
	apply(t, restarted)
	t.Logf("removed: %v", time.Since(start))
	ns.want(t)
}

func TestThousandsOfSets(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	ns := newNamespace(t)
	s := ns.open(t)
	const n = 1200
	load := func(s *Sets) {
		for i := range n {
			set := ipsets.Set{Name: fmt.Sprintf("a%d-4", i), Kind: model.Addresses, Family: model.IPv4}
			s.CreateSet(set)
			for k := range 20 {
				s.AddMembers(set.Name, []model.Member{nth(i*20 + k + 1)})
			}
		}
	}
	load(s)
	r := apply(t, s)
	t.Logf("first load: %v, %d messages", r.Duration, r.Messages)
	if got := strings.Count(ns.run(t, "ipset", "save"), "\n"); got != n*21 {
		t.Errorf("%d lines, want %d", got, n*21)
	}
	restarted := ns.open(t)
	load(restarted)
	r = apply(t, restarted)
	t.Logf("restart: %v", r.Duration)
	if r.Messages != 0 {
		t.Error("the restart has written")
	}
	empty := ns.open(t)
	start := time.Now()
	r = apply(t, empty)
	t.Logf("all removed: %v", time.Since(start))
	if r.Messages != n {
		t.Errorf("%+v", r)
	}
	ns.want(t)
}

// BenchmarkOneMember puts one member in and out again.
func BenchmarkOneMember(b *testing.B) {
	for _, n := range []int{10, 10_000, 200_000} {
		b.Run(fmt.Sprintf("members=%d", n), func(b *testing.B) {
			s := newNamespace(b).open(b)
			loadMembers(s, addresses4, n)
			apply(b, s)
			one, i := []model.Member{nth(n + 1)}, 0
			for b.Loop() {
				if i++; i%2 == 1 {
					s.AddMembers("aweb-4", one)
				} else {
					s.RemoveMembers("aweb-4", one)
				}
				if r := apply(b, s); r.Messages != 1 {
					b.Fatalf("%+v", r)
				}
			}
		})
	}
}

// BenchmarkLoad loads all members of one set.
func BenchmarkLoad(b *testing.B) {
	for _, n := range []int{10_000, 200_000} {
		b.Run(fmt.Sprintf("members=%d", n), func(b *testing.B) {
			s := newNamespace(b).open(b)
			loadMembers(s, addresses4, n)
			for b.Loop() {
				if err := s.Remove(b.Context()); err != nil {
					b.Fatal(err)
				}
				if r := apply(b, s); r.ElementsAdded != n {
					b.Fatalf("%+v", r)
				}
			}
			b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "members/s")
		})
	}
}

// BenchmarkRestart reads all members of one set and finds nothing to do.
func BenchmarkRestart(b *testing.B) {
	for _, n := range []int{10_000, 200_000} {
		b.Run(fmt.Sprintf("members=%d", n), func(b *testing.B) {
			s := newNamespace(b).open(b)
			loadMembers(s, addresses4, n)
			apply(b, s)
			for b.Loop() {
				s.Invalidate()
				if r := apply(b, s); r.Messages != 0 {
					b.Fatalf("%+v", r)
				}
			}
		})
	}
}
