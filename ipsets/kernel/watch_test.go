package kernel

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/felixlike/felixlike/internal/nfnetlink"
	"github.com/felixlike/felixlike/ipsets"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/stopwatch"
)

// listening runs the Watch of sets that were applied until the test ends, and
// returns its calls. The watch listens when it returns.
func listening(t testing.TB, s *Sets) chan struct{} {
	t.Helper()
	calls := make(chan struct{}, 16)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	applyUpdates(t, s)
	go func() { done <- s.Watch(ctx, func() { calls <- struct{}{} }) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("watch ended: %v", err)
		}
	})
	called(t, calls)
	// It had missed nothing, so looks pause.
	applyUpdates(t, s)
	s.watcher.mu.Lock()
	s.watcher.next = time.Time{}
	s.watcher.mu.Unlock()
	return calls
}

func called(t testing.TB, calls chan struct{}) {
	t.Helper()
	select {
	case <-calls:
	case <-time.After(10 * time.Second):
		t.Fatal("the watch called nothing")
	}
}

func applyUpdates(t testing.TB, s *Sets) (full bool, repaired []string) {
	t.Helper()
	r, err := s.ApplyUpdates(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range r.Repaired {
		repaired = append(repaired, x.Name+": "+x.What)
	}
	return r.FullRead, repaired
}

// The watch notices foreign changes within a second, and the next apply repairs them.
func TestWatch(t *testing.T) {
	for _, c := range []struct {
		name    string
		command []string
		want    string
	}{
		{"all flushed", []string{"ipset", "flush"}, "a: 3 members missing"},
		{"destroyed", []string{"ipset", "destroy", "flx-a"}, "a: the set was missing"},
		{"a member less", []string{"ipset", "del", "flx-a", "10.0.0.0/8"}, "a: 1 member missing"},
		{"a member more", []string{"ipset", "add", "flx-a", "11.0.0.0/8"}, "a: 1 foreign member"},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := newNamespace(t)
			s := n.open(t)
			s.CreateSet(ipsets.Set{Name: "a", Kind: model.Networks, Family: model.IPv4})
			s.CreateSet(ipsets.Set{Name: "b", Kind: model.Addresses, Family: model.IPv6})
			// A network of all addresses is two elements.
			s.AddMembers("a", []model.Member{{Prefix: netip.MustParsePrefix("10.0.0.0/8")}, everyAddress(model.IPv4)})
			calls := listening(t, s)
			before := n.save(t)
			watch := stopwatch.Start(t)
			n.run(t, c.command...)
			called(t, calls)
			took := watch.Lap(t)
			t.Logf("called after %s", took)
			if took.Net() > time.Second {
				t.Errorf("called after %s", took)
			}
			if _, repaired := applyUpdates(t, s); !slices.Contains(repaired, c.want) {
				t.Errorf("repaired %q, want %q", repaired, c.want)
			}
			if after := n.save(t); !slices.Equal(before, after) {
				t.Errorf("after the repair %q, before %q", after, before)
			}
		})
	}
}

// The watch ignores our own changes.
func TestOwnChangesAreNotHeard(t *testing.T) {
	n := newNamespace(t)
	s := n.open(t)
	s.CreateSet(ipsets.Set{Name: "a", Kind: model.Addresses, Family: model.IPv4})
	calls := listening(t, s)
	for i := range 20 {
		s.AddMembers("a", []model.Member{member(i)})
		s.CreateSet(ipsets.Set{Name: fmt.Sprint("b", i), Kind: model.Addresses, Family: model.IPv4})
		s.RemoveSet(fmt.Sprint("b", i-1))
		if full, _ := applyUpdates(t, s); full {
			t.Error("a full read")
		}
		if _, err := s.ApplyDeletions(t.Context()); err != nil {
			t.Fatal(err)
		}
		select {
		case <-calls:
			t.Error("the watch reported it")
		case <-time.After(50 * time.Millisecond):
		}
	}
	n.run(t, "ipset", "flush", "flx-a")
	called(t, calls)
	if _, repaired := applyUpdates(t, s); !slices.Equal(repaired, []string{"a: 20 members missing"}) {
		t.Errorf("repaired %q", repaired)
	}
}

func member(i int) model.Member {
	return model.Member{Prefix: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 3, byte(i >> 8), byte(i)}), 32)}
}

// TestPauseFollowsLooks: looks take a third of a percent of a core at most, and one that
// had to wait for the processor does not end the notifications.
func TestPauseFollowsLooks(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct{ took, last, want time.Duration }{
		{ms, ms, 500 * ms}, {3 * ms, 3 * ms, 900 * ms}, {40 * ms, ms, 500 * ms}, {40 * ms, 40 * ms, 5 * time.Second},
	} {
		if got := pauseAfter(c.took, c.last); got != c.want {
			t.Errorf("after looks of %s and %s: %s, want %s", c.last, c.took, got, c.want)
		}
	}
}

// BenchmarkLook is a look at 1,000 sets of 20 members.
func BenchmarkLook(b *testing.B) {
	n := newNamespace(b)
	s := n.open(b)
	for i := range 1000 {
		name := fmt.Sprint("a", i)
		s.CreateSet(ipsets.Set{Name: name, Kind: model.Addresses, Family: model.IPv4})
		for j := range 20 {
			s.AddMembers(name, []model.Member{member(j)})
		}
	}
	applyUpdates(b, s)
	conn, err := nfnetlink.Dial(s.options.NetNS)
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	for b.Loop() {
		if err := s.watcher.look(conn); err != nil {
			b.Fatal(err)
		}
	}
}
