package watch

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/internal/nfnetlink"
)

// Log is the log of foreign changes of one table. Watch writes it in a goroutine of its
// own, and the driver takes the changes from it. All methods may be called from any
// goroutine.
//
// Every commit of any program begins a new generation of the ruleset of the whole
// network namespace. Each notification has the lower half of its number. At the end of
// a transaction comes the whole number, with the name of the program. By the number,
// the driver knows which changes came after a full read.
type Log struct {
	mu     sync.Mutex
	family uint8
	table  string

	socket *Subscription // nil: Watch does not run
	// port is the netlink port of our committing connection, zero without one. since is
	// the generation at which it got the port: earlier commits from that port are foreign.
	port, since uint32
	// generation is the latest known one: read, received, or counted with our own commits.
	// It need not be exact, only close enough to extend half numbers.
	generation uint32
	// read is the generation before the last full read; readOnce says that there was one.
	read     uint32
	readOnce bool

	pending Changes
	// changed is the latest generation with a foreign change of the table. ended is the
	// latest generation with a received end. authors are the latest programs that changed it.
	changed, ended uint32
	authors        []author
	// moved is closed and renewed at the end of each change of the table, and when the
	// subscription ends.
	moved chan struct{}
}

// author is the program that began a generation with a change of the table.
type author struct {
	generation uint32
	name       string
}

// keptAuthors bounds the memory of authors.
const keptAuthors = 64

// NewLog returns an empty log for the named table of the family, unix.NFPROTO_INET or NFPROTO_BRIDGE.
func NewLog(family uint8, table string) Log {
	return Log{family: family, table: table, pending: NewChanges(), moved: make(chan struct{})}
}

// Begin records that the socket receives all changes after the generation. It reports
// whether changes may have been missed: the table was read before.
func (l *Log) Begin(s *Subscription, generation uint32) (missed bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := s.Ignore(l.port); err != nil {
		return false, err
	}
	l.socket, l.generation, l.changed, l.ended = s, generation, generation, generation
	l.lose()
	return l.readOnce, nil
}

// Subscribed reports whether a subscription receives changes now.
func (l *Log) Subscribed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.socket != nil
}

// end records that the subscription has ended.
func (l *Log) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.socket = nil
	l.lose()
	l.signal()
}

// lose records that notifications may be lost, if the table was read before.
func (l *Log) lose() {
	if l.readOnce {
		l.pending.lose(time.Now())
	}
}

// SetCommitter sets the port of our new committing connection, which has not committed
// yet; zero without one. If the subscription's filter cannot be set, the subscription
// is ended: it might ignore foreign commits from our former port.
func (l *Log) SetCommitter(port, generation uint32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.port, l.since = port, generation
	if port != 0 {
		l.generation = generation
	}
	if l.socket != nil && l.socket.Ignore(port) != nil {
		l.socket.End()
	}
}

// Committed counts a commit of this agent; the filter drops its notification.
func (l *Log) Committed() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.generation++
}

// Take returns the pending changes and clears the log.
func (l *Log) Take() Changes {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.pending.Empty() {
		return Changes{}
	}
	out := l.pending
	l.pending = NewChanges()
	return out
}

// BeginRead records that a full read begins at the generation. It returns the changes up
// to that generation, which the read will see, and keeps the later ones.
func (l *Log) BeginRead(generation uint32) Changes {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.generation, l.read, l.readOnce = generation, generation, true
	seen, left := NewChanges(), NewChanges()
	if l.pending.Lost {
		seen.lose(l.pending.lostAt)
	}
	divide := func(o Change, to func(*Changes)) {
		if after(o.Generation, generation) {
			to(&left)
		} else {
			to(&seen)
		}
	}
	if o := l.pending.Table; o != nil {
		divide(*o, func(to *Changes) { to.Table = o })
	}
	if o := l.pending.Others; o != nil {
		divide(*o, func(to *Changes) { to.Others = o })
	}
	for name, o := range l.pending.Chains {
		divide(o, func(to *Changes) { to.Chains[name] = o })
	}
	for name, o := range l.pending.Sets {
		divide(o, func(to *Changes) { to.Sets[name] = o })
	}
	l.pending = left
	return seen
}

// Record records a datagram of notifications. It reports whether the log was empty
// before and is not now.
func (l *Log) Record(datagram []byte, at time.Time) (first bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.pending.Empty()
	for h, payload := range Messages(datagram) {
		if h.Kind>>8 == unix.NFNL_SUBSYS_NFTABLES && len(payload) >= HeaderSize {
			l.recordMessage(h, payload, at)
		}
	}
	return before && !l.pending.Empty()
}

func (l *Log) recordMessage(h Header, payload []byte, at time.Time) {
	message := h.Kind & 0xff
	if message == unix.NFT_MSG_NEWGEN {
		l.recordGeneration(payload[HeaderSize:])
		return
	}
	if payload[0] != l.family {
		return
	}
	kind, name, ours := Concerns(message, payload[HeaderSize:], l.table)
	if !ours {
		return
	}
	generation := l.extend(resource(payload))
	own := h.Port == l.port && l.port != 0 && after(generation, l.since)
	if own {
		return
	}
	l.changed = generation
	if l.readOnce && !after(generation, l.read) {
		return
	}
	o := Change{generation, at}
	switch {
	case len(l.pending.Chains)+len(l.pending.Sets) == maxPending:
		l.pending = NewChanges()
		l.pending.lose(at)
	case kind == "chain":
		keepFirst(l.pending.Chains, name, o)
	case kind == "set":
		keepFirst(l.pending.Sets, name, o)
	case kind == "other" && l.pending.Others == nil:
		l.pending.Others = &o
	case kind == "table" && l.pending.Table == nil:
		l.pending.Table = &o
	}
}

// maxPending bounds the number of pending changes. Above it, the next Apply reads the
// whole table.
const maxPending = 1 << 16

// recordGeneration records the end of a transaction.
func (l *Log) recordGeneration(payload []byte) {
	var generation, pid uint32
	var name string
	for kind, v := range nfnetlink.Attributes(payload) {
		switch kind {
		case unix.NFTA_GEN_ID:
			generation = nfnetlink.Uint32(v)
		case unix.NFTA_GEN_PROC_PID:
			pid = nfnetlink.Uint32(v)
		case unix.NFTA_GEN_PROC_NAME:
			name = nfnetlink.Text(v)
		}
	}
	l.generation, l.ended = generation, generation
	if generation != l.changed {
		return
	}
	if len(l.authors) == keptAuthors {
		l.authors = slices.Delete(l.authors, 0, 1)
	}
	l.authors = append(l.authors, author{generation, fmt.Sprintf("%s (pid %d)", name, pid)})
	l.signal()
}

func (l *Log) signal() {
	close(l.moved)
	l.moved = make(chan struct{})
}

// Author returns the program that began the generation, as "nft (pid 7)". The name comes
// at the end of the transaction, maybe behind many notifications, so Author waits for it.
// It returns "" after the wait.
func (l *Log) Author(generation uint32, wait time.Duration) (name string) {
	l.await(wait, func() bool {
		for _, a := range l.authors {
			if a.generation == generation {
				name = a.name
			}
		}
		return name != ""
	})
	return name
}

// AwaitEnds waits until every foreign transaction that has begun has ended too, and
// reports whether that is so.
func (l *Log) AwaitEnds(wait time.Duration) bool {
	return l.await(wait, func() bool { return !after(l.changed, l.ended) })
}

// await waits until is, called under the lock, returns true. It gives up when the
// subscription has ended.
func (l *Log) await(wait time.Duration, is func() bool) bool {
	timeout := time.After(wait)
	for {
		l.mu.Lock()
		ok, moved, subscribed := is(), l.moved, l.socket != nil
		l.mu.Unlock()
		if ok || !subscribed {
			return ok
		}
		select {
		case <-moved:
		case <-timeout:
			return false
		}
	}
}

// extend returns the generation near the latest one that has this lower half.
func (l *Log) extend(half uint16) uint32 {
	return l.generation + uint32(int32(int16(half-uint16(l.generation))))
}

// after reports whether generation a came after b; the numbers wrap around.
func after(a, b uint32) bool { return int32(a-b) > 0 }
