package nftables

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/internal/nfnetlink"
)

// notes is the log of foreign changes: Watch writes it, Apply reads it. It is the only
// state that the two share.
//
// Every commit of any program begins a new generation of the ruleset of the whole
// network namespace. Each notification has the lower half of its number. At the end of
// a transaction comes the whole number, with the name of the program. By the number,
// Apply knows which changes came after a full read.
type notes struct {
	mu    sync.Mutex
	table string

	socket *subscription // nil: Watch does not run
	// port is the netlink port of our committing connection, zero without one. since is
	// the generation at which it got the port: earlier commits from that port are foreign.
	port, since uint32
	// generation is the latest known one: read, received, or counted with our own commits.
	// It need not be exact, only close enough to extend half numbers.
	generation uint32
	// read is the generation before the last full read; readOnce says that there was one.
	read     uint32
	readOnce bool

	news news
	// changed is the latest generation with a foreign change of the table. ended is the
	// latest whose end was received. authors are the latest programs that changed it.
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

func newNotes(table string) notes {
	return notes{table: table, news: newNews(), moved: make(chan struct{})}
}

// subscribed records that the socket receives all changes after the generation. It
// reports whether Apply has to run, since the known state was read before.
func (n *notes) subscribed(s *subscription, generation uint32) (tell bool, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := s.ignore(n.port); err != nil {
		return false, err
	}
	n.socket, n.generation, n.changed, n.ended = s, generation, generation, generation
	n.lose()
	return n.readOnce, nil
}

// deaf records that the subscription has ended.
func (n *notes) deaf() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.socket = nil
	n.lose()
	n.move()
}

// lose records that notifications may be lost, if the table was read before.
func (n *notes) lose() {
	if n.readOnce {
		n.news.lose(time.Now())
	}
}

// committer sets the port of our new committing connection, which has not committed
// yet; zero without one. If the subscription's filter cannot be set, the subscription
// is ended: it might ignore foreign commits from our former port.
func (n *notes) committer(port, generation uint32) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.port, n.since = port, generation
	if port != 0 {
		n.generation = generation
	}
	if n.socket != nil && n.socket.ignore(port) != nil {
		n.socket.end()
	}
}

// committed counts a commit of our own, whose notification the filter drops.
func (n *notes) committed() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.generation++
}

// take returns the pending changes and clears the log.
func (n *notes) take() news {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.news.empty() {
		return news{}
	}
	out := n.news
	n.news = newNews()
	return out
}

// reading records that a full read begins at the generation. It returns the changes up
// to that generation, which the read will see, and keeps the later ones.
func (n *notes) reading(generation uint32) news {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.generation, n.read, n.readOnce = generation, generation, true
	seen, left := newNews(), newNews()
	if n.news.lost {
		seen.lose(n.news.lostAt)
	}
	divide := func(o note, to func(*news)) {
		if after(o.generation, generation) {
			to(&left)
		} else {
			to(&seen)
		}
	}
	if o := n.news.table; o != nil {
		divide(*o, func(to *news) { to.table = o })
	}
	if o := n.news.others; o != nil {
		divide(*o, func(to *news) { to.others = o })
	}
	for name, o := range n.news.chains {
		divide(o, func(to *news) { to.chains[name] = o })
	}
	for name, o := range n.news.sets {
		divide(o, func(to *news) { to.sets[name] = o })
	}
	n.news = left
	return seen
}

// hear records a datagram of notifications. It reports whether the log was empty
// before and is not now.
func (n *notes) hear(datagram []byte, at time.Time) (first bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	before := n.news.empty()
	for h, payload := range messages(datagram) {
		if h.kind>>8 == unix.NFNL_SUBSYS_NFTABLES && len(payload) >= nfgenSize {
			n.hearMessage(h, payload, at)
		}
	}
	return before && !n.news.empty()
}

func (n *notes) hearMessage(h header, payload []byte, at time.Time) {
	message := h.kind & 0xff
	if message == unix.NFT_MSG_NEWGEN {
		n.hearGeneration(payload[nfgenSize:])
		return
	}
	if payload[0] != unix.NFPROTO_INET {
		return
	}
	kind, name, ours := concerns(message, payload[nfgenSize:], n.table)
	if !ours {
		return
	}
	generation := n.extend(resource(payload))
	own := h.port == n.port && n.port != 0 && after(generation, n.since)
	if own {
		return
	}
	n.changed = generation
	if n.readOnce && !after(generation, n.read) {
		return
	}
	o := note{generation, at}
	switch {
	case len(n.news.chains)+len(n.news.sets) == maxNews:
		n.news = newNews()
		n.news.lose(at)
	case kind == "chain":
		keepFirst(n.news.chains, name, o)
	case kind == "set":
		keepFirst(n.news.sets, name, o)
	case kind == "other" && n.news.others == nil:
		n.news.others = &o
	case kind == "table" && n.news.table == nil:
		n.news.table = &o
	}
}

// maxNews bounds the number of pending changes. Above it, the next Apply reads the
// whole table.
const maxNews = 1 << 16

// concerns returns the object of the table that a notification is about. It reads only
// header and names: tables of others may change ten thousand times a second.
func concerns(message uint16, payload []byte, table string) (kind, name string, ours bool) {
	var at uint16
	switch message {
	case unix.NFT_MSG_NEWRULE, unix.NFT_MSG_DELRULE:
		kind, at = "chain", unix.NFTA_RULE_CHAIN
	case unix.NFT_MSG_NEWCHAIN, unix.NFT_MSG_DELCHAIN:
		kind, at = "chain", unix.NFTA_CHAIN_NAME
	case unix.NFT_MSG_NEWSET, unix.NFT_MSG_DELSET:
		kind, at = "set", unix.NFTA_SET_NAME
	case unix.NFT_MSG_NEWSETELEM, unix.NFT_MSG_DELSETELEM:
		kind, at = "set", unix.NFTA_SET_ELEM_LIST_SET
	case unix.NFT_MSG_NEWOBJ, unix.NFT_MSG_DELOBJ, unix.NFT_MSG_NEWFLOWTABLE, unix.NFT_MSG_DELFLOWTABLE:
		kind, at = "other", unix.NFTA_OBJ_NAME
	default:
		kind, at = "table", unix.NFTA_TABLE_NAME
	}
	for attribute, v := range nfnetlink.Attributes(payload) {
		// The table is the first attribute of every kind of object.
		if attribute == tableAttribute {
			if ours = nfnetlink.Text(v) == table; !ours {
				return "", "", false
			}
		}
		if attribute == at {
			return kind, nfnetlink.Text(v), ours
		}
	}
	return "table", table, ours
}

// tableAttribute is NFTA_TABLE_NAME, NFTA_CHAIN_TABLE, NFTA_RULE_TABLE and so on.
const tableAttribute = 1

// hearGeneration records the end of a transaction.
func (n *notes) hearGeneration(payload []byte) {
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
	n.generation, n.ended = generation, generation
	if generation != n.changed {
		return
	}
	if len(n.authors) == keptAuthors {
		n.authors = slices.Delete(n.authors, 0, 1)
	}
	n.authors = append(n.authors, author{generation, fmt.Sprintf("%s (pid %d)", name, pid)})
	n.move()
}

func (n *notes) move() {
	close(n.moved)
	n.moved = make(chan struct{})
}

// by returns the program that began the generation. The name comes at the end of the
// transaction, which may be behind many notifications, so by waits for it.
func (n *notes) by(generation uint32, wait time.Duration) (name string) {
	n.await(wait, func() bool {
		for _, a := range n.authors {
			if a.generation == generation {
				name = a.name
			}
		}
		return name != ""
	})
	return name
}

// complete waits until every foreign transaction that has begun has ended too, and
// reports whether that is so.
func (n *notes) complete(wait time.Duration) bool {
	return n.await(wait, func() bool { return !after(n.changed, n.ended) })
}

// await waits until is, called under the lock, returns true. It gives up when the
// subscription has ended.
func (n *notes) await(wait time.Duration, is func() bool) bool {
	timeout := time.After(wait)
	for {
		n.mu.Lock()
		ok, moved, heard := is(), n.moved, n.socket != nil
		n.mu.Unlock()
		if ok || !heard {
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
func (n *notes) extend(half uint16) uint32 {
	return n.generation + uint32(int32(int16(half-uint16(n.generation))))
}

// after reports whether generation a came after b; the numbers wrap around.
func after(a, b uint32) bool { return int32(a-b) > 0 }
