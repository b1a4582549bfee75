package nftables

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/internal/nfnetlink"
)

// notes are what Watch hears and Apply sees to. They are the only thing that
// the two share.
//
// Every commit, whoever makes it, begins a new generation of the ruleset of the
// whole network namespace. Each notification tells the lower half of its
// number, and at the end of a transaction comes the whole number with the name
// of who has committed. By it, what a full read has seen already is told from
// what came later.
type notes struct {
	mu    sync.Mutex
	table string

	socket *subscription // nil: nobody watches
	// port is that of the connection which commits, zero if there is none, and
	// since the generation at which it got the port: what was committed from the
	// port before is somebody else's.
	port, since uint32
	// generation is the latest that is known of: asked for, heard of, or counted on
	// with our own commits. It need not be exact, only close enough to extend half
	// numbers.
	generation uint32
	// read is the generation before the last full read; readOnce tells that
	// there was one.
	read     uint32
	readOnce bool

	news news
	// changed is the latest generation in which somebody else has changed the
	// table, ended the latest of which the end was heard, and authors are who
	// changed it lately.
	changed, ended uint32
	authors        []author
	// moved is closed and renewed when the end of a change of the table is heard,
	// or nothing will be heard any more.
	moved chan struct{}
}

// author is who began a generation in which the table was changed.
type author struct {
	generation uint32
	name       string
}

// keptAuthors bounds the memory of who has changed the table.
const keptAuthors = 64

func newNotes(table string) notes {
	return notes{table: table, news: newNews(), moved: make(chan struct{})}
}

// subscribed notes that the socket hears all changes from now on, at a
// generation. It reports whether somebody has to be told, since what is known
// was read before.
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

// deaf notes that nothing is heard any longer.
func (n *notes) deaf() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.socket = nil
	n.lose()
	n.move()
}

// lose notes that what was known may be known no more, if anything was.
func (n *notes) lose() {
	if n.readOnce {
		n.news.lose(time.Now())
	}
}

// committer notes the port of the connection that commits from now on, which
// has not committed yet; zero if there is none. A subscription that cannot be
// told so is ended: it might ignore what somebody else commits from the port
// that was ours.
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

// committed notes a commit of our own, which is not heard.
func (n *notes) committed() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.generation++
}

// take returns what has not been seen to, and forgets it.
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

// reading notes that a full read begins at the generation: it will see what
// was heard of until then. It returns that.
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

// hear takes a datagram of notifications. It reports whether it is the first
// that has something to see to.
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

// maxNews bounds the memory of what is heard between two looks at it. Above it,
// all is read anyway.
const maxNews = 1 << 16

// concerns tells which object of the table a notification is about, by its
// header and names alone: others' tables may change ten thousand times a second.
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
			if ours = text(v) == table; !ours {
				return "", "", false
			}
		}
		if attribute == at {
			return kind, text(v), ours
		}
	}
	return "table", table, ours
}

// tableAttribute is NFTA_TABLE_NAME, NFTA_CHAIN_TABLE, NFTA_RULE_TABLE and so on.
const tableAttribute = 1

// hearGeneration takes the end of a transaction.
func (n *notes) hearGeneration(payload []byte) {
	var generation, pid uint32
	var name string
	for kind, v := range nfnetlink.Attributes(payload) {
		switch kind {
		case unix.NFTA_GEN_ID:
			generation = number(v)
		case unix.NFTA_GEN_PROC_PID:
			pid = number(v)
		case unix.NFTA_GEN_PROC_NAME:
			name = text(v)
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

// by returns who began the generation. The name comes at the end of the
// transaction, which may be behind many notifications: it is waited for.
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

// complete waits until all of what was heard of was heard to its end, and
// reports whether it was.
func (n *notes) complete(wait time.Duration) bool {
	return n.await(wait, func() bool { return !after(n.changed, n.ended) })
}

// await waits until is holds, which is asked under the lock. It gives up when
// nothing more will be heard.
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
