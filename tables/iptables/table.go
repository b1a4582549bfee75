package iptables

import (
	"maps"
	"os"
	"slices"
	"time"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
)

// Prefix begins the name of every chain of ours in the kernel, so that all of
// them are known by their names; those of sets begin with it too.
const Prefix = "flx-"

// MaxName is how long the name of a chain may be: xtables takes 28 characters,
// with the prefix.
const MaxName = 28 - len(Prefix)

// KernelName returns the name that a chain has in the kernel.
func KernelName(name string) string { return Prefix + name }

// Options configure a Table.
type Options struct {
	// Variant says which of the kernel's two implementations is programmed; it
	// must be Legacy or NFT (see Detect).
	Variant Variant
	// NetNS is the descriptor of the network namespace to program; the
	// process's own if zero. It must stay open as long as the Table is used.
	NetNS int
}

// Table is the desired state of our chains in both families, with their known state in
// the kernel. It is used from one goroutine.
type Table struct {
	options  Options
	tools    *tools
	families []model.Family
	chains   map[string]*chain
	touched  map[string]struct{}
	// recheck asks for a validation of all chains, rereach for a new look at
	// which chains live where.
	recheck, rereach bool
	// bases are the names of the wanted base chains.
	bases map[string]struct{}
	// refused are the chains that are set aside, retried those that were and
	// that this Apply tries again.
	refused, retried map[string]*refusal
	// shut has for each chain that stands closed because of refused ones which
	// those are, as of the last reach.
	shut map[string][]string
	// badSets are the sets that their driver has set aside, by name.
	badSets map[string]tables.Refusal
	// holding are chains that an Apply leaves alone while it looks for the one
	// that the kernel refuses; nil at all other times.
	holding map[string]bool
	state   map[model.Family]*familyState
	// learned are texts of rules that the tools print in another way than we
	// expect, by place and hash.
	learned map[learnedKey]string
	// notes are what others have changed and no Apply has put right yet.
	notes map[noteKey]note
	now   func() time.Time
	// count is how many rules the chains are known to hold, if it was counted
	// since they changed.
	count   int
	counted bool
	watcher watcher
}

// familyState is the known state of the kernel's tables of one family.
type familyState struct {
	// known tells that every have of the chains, and the entries, are what the
	// kernel holds.
	known bool
	// trusted tells that they were, before known was taken back: what is
	// different then is the work of others.
	trusted bool
	// fresh tells that they were read in this Apply.
	fresh bool
	// all asks for a comparison of all chains, not only of touched ones.
	all     bool
	entries map[entry]*entered
	// altered are the rules that a read has found in another wording than ours.
	altered map[learnedKey]string
}

// entered are our rules in one of the kernel's own chains, as their texts.
type entered struct {
	texts []string
	// first is how many of them stand before all rules of others, mixed
	// whether there are such.
	first int
	mixed bool
}

var _ tables.Table = (*Table)(nil)

// New returns a driver. It touches no kernel before the first Apply.
func New(options Options) *Table {
	t := &Table{
		options:  options,
		families: families(),
		chains:   map[string]*chain{},
		touched:  map[string]struct{}{},
		refused:  map[string]*refusal{},
		retried:  map[string]*refusal{},
		state:    map[model.Family]*familyState{},
		learned:  map[learnedKey]string{},
		notes:    map[noteKey]note{},
		now:      time.Now,
		watcher:  watcher{own: map[uint32]time.Time{}},
	}
	for _, f := range t.families {
		t.state[f] = &familyState{}
	}
	return t
}

// families returns those that the kernel has: one booted with ipv6.disable=1
// has no tables for IPv6, and no such packets.
func families() []model.Family {
	if _, err := os.Stat("/proc/sys/net/ipv6"); err != nil {
		return []model.Family{model.IPv4}
	}
	return model.Families()
}

// Invalidate forgets what the kernel is known to hold, so that the next Apply
// reads it again in full.
func (t *Table) Invalidate() {
	for _, s := range t.state {
		s.known = false
	}
}

// sorted returns the names of a set in order.
func sorted[V any](names map[string]V) []string { return slices.Sorted(maps.Keys(names)) }
