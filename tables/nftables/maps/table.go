package maps

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/tables/nftables/expression"
	"github.com/felixlike/felixlike/tables/nftables/kernel"
	"github.com/felixlike/felixlike/tables/nftables/watch"
)

// Options configure a Table.
type Options struct {
	// Table is its name, in the family inet.
	Table string
	// NetNS is the descriptor of the network namespace to program; the process's own if zero.
	NetNS int
}

// Table is the desired state of one table. It is used from one goroutine; only Watch may run beside.
type Table struct {
	options Options
	conn    *kernel.Conn
	digests expression.Digester
	chains  map[string]*chain
	sets    map[string]*set
	// synced says that the kernel has the desired state but for what is dirty and for the changes in the log.
	synced bool
	// programmed says that the kernel has had the desired state: a difference is a foreign change.
	programmed bool
	// state is the rest of what the last read has found, and what is to be done about it.
	state   state
	pending pending
	log     watch.Log
}

// chain is a desired chain.
type chain struct {
	tables.Chain
	hashes []string
	// dirty says that the kernel's rules differ, exists that it has the chain.
	dirty, exists bool
}

// state is what is not desired, or not right as a whole.
type state struct {
	exists bool
	// rebuild says why the table is to be made anew; empty if it is not.
	rebuild string
	// chains and sets are those that the kernel has and that are not desired.
	chains []string
	sets   []string
}

// New returns a driver for the table. It touches no kernel before the first Apply.
func New(o Options) *Table {
	return &Table{
		options: o, digests: expression.Digester{Seed: maphash.MakeSeed()}, chains: map[string]*chain{}, sets: map[string]*set{},
		log: watch.NewLog(unix.NFPROTO_INET, o.Table),
	}
}

// UpdateChain sets a desired chain.
func (t *Table) UpdateChain(c tables.Chain) {
	hashes := c.Hashes()
	old := t.chains[c.Name]
	if old != nil && slices.Equal(old.hashes, hashes) {
		return
	}
	// A chain or a set that comes back before an Apply has removed it is not known.
	t.synced = t.synced && !slices.Contains(t.state.chains, c.Name)
	t.chains[c.Name] = &chain{Chain: c, hashes: hashes, dirty: true, exists: old != nil && old.exists}
}

// RemoveChain removes a desired chain. No element may lead to it any more.
func (t *Table) RemoveChain(name string) {
	if c := t.chains[name]; c != nil && c.exists {
		t.state.chains = append(t.state.chains, name)
	}
	delete(t.chains, name)
}

// UpdateSet makes a set desired. Its elements stay.
func (t *Table) UpdateSet(s tables.LargeSet) {
	if t.sets[s.Name] == nil {
		t.synced = t.synced && !slices.Contains(t.state.sets, s.Name)
		t.sets[s.Name] = &set{LargeSet: s, desired: map[string]string{}, dirty: map[string]*string{}}
	}
}

// RemoveSet removes a desired set. No rule may look it up any more.
func (t *Table) RemoveSet(name string) {
	if s := t.sets[name]; s != nil && s.exists {
		t.state.sets = append(t.state.sets, name)
	}
	delete(t.sets, name)
}

// Put sets the value of a key; that of a set is empty.
func (t *Table) Put(set, key, value string) { t.sets[set].put(key, value) }

// Remove removes a key.
func (t *Table) Remove(set, key string) { t.sets[set].remove(key) }

// Invalidate makes the next Apply read the kernel's state again in full.
func (t *Table) Invalidate() { t.synced = false }

// Watch calls changed after foreign changes of the table, until ctx ends. It may run beside all other methods, but once only.
func (t *Table) Watch(ctx context.Context, changed func()) error {
	return t.log.Watch(ctx, t.options.NetNS, kernel.SocketBuffer, changed)
}

// Apply programs the desired state. Without a difference it writes nothing. After an error the kernel has its former state (of a
// table that did not exist, no base chain), and the next Apply reads the table in full.
func (t *Table) Apply(ctx context.Context) (result tables.Result, err error) {
	start := time.Now()
	for try := 1; ; try++ {
		if err = ctx.Err(); err != nil {
			break
		}
		if err = t.attempt(ctx, &result); err == nil {
			break
		}
		// The messages left in the socket belong to the failed transaction.
		t.synced = false
		err = errors.Join(err, t.Close())
		if try == attempts {
			break
		}
	}
	for _, c := range t.chains {
		result.Rules += len(c.Rules)
	}
	for _, s := range t.sets {
		result.Elements += len(s.desired)
	}
	result.Duration = time.Since(start)
	if err != nil {
		err = fmt.Errorf("apply to table inet %s: %w", t.options.Table, err)
	}
	return result, err
}

// attempts bounds how often an Apply begins anew, because another program may have been faster.
const attempts = 3

func (t *Table) attempt(ctx context.Context, result *tables.Result) error {
	if err := t.connect(); err != nil {
		return err
	}
	if err := t.learn(result); err != nil {
		return err
	}
	for _, ops := range t.plan() {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := t.conn.Commit(ops); err != nil {
			return err
		}
		t.log.Committed()
		t.count(ops, result)
	}
	t.state = state{exists: true}
	for _, c := range t.chains {
		c.dirty, c.exists = false, true
	}
	for _, s := range t.sets {
		s.exists = true
		s.clean()
	}
	t.programmed, t.pending = true, pending{}
	return nil
}

func (t *Table) count(ops []kernel.Op, result *tables.Result) {
	result.Messages += len(ops)
	for i := range ops {
		switch ops[i].Kind {
		case kernel.AddRule:
			result.RulesAdded++
		case kernel.AddElements:
			result.ElementsAdded += len(ops[i].Elements)
		case kernel.DeleteElements:
			result.ElementsDeleted += len(ops[i].Elements)
		}
	}
}

func (t *Table) connect() error {
	if t.conn != nil {
		return nil
	}
	c, err := kernel.Dial(kernel.Options{NetNS: t.options.NetNS, Table: t.options.Table, Seed: t.digests.Seed})
	if err != nil {
		return err
	}
	generation, err := c.Generation()
	if err != nil {
		return errors.Join(err, c.Close())
	}
	t.conn = c
	t.log.SetCommitter(c.Port(), generation)
	return nil
}

// Close closes the connection to the kernel; the table stays as it is. A later Apply connects again.
func (t *Table) Close() error {
	t.synced = false
	if t.conn == nil {
		return nil
	}
	t.log.SetCommitter(0, 0)
	err := t.conn.Close()
	t.conn = nil
	return err
}

// Delete deletes the table from the kernel and reports whether it was there. The desired state stays recorded.
func (t *Table) Delete() (bool, error) {
	t.synced, t.programmed = false, false
	if err := t.connect(); err != nil {
		return false, err
	}
	if s, err := t.conn.ReadTable(t.options.Table); err != nil || !s.Exists {
		return false, err
	}
	if err := t.conn.Commit([]kernel.Op{{Kind: kernel.DeleteTable}}); err != nil {
		return true, fmt.Errorf("delete table inet %s: %w", t.options.Table, err)
	}
	return true, nil
}

// sortedSets returns the desired sets by name, sortedChains the chains, those that are no base chains first.
func (t *Table) sortedSets() []*set { return slices.SortedFunc(maps.Values(t.sets), compareSets) }

func (t *Table) sortedChains() []*chain {
	return slices.SortedFunc(maps.Values(t.chains), func(a, b *chain) int {
		return cmp.Or(cmp.Compare(hooked(a), hooked(b)), cmp.Compare(a.Name, b.Name))
	})
}

func hooked(c *chain) int {
	if c.Hook != nil {
		return 1
	}
	return 0
}
