package nftables

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/ipsets"
	"github.com/felixlike/felixlike/tables"
)

// DefaultTable is the name of the table unless Options say otherwise.
const DefaultTable = "felixlike"

// Options configure a Table. The zero value is usable.
type Options struct {
	// Table is the name of the private table; DefaultTable if empty.
	Table string
	// NetNS is the descriptor of the network namespace to program; the
	// process's own if zero. It must stay open as long as the Table is used.
	NetNS int
}

// Table is the desired state of one private table, with what the kernel is
// known to hold of it. It is used from one goroutine; only Snapshot may be
// called from others.
type Table struct {
	options Options
	conn    *conn
	// digests has the seed that all connections use, too.
	digests digester
	// limit is maxBatch but in tests.
	limit int

	chains map[string]*chain
	sets   map[string]*set // verdict maps too: they share the kernel's namespace
	// The names of what has to be compared with the kernel at the next Apply.
	touchedChains, touchedSets names

	// known tells that every have of chains and sets is what the kernel holds.
	known  bool
	exists bool
	// rules and elements count what the kernel holds after the last commit.
	rules, elements int
	// recheck asks for a validation of all chains: something that rules refer
	// to was redefined.
	recheck bool
}

var (
	_ tables.Table       = (*Table)(nil)
	_ tables.VerdictMaps = (*Table)(nil)
	_ ipsets.Sets        = (*Table)(nil)
)

// New returns a driver for the table. It touches no kernel before the first
// Apply.
func New(options Options) *Table {
	if options.Table == "" {
		options.Table = DefaultTable
	}
	return &Table{
		options:       options,
		digests:       digester{seed: maphash.MakeSeed()},
		limit:         maxBatch,
		chains:        map[string]*chain{},
		sets:          map[string]*set{},
		touchedChains: names{},
		touchedSets:   names{},
	}
}

// Close closes the connection to the kernel; the table stays as it is. A
// later Apply connects again.
func (t *Table) Close() error {
	t.known = false
	if t.conn == nil {
		return nil
	}
	err := t.conn.close()
	t.conn = nil
	if err != nil {
		return fmt.Errorf("close netlink connection: %w", err)
	}
	return nil
}

// Invalidate forgets what the kernel is known to hold, so that the next Apply
// reads it again in full.
func (t *Table) Invalidate() { t.known = false }

// Remove deletes the table from the kernel, if it is there. What is wanted
// stays recorded: a later Apply programs it again.
func (t *Table) Remove(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	t.known = false
	if err := t.connect(); err != nil {
		return err
	}
	exists, err := t.conn.hasTable(t.options.Table)
	if err != nil || !exists {
		return err
	}
	if err := t.conn.flush([]op{{kind: deleteTable}}); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("delete table inet %s: %w", t.options.Table, err)
	}
	return nil
}

func (t *Table) connect() error {
	if t.conn != nil {
		return nil
	}
	c, err := dial(t.options, t.digests.seed)
	if err != nil {
		return err
	}
	t.conn = c
	return nil
}

// names is a set of object names.
type names map[string]struct{}

func (n names) add(name string) { n[name] = struct{}{} }

func (n names) sorted() []string {
	out := make([]string, 0, len(n))
	for name := range n {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}
