package iptables

import (
	"context"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
)

// Options configure a Table.
type Options struct {
	// Variant says which of the kernel's two implementations is programmed; it
	// must be Legacy or NFT (see Detect).
	Variant Variant
	// NetNS is the descriptor of the network namespace to program; the
	// process's own if zero. It must stay open as long as the Table is used.
	NetNS int
}

// Table programs our chains in both families. It keeps their desired state and the known
// state of the kernel. It is used from one goroutine; only Watch may run beside.
type Table struct {
	*objects
	options    Options
	tools      *tools
	watcher    *watcher
	observed   *observed
	quarantine *quarantine
	drift      *drift
	validator  *validator
	reader     *reader
	planner    *planner
	writer     *writer
	finder     *faultFinder
}

var _ tables.Table = (*Table)(nil)

// New returns a driver. It touches no kernel before the first Apply.
func New(options Options) *Table {
	o := &objects{families: kernelFamilies(), chains: map[string]*chain{}, dirty: map[string]struct{}{}}
	known, q, d := newObserved(o), newQuarantine(o), newDrift()
	w := newWatcher(options.Variant, options.NetNS, o.families, known.sizes)
	programs := newTools(options.Variant, o.families, options.NetNS)
	programs.begin = w.start
	t := &Table{
		objects: o, options: options, tools: programs, watcher: w, observed: known, quarantine: q, drift: d,
		validator: &validator{objects: o, quarantine: q},
		reader:    &reader{observed: known, quarantine: q, drift: d, tools: programs, watcher: w},
		planner:   &planner{observed: known, quarantine: q},
		writer:    &writer{observed: known, quarantine: q, tools: programs},
	}
	t.finder = &faultFinder{observed: known, quarantine: q, table: t}
	return t
}

// UpdateChain sets the desired content of a chain.
func (t *Table) UpdateChain(desired tables.Chain) {
	if t.update(desired) {
		t.quarantine.changed(desired.Name)
	}
}

// RemoveChain ends that the chain is desired.
func (t *Table) RemoveChain(name string) {
	if t.remove(name) {
		t.quarantine.changed(name)
	}
}

// QuarantineSets sets the quarantined sets, as the driver of the sets reports them. From
// the next Apply on, the chains that name them are closed, until a later call leaves them
// out. Call it after the update of the sets.
func (t *Table) QuarantineSets(sets []tables.Refusal) { t.quarantine.setSets(sets) }

// Invalidate forgets the known state of the kernel, so that the next Apply reads it
// again in full.
func (t *Table) Invalidate() { t.observed.invalidate() }

// Watch calls changed when others may have changed our chains or the rules that lead to
// them, and the next Apply reads everything. It starts no program. It returns when
// ctx ends, with its error, or when it cannot watch. It may run beside all other
// methods, but once only.
//
// In the nft variant the kernel reports every change. The legacy variant
// compares sizes, so it misses a change that keeps the size of a table: callers
// invalidate the Table from time to time all the same.
func (t *Table) Watch(ctx context.Context, changed func()) error {
	return t.watcher.watch(ctx, changed)
}

// WantedText returns the output that iptables-save (of IPv4) or ip6tables-save would have
// if the kernel held the desired state and nothing else. It asks no kernel.
func (t *Table) WantedText(f model.Family) string { return t.planner.text(f) }
