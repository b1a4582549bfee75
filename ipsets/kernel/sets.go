package kernel

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/felixlike/felixlike/internal/isolate"
	"github.com/felixlike/felixlike/internal/nfnetlink"
	"github.com/felixlike/felixlike/ipsets"
	"github.com/felixlike/felixlike/model"
)

// Options configure Sets. The zero value is usable.
type Options struct {
	// NetNS is the descriptor of the network namespace to program; the
	// process's own if zero. It must stay open as long as the Sets are used.
	NetNS int
}

// Sets are the desired sets, with their known state in the kernel. They are used from
// one goroutine.
type Sets struct {
	options Options
	conn    *nfnetlink.Conn
	// capacity is minCapacity, and now time.Now, but in tests.
	capacity int
	now      func() time.Time

	// guest says that another driver keeps the sets, see KeptByOthers.
	guest bool
	// sets are the desired sets, and former sets with elements that are still known, by
	// name.
	sets map[string]*set
	// dirty are the names of sets to compare with the kernel.
	dirty map[string]bool

	// known says that observed, obsolete and the sets' elements match the kernel.
	known bool
	// observed are the kernel's sets with our prefix, by their name there.
	observed map[string]observedSet
	// obsolete are the observed sets that are not desired. A set that was in use has the
	// time of the next try to destroy it.
	obsolete map[string]*isolate.Retry
	watcher  watcher
}

// observedSet is a set as the kernel has it.
type observedSet struct {
	kind     model.GroupKind // zero for types that ours never are
	family   model.Family
	capacity int
	// plain says that the set has no option that ours never have.
	plain bool
}

var _ ipsets.Sets = (*Sets)(nil)

// New returns a driver without sets. It touches no kernel before the first
// apply.
func New(options Options) *Sets {
	return &Sets{
		options: options, capacity: minCapacity, now: time.Now,
		sets: map[string]*set{}, dirty: map[string]bool{}, observed: map[string]observedSet{}, obsolete: map[string]*isolate.Retry{},
	}
}

// CreateSet makes the set desired. It empties a desired set of another kind or family.
func (s *Sets) CreateSet(spec ipsets.Set) {
	name := ipsets.KernelName(spec.Name)
	t := s.sets[spec.Name]
	if t == nil || t.spec != spec {
		t = newSet(spec)
		_, t.unread = s.observed[name]
		s.sets[spec.Name] = t
	}
	t.desired = true
	delete(s.obsolete, name)
	s.dirty[spec.Name] = true
}

// AddMembers adds desired members. It ignores the members of a set that is not
// desired: CreateSet must come first.
func (s *Sets) AddMembers(name string, members []model.Member) {
	if t := s.sets[name]; t != nil && t.desired {
		for _, m := range members {
			t.add(m)
		}
		s.dirty[name] = true
	}
}

// RemoveMembers no longer wants the members.
func (s *Sets) RemoveMembers(name string, members []model.Member) {
	if t := s.sets[name]; t != nil && t.desired {
		for _, m := range members {
			t.remove(m)
		}
		s.dirty[name] = true
	}
}

// RemoveSet no longer wants the set. The kernel's stays as it is until
// ApplyDeletions.
func (s *Sets) RemoveSet(name string) {
	t := s.sets[name]
	if t == nil || !t.desired {
		return
	}
	t.empty()
	t.desired, t.refusal = false, nil
	delete(s.dirty, name)
	kernelName := ipsets.KernelName(name)
	if _, ok := s.observed[kernelName]; ok {
		s.obsolete[kernelName] = &isolate.Retry{}
	} else {
		delete(s.sets, name)
	}
}

// KeptByOthers sets whether another driver has the same sets and keeps them for now:
// the two never get a change at the same moment, and each would undo a change that only
// the other one got. Meanwhile an apply creates missing sets with their desired members,
// and leaves existing sets as they are. The next apply after that reads the kernel's
// state.
func (s *Sets) KeptByOthers(kept bool) {
	if s.guest && !kept {
		s.forget()
	}
	s.guest = kept
}

// Invalidate discards the known state, so that the next apply reads the kernel in full.
func (s *Sets) Invalidate() { s.known = false }

// Close closes the connection to the kernel; the sets stay as they are. A
// later apply connects again.
func (s *Sets) Close() error {
	s.known = false
	if s.conn == nil {
		return nil
	}
	err := s.conn.Close()
	s.conn = nil
	if err != nil {
		return fmt.Errorf("close netlink connection: %w", err)
	}
	return nil
}

func (s *Sets) connect() error {
	if s.conn != nil {
		return nil
	}
	c, err := nfnetlink.Dial(s.options.NetNS)
	if err != nil {
		return err
	}
	s.conn = c
	return nil
}

// fail forgets the kernel's state after an error, and closes the connection: the
// socket may still hold answers to the failed requests.
func (s *Sets) fail(err error) error {
	s.forget()
	return errors.Join(err, s.Close())
}

// forget forgets the kernel's state. The next read does not report differences as
// foreign changes.
func (s *Sets) forget() {
	s.known = false
	for _, t := range s.sets {
		t.trusted = false
	}
}

// desiredNames returns the names in the kernel of all desired sets.
func (s *Sets) desiredNames() map[string]*set {
	out := make(map[string]*set, len(s.sets))
	for name, t := range s.sets {
		if t.desired {
			out[ipsets.KernelName(name)] = t
		}
	}
	return out
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// minCapacity is the least number of elements that a set is created for. It is
// a bound that costs nothing; the kernel's own default is 65,536.
const minCapacity = 1 << 20
