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
	"github.com/felixlike/felixlike/tables/nftables/expression"
	"github.com/felixlike/felixlike/tables/nftables/kernel"
	"github.com/felixlike/felixlike/tables/nftables/watch"
)

// DefaultTable is the name of the table unless Options say otherwise.
const DefaultTable = "felixlike"

// HostTable is the name of the table beside the policy flows of backend openflow: it
// keeps addresses true on their way through the host, hides pods behind the node's
// address on the way out, and drops what goes around the bridge.
const HostTable = DefaultTable + "-openflow"

// Options configure a Table. The zero value is usable.
type Options struct {
	// Table is the name of the private table; DefaultTable if empty.
	Table string
	// NetNS is the descriptor of the network namespace to program; the
	// process's own if zero. It must stay open as long as the Table is used.
	NetNS int
	// Guard are base chains that stand in for the policy while the table is
	// made from nothing: the first transaction brings them, the last one the
	// wanted base chains in their place. They refer to no other chain and to no
	// set, and nobody wants chains of their names.
	Guard []tables.Chain
	// Fault stands for a refusal by the kernel; tests use it. It is asked, with
	// no Err, about each message of a transaction. If it returns errors, nothing of
	// the transaction is changed, and they are what the kernel says of those
	// messages; one that is ErrUnnamed refuses the whole without naming any.
	Fault func(ObjectError) error
}

// Table is the desired state of one private table, with what the kernel is
// known to hold of it. It is used from one goroutine; only Snapshot and
// Watch may be called from others.
type Table struct {
	options Options
	conn    *kernel.Conn
	// digests has the seed that all connections use, too.
	digests expression.Digester
	// limit is maxBatch, and the buffers are of socketBuffer bytes, except in tests.
	limit, listenBuffer, answerBuffer int

	chains map[string]*chain
	sets   map[string]*set // verdict maps too: they share the kernel's namespace
	// The names of what has to be compared with the kernel at the next Apply.
	touchedChains, touchedSets names

	// known tells that every have of chains and sets is what the kernel holds,
	// but for what the notes tell.
	known bool
	// trusted tells that every have is what the kernel held after our last
	// commit or read: what differs from it is somebody else's doing.
	trusted bool
	exists  bool
	// generation is that of the ruleset at the last full read, counted on with
	// our own commits: if the ruleset's is another, somebody else has committed.
	generation uint32

	// log is where Watch writes down foreign changes; heard are those that an
	// Apply has taken but not put right yet, and repairs what is wrong by them.
	log     watch.Log
	pending watch.Changes
	repairs map[objectKey]damage

	// others are in the table and never ours.
	others []kernel.Other
	// rules and elements count what the kernel holds after the last commit.
	rules, elements int
	// recheck asks for a validation of all chains: something that rules refer
	// to was redefined.
	recheck bool

	quarantine quarantine
	// changes counts the changes of what is wanted.
	changes uint64
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
		digests:       expression.Digester{Seed: maphash.MakeSeed()},
		limit:         maxBatch,
		listenBuffer:  kernel.SocketBuffer,
		answerBuffer:  kernel.SocketBuffer,
		log:           watch.NewLog(options.Table),
		pending:       watch.NewChanges(),
		repairs:       map[objectKey]damage{},
		chains:        map[string]*chain{},
		sets:          map[string]*set{},
		touchedChains: names{},
		touchedSets:   names{},
		quarantine:    newQuarantine(),
	}
}

// SetGuard sets Options.Guard from the next Apply on: nil for a table beside
// which another one decides.
func (t *Table) SetGuard(guard []tables.Chain) { t.options.Guard = guard }

// Close closes the connection to the kernel; the table stays as it is. A
// later Apply connects again.
func (t *Table) Close() error {
	t.known = false
	return t.disconnect()
}

// Invalidate forgets what the kernel is known to hold, so that the next Apply
// reads it again in full.
func (t *Table) Invalidate() { t.known = false }

// Watch calls changed whenever somebody else has changed the table, or may
// have, and an Apply would put it right. It returns when ctx ends, with its
// error, and for no other reason: when notifications are lost, or the
// connection, it takes a new one, and the next Apply reads the table in full.
//
// It may run beside all other methods, but once only. changed is called from
// the goroutine of Watch and must not wait for an Apply.
//
// Started before the first Apply, it makes no additional full read necessary.
func (t *Table) Watch(ctx context.Context, changed func()) error {
	return t.log.Watch(ctx, t.options.NetNS, t.listenBuffer, changed)
}

// Remove deletes the table from the kernel, if it is there. What is wanted
// stays recorded: a later Apply programs it again.
func (t *Table) Remove(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	t.known, t.trusted = false, false
	if err := t.connect(); err != nil {
		return err
	}
	if state, err := t.conn.ReadTable(t.options.Table); err != nil || !state.Exists {
		return err
	}
	if err := t.conn.Commit([]kernel.Op{{Kind: kernel.DeleteTable}}); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("delete table inet %s: %w", t.options.Table, err)
	}
	return nil
}

func (t *Table) connect() error {
	if t.conn != nil {
		return nil
	}
	c, err := kernel.Dial(t.dialOptions())
	if err != nil {
		return err
	}
	generation, err := c.Generation()
	if err != nil {
		return errors.Join(err, c.Close())
	}
	c.Wanted = wants{t}
	t.conn = c
	t.log.SetCommitter(c.Port(), generation)
	return nil
}

func (t *Table) dialOptions() kernel.Options {
	return kernel.Options{NetNS: t.options.NetNS, Table: t.options.Table, Seed: t.digests.Seed, Fault: t.options.Fault, Buffer: t.answerBuffer}
}

// disconnect closes the connection, if there is one. Its port can be anybody's
// from then on.
func (t *Table) disconnect() error {
	if t.conn == nil {
		return nil
	}
	t.log.SetCommitter(0, 0)
	err := t.conn.Close()
	t.conn = nil
	if err != nil {
		return fmt.Errorf("close netlink connection: %w", err)
	}
	return nil
}

// change counts one more change of what is wanted.
func (t *Table) change() uint64 {
	t.changes++
	return t.changes
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

// wants says to a connection what the table wants.
type wants struct{ t *Table }

func (w wants) HashesOf(chain []byte) []string {
	if c := w.t.chains[string(chain)]; c != nil {
		return c.hashes
	}
	return nil
}

// An interval has two elements, and the kernel may add the end of an empty interval at
// the start.
func (w wants) ElementsOf(set string) (int, bool) {
	s := w.t.sets[set]
	if s == nil || !s.wanted {
		return 0, false
	}
	return 2*len(s.members.want) + 1, true
}
