package conntrack

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/internal/nfnetlink"
)

// The subsystem and its messages (linux/netfilter/nfnetlink_conntrack.h).
const (
	subsystem     uint8 = 1
	messageNew    uint8 = 0
	messageGet    uint8 = 1
	messageDelete uint8 = 2
)

// batch is how many changes are sent at once. A message has some 200 bytes, and
// the kernel takes as many as fit a socket's buffer of 208 kB.
const batch = 256

// shownErrors bounds an error text.
const shownErrors = 3

// ErrFull says that the kernel's table takes no new entry. It has the same limit in all network namespaces.
var ErrFull = errors.New("the kernel's table of connections is full; raise net.netfilter.nf_conntrack_max")

// Kernel is the kernel's connection tracking of one network namespace, that of
// the calling thread. It is used from one goroutine.
type Kernel struct {
	conn *nfnetlink.Conn
	m    nfnetlink.Messages
}

// OpenKernel connects to the kernel.
func OpenKernel() (*Kernel, error) {
	conn, err := nfnetlink.Dial(0)
	if err != nil {
		return nil, fmt.Errorf("connection tracking: %w", err)
	}
	return &Kernel{conn: conn}, nil
}

// Close closes the connection.
func (k *Kernel) Close() error { return k.conn.Close() }

// Dump hands every connection of all zones and both families to visit.
func (k *Kernel) Dump(visit func(Connection)) error {
	k.m.Reset()
	k.m.Begin(subsystem, messageGet, unix.NLM_F_DUMP, unix.AF_UNSPEC)
	k.m.End()
	code, err := k.conn.Dump(&k.m, func(attributes []byte) {
		if c, ok := parse(attributes); ok {
			visit(c)
		}
	})
	if err == nil && code != 0 {
		err = code
	}
	if err != nil {
		return fmt.Errorf("dump connections: %w", err)
	}
	return nil
}

// Write writes entries and returns their number. Entries that were created or ended meanwhile are not counted
// and are no error. Other refusals are errors, and do not stop the other entries. If the table is full, the error
// is ErrFull. An entry that replaces itself (Put.Instead) and had ended is not left behind.
func (k *Kernel) Write(puts []Put) (int, error) {
	full, ended := 0, 0
	var pairs []step
	steps := make([]step, 0, len(puts))
	for i := range puts {
		if p := &puts[i]; p.Instead == nil {
			steps = append(steps, step{p, false})
		} else {
			pairs = append(pairs, step{p, true}, step{p, false})
			ended++
		}
	}
	steps = append(pairs, steps...) // so that no batch ends within a pair
	revived := map[*Put]bool{}
	written, err := send(k, steps, k.step, func(s *step, code unix.Errno) error {
		p := s.Put
		switch {
		case s.ends:
			ended--
			if code == unix.ENOENT {
				revived[p] = p.Instead.Original == p.Original
				return nil
			}
		case code == unix.EEXIST && p.New || code == unix.ENOENT && !p.New:
			delete(revived, p)
			return nil
		case code == unix.ENOMEM && p.New: // nf_conntrack_alloc
			full++
			delete(revived, p)
			return nil
		}
		delete(revived, p)
		return fmt.Errorf("connection %s: %w", p.Original, code)
	})
	gone, undone := k.undo(revived)
	written, err = written-gone, errors.Join(err, undone)
	if full > 0 {
		err = errors.Join(fmt.Errorf("%d connections: %w", full, ErrFull), err)
	}
	if err != nil {
		err = fmt.Errorf("write connections: %w", err)
	}
	return max(written-ended, 0), err
}

// undo deletes entries that were made again of connections that had ended meanwhile, and returns their number.
func (k *Kernel) undo(revived map[*Put]bool) (int, error) {
	var ended []Connection
	for p, was := range revived {
		if was {
			ended = append(ended, p.Connection)
		}
	}
	return k.Delete(ended)
}

// step is the end of the entry that another one replaces, or the entry itself.
type step struct {
	*Put
	ends bool
}

func (k *Kernel) step(s *step) {
	if s.ends {
		k.remove(s.Instead)
		return
	}
	k.begin(s.Put)
	k.m.End()
}

// Delete forgets entries that Dump gave, and returns how many of them were still
// there.
func (k *Kernel) Delete(obsolete []Connection) (int, error) {
	deleted, err := send(k, obsolete, k.remove, func(c *Connection, code unix.Errno) error {
		if code == unix.ENOENT {
			return nil
		}
		return fmt.Errorf("connection %s: %w", c.Original, code)
	})
	if err != nil {
		err = fmt.Errorf("forget connections: %w", err)
	}
	return deleted, err
}

// send sends a message for each item, many at once, and returns the number that the kernel took. Judge turns
// a refusal into an error, or nil.
func send[T any](k *Kernel, items []T, write func(*T), judge func(*T, unix.Errno) error) (taken int, err error) {
	var refused []error
	count := 0
	for len(items) > 0 {
		part := items[:min(batch, len(items))]
		items = items[len(part):]
		k.m.Reset()
		for i := range part {
			write(&part[i])
		}
		err := k.conn.Do(&k.m, func(i int, code unix.Errno, _ []byte) {
			if code == 0 {
				taken++
			} else if err := judge(&part[i], code); err != nil {
				if count++; count <= shownErrors {
					refused = append(refused, err)
				}
			}
		})
		if err != nil {
			return taken, err
		}
	}
	if count > shownErrors {
		refused = append(refused, fmt.Errorf("and %d more", count-shownErrors))
	}
	return taken, errors.Join(refused...)
}

// begin writes the message of an entry but for its end.
func (k *Kernel) begin(p *Put) {
	flags := uint16(unix.NLM_F_ACK)
	if p.New {
		flags |= unix.NLM_F_CREATE | unix.NLM_F_EXCL
	}
	b := &k.m.Buffer
	k.m.Begin(subsystem, messageNew, flags, family(p.Original))
	putTuple(b, attrOriginal, p.Original)
	if p.New {
		p.putReply(b)
	}
	if p.Zone != 0 {
		b.Uint16(attrZone, p.Zone)
	}
	whole := p.New || p.Revive
	if whole {
		b.Uint32(attrStatus, p.statusToWrite())
		b.Uint32(attrTimeout, uint32(p.Timeout/time.Second))
	}
	putProtoinfo(b, p, whole)
	b.Uint32(attrMark, p.Mark&p.MarkMask)
	if !p.New {
		// A new entry has no mark, and the kernel takes no mask for it.
		b.Uint32(attrMarkMask, p.MarkMask)
	}
	if mask := p.labelMask(); mask != (Label{}) {
		b.Data(attrLabels, p.Label.bytes())
		b.Data(attrLabelsMask, mask.bytes())
	}
}

// putReply writes the direction of answers. The kernel wants it as it is without translation, and changes it then.
func (p *Put) putReply(b *nfnetlink.Buffer) {
	plain := p.Original.Reverse()
	putTuple(b, attrReply, plain)
	if p.Reply != plain {
		putTranslation(b, attrNATDestination, p.Reply.Src, p.Reply.SrcPort)
		putTranslation(b, attrNATSource, p.Reply.Dst, p.Reply.DstPort)
	}
}

// remove writes the message that forgets one entry.
func (k *Kernel) remove(c *Connection) {
	k.m.Begin(subsystem, messageDelete, unix.NLM_F_ACK, family(c.Original))
	putTuple(&k.m.Buffer, attrOriginal, c.Original)
	if c.Zone != 0 {
		k.m.Buffer.Uint16(attrZone, c.Zone)
	}
	k.m.End()
}
