package conntrack

import (
	"errors"
	"fmt"

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

// Put is an entry to write.
type Put struct {
	Connection
	// New means that there is no entry yet; otherwise the entry comes from Dump.
	New bool
	// MarkMask selects the bits of the mark that are set as in Mark; all others
	// stay.
	MarkMask uint32
	// ClearLabel has the bits of the label that are cleared unless Label has them.
	ClearLabel Label
	// Revive also writes state, timeout and flags of an existing entry. Without it, the entry only gets the
	// mark and, if desired, liberal windows. Translations of addresses are never changed.
	Revive bool
}

// Write writes entries and returns their number. Entries that were created or ended meanwhile are not counted
// and are no error. Other refusals are errors, and do not stop the other entries.
func (k *Kernel) Write(puts []Put) (int, error) {
	written, err := send(k, puts, k.put, func(p *Put, code unix.Errno) error {
		if code == unix.EEXIST && p.New || code == unix.ENOENT && !p.New {
			return nil
		}
		return fmt.Errorf("connection %s: %w", p.Original, code)
	})
	if err != nil {
		err = fmt.Errorf("write connections: %w", err)
	}
	return written, err
}

// Delete forgets entries that Dump gave, and returns how many of them were still
// there.
func (k *Kernel) Delete(doomed []Connection) (int, error) {
	deleted, err := send(k, doomed, k.remove, func(c *Connection, code unix.Errno) error {
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
