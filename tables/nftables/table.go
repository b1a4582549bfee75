package nftables

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/ipsets"
	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/tables/nftables/expression"
	"github.com/felixlike/felixlike/tables/nftables/kernel"
	"github.com/felixlike/felixlike/tables/nftables/watch"
)

// DefaultTable is the name of the table unless Options say otherwise.
const DefaultTable = "felixlike"

// HostTable is the name of the table beside the policy flows of backend openflow: it drops packets with false
// addresses on the host, hides pods behind the node's address on the way out, and drops packets that go
// around the bridge.
const HostTable = DefaultTable + "-openflow"

// SendersTable is the name of the table that decides which pod addresses of packets without a tunnel are
// believed (rules.Senders).
const SendersTable = DefaultTable + "-senders"

// TunnelTable is the name of the table that closes the tunnel port to strangers (rules.Tunnel).
const TunnelTable = DefaultTable + "-tunnel"

// EgressTable is the name of the table that gives packets of pods to the outside the addresses of Egresses (rules.Egress).
const EgressTable = DefaultTable + "-egress"

// HostsTable is the name of the table with the policies of the node itself (rules.Hosts).
const HostsTable = DefaultTable + "-hosts"

// PodSourcesTable is the name of the table that knows the packets of pods whose interfaces another CNI plugin owns
// (rules.PodSources).
const PodSourcesTable = DefaultTable + "-pods"

// Options configure a Table. The zero value is usable.
type Options struct {
	// Table is the name of the private table; DefaultTable if empty.
	Table string
	// Bridge makes it a table of the family bridge, whose chains see the frames at bridges. Else it is one of inet.
	Bridge bool
	// NetNS is the descriptor of the network namespace to program; the
	// process's own if zero. It must stay open as long as the Table is used.
	NetNS int
	// Guard are base chains that replace the policy while the table is made from nothing: the first
	// transaction brings them, the last one replaces them by the desired base chains. They refer to no other
	// chain and to no set, and their names are reserved.
	Guard []tables.Chain
	// Fault simulates a refusal by the kernel; tests use it. The driver calls it, without Err, for each
	// message of a transaction. If it returns errors, the transaction changes nothing, and they count as the
	// kernel's errors for those messages. ErrUnnamed refuses the whole transaction without a name.
	Fault func(ObjectError) error
}

// Table is the desired state of one private table, with the known state of the kernel's. It is used from one
// goroutine; only Snapshot and Watch may be called from others.
type Table struct {
	*objects
	options Options
	conn    *kernel.Conn
	// digests has the seed that all connections use, too.
	digests expression.Digester
	// limit is maxBatch, and the buffers are of kernel.SocketBuffer bytes, except in tests.
	limit, listenBuffer, answerBuffer int

	// synced says that the known state of all objects is the kernel's, except for the
	// changes in the log.
	synced bool
	// trusted reports that the known state is the kernel's after our last commit or read: another program
	// caused every difference.
	trusted bool
	// generation is that of the ruleset at the last full read, counted on with our own commits: if the
	// ruleset has another one, another program has committed.
	generation uint32
	// modulesLoaded reports that the kernel has checked moduleOps.
	modulesLoaded bool
	// rules and elements count the kernel's after the last commit.
	rules, elements int

	// log is where Watch records foreign changes.
	log          watch.Log
	drift        *drift
	quarantine   *quarantine
	replacements *replacements
	validator    *validator
	planner      *planner
	finder       *faultFinder
}

var (
	_ tables.Table       = (*Table)(nil)
	_ tables.VerdictMaps = (*Table)(nil)
	_ tables.NumberMaps  = (*Table)(nil)
	_ ipsets.Sets        = (*Table)(nil)
)

// New returns a driver for the table. It touches no kernel before the first
// Apply.
func New(options Options) *Table {
	if options.Table == "" {
		options.Table = DefaultTable
	}
	o := newObjects(options.Table)
	t := &Table{
		objects:      o,
		options:      options,
		digests:      expression.Digester{Seed: maphash.MakeSeed()},
		limit:        maxBatch,
		listenBuffer: kernel.SocketBuffer,
		answerBuffer: kernel.SocketBuffer,
		log:          watch.NewLog(options.family(), options.Table),
		quarantine:   newQuarantine(o),
	}
	t.drift = &drift{objects: o, log: &t.log, pending: watch.NewChanges(), repairs: map[objectKey]damage{}}
	t.validator = &validator{objects: o, quarantine: t.quarantine}
	t.replacements = &replacements{t.quarantine}
	t.planner = &planner{objects: o, quarantine: t.quarantine, digests: &t.digests}
	t.finder = &faultFinder{objects: o, quarantine: t.quarantine, digests: &t.digests, table: t}
	return t
}

// SetGuard sets Options.Guard from the next Apply on: nil for a table beside
// which another one decides.
func (t *Table) SetGuard(guard []tables.Chain) { t.options.Guard = guard }

// Close closes the connection to the kernel; the table stays as it is. A
// later Apply connects again.
func (t *Table) Close() error {
	t.synced = false
	return t.disconnect()
}

// Invalidate makes the next Apply read the kernel's state again in full.
func (t *Table) Invalidate() { t.synced = false }

// Watch calls changed after every foreign change of the table, and after possible ones, if an Apply would
// repair them. It returns only when ctx ends, with its error. When notifications or the connection are lost,
// it subscribes again, and the next Apply reads the table in full.
//
// It may run beside all other methods, but once only. changed is called from
// the goroutine of Watch and must not wait for an Apply.
//
// Started before the first Apply, it makes no additional full read necessary.
func (t *Table) Watch(ctx context.Context, changed func()) error {
	return t.log.Watch(ctx, t.options.NetNS, t.listenBuffer, changed)
}

// Remove deletes the table from the kernel, if it exists. The desired state stays recorded: a later Apply
// programs it again.
func (t *Table) Remove(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	t.synced, t.trusted = false, false
	if err := t.connect(); err != nil {
		return err
	}
	if state, err := t.conn.ReadTable(t.options.Table); err != nil || !state.Exists {
		return err
	}
	if err := t.conn.Commit([]kernel.Op{{Kind: kernel.DeleteTable}}); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("delete table %s: %w", t.options.title(), err)
	}
	return nil
}

func (t *Table) connect() error {
	if t.conn != nil {
		return nil
	}
	c, err := kernel.Dial(t.options.dial(t.digests.Seed, t.answerBuffer))
	if err != nil {
		return err
	}
	generation, err := c.Generation()
	if err != nil {
		return errors.Join(err, c.Close())
	}
	c.Wanted = desiredObjects{t}
	t.conn = c
	t.log.SetCommitter(c.Port(), generation)
	return nil
}

// family is that of the table in the kernel.
func (o Options) family() uint8 {
	if o.Bridge {
		return unix.NFPROTO_BRIDGE
	}
	return unix.NFPROTO_INET
}

// title names the table with its family.
func (o Options) title() string { return kernel.FamilyName(o.family()) + " " + o.Table }

// dial returns the options of a connection with a receive buffer of the given bytes.
func (o Options) dial(seed maphash.Seed, buffer int) kernel.Options {
	return kernel.Options{NetNS: o.NetNS, Family: o.family(), Table: o.Table, Seed: seed, Fault: o.Fault, Buffer: buffer}
}

// send commits the operations.
func (t *Table) send(ops []kernel.Op, result *tables.Result) error {
	if err := t.conn.Commit(ops); err != nil {
		var refused *kernel.RefusedError
		t.trusted = t.trusted && errors.As(err, &refused)
		return err
	}
	t.log.Committed()
	t.generation++
	result.Messages += len(ops)
	return nil
}

// commitNothing commits a transaction that changes nothing. A kernel that refuses it
// refuses everything.
func (t *Table) commitNothing() error {
	return t.conn.Commit([]kernel.Op{{Kind: kernel.AddTable}})
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

// desiredObjects gives a connection the desired state of the table.
type desiredObjects struct{ t *Table }

func (w desiredObjects) HashesOf(chain []byte) []string {
	if c := w.t.chains[string(chain)]; c != nil {
		return c.hashes
	}
	return nil
}

// An interval has two elements, and the kernel may add the end of an empty interval at
// the start.
func (w desiredObjects) ElementsOf(set string) (int, bool) {
	s := w.t.sets[set]
	if s == nil || !s.desired {
		return 0, false
	}
	return 2*len(s.members.desired) + 1, true
}
