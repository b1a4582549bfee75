package openflow

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"math"

	"antrea.io/libOpenflow/openflow15"
)

// bundleFlags: all or nothing, and in the order given.
const bundleFlags = openflow15.BF_ATOMIC | openflow15.BF_ORDERED

// Bundle applies all changes in order, or none. If the switch refuses flows, a
// *BundleError names them; every other error means a broken connection, or comes
// from the sequence. To name the refused changes, Bundle iterates over the sequence
// a second time.
func (c *Conn) Bundle(ctx context.Context, mods iter.Seq2[FlowMod, error]) error {
	if err := c.Err(); err != nil {
		return fmt.Errorf("openflow connection lost: %w", err)
	}
	c.op.Lock()
	defer c.op.Unlock()
	c.bundle++
	b := &bundle{conn: c, id: c.bundle, mods: mods, refused: map[uint32]string{}}
	if err := b.open(ctx); err != nil {
		return err
	}
	if b.failed != nil {
		return errors.Join(b.failed, b.control(ctx, openflow15.BCT_DISCARD_REQUEST))
	}
	if len(b.refused) > 0 {
		return errors.Join(b.refusals(), b.control(ctx, openflow15.BCT_DISCARD_REQUEST))
	}
	if err := b.control(ctx, openflow15.BCT_COMMIT_REQUEST); err != nil {
		return err
	}
	if len(b.refused) > 0 {
		// A failed commit leaves no bundle to discard.
		return b.refusals()
	}
	return nil
}

// bundle is one bundle on its way.
type bundle struct {
	conn *Conn
	id   uint32
	mods iter.Seq2[FlowMod, error]
	// first is the transaction id of the first change; the others follow it.
	first, count uint32
	// failed is the error of the sequence that ended it.
	failed error
	// refused are the reasons by number of the change.
	refused map[uint32]string
}

// open opens the bundle, adds the changes and collects refusals until the reply to
// a barrier.
func (b *bundle) open(ctx context.Context) error {
	opening, barrier := b.conn.nextXID(), b.conn.nextXID()
	b.first = b.conn.xid + 1
	encoding := map[uint32]string{}
	err := b.conn.exchange(ctx, func(w io.Writer) error {
		ctrl := openflow15.NewBundleCtrl(b.id, openflow15.BCT_OPEN_REQUEST, bundleFlags)
		ctrl.Xid = opening
		if err := write(w, ctrl); err != nil {
			return err
		}
		if err := b.add(w, encoding); err != nil {
			return err
		}
		end := openflow15.NewBarrierRequest()
		end.Xid = barrier
		return write(w, end)
	}, func(m message) (bool, error) {
		switch m.kind() {
		case openflow15.Type_Error:
			if m.xid() == opening {
				return true, b.broken("open", m)
			}
			return false, b.note(m)
		case openflow15.Type_BarrierReply:
			return m.xid() == barrier, nil
		}
		return false, nil
	})
	b.conn.xid += b.count
	maps.Copy(b.refused, encoding)
	return err
}

// add sends the changes one by one. Those that cannot be encoded are noted and
// left out: the bundle will be discarded.
func (b *bundle) add(w io.Writer, refused map[uint32]string) error {
	var buf []byte
	for mod, err := range b.mods {
		if err != nil {
			b.failed = err
			return nil
		}
		m, err := b.encode(buf[:0], mod, b.first+b.count)
		if err != nil {
			refused[b.count] = err.Error()
		} else if _, err := w.Write(m); err != nil {
			return err
		} else {
			buf = m
		}
		b.count++
	}
	return nil
}

// encode appends one change as a message of the bundle.
func (b *bundle) encode(m []byte, mod FlowMod, xid uint32) ([]byte, error) {
	m = append(m, openflow15.VERSION, openflow15.Type_BundleAddMessage, 0, 0)
	m = binary.BigEndian.AppendUint32(m, xid)
	m = binary.BigEndian.AppendUint32(m, b.id)
	m = append(m, 0, 0)
	m = binary.BigEndian.AppendUint16(m, bundleFlags)
	// The inner message's transaction id must equal the outer one's.
	m, err := mod.wire(m, xid)
	if err != nil {
		return nil, err
	}
	if len(m) > math.MaxUint16 {
		return nil, fmt.Errorf("%d bytes of actions and match, more than a message holds", len(m))
	}
	binary.BigEndian.PutUint16(m[2:], uint16(len(m)))
	return m, nil
}

// refusals returns a *BundleError with the refused changes.
func (b *bundle) refusals() error {
	e := &BundleError{}
	i := uint32(0)
	for mod, err := range b.mods {
		if err != nil {
			return err
		}
		if why, found := b.refused[i]; found {
			e.Refusals = append(e.Refusals, Refusal{mod, why})
		}
		i++
	}
	return e
}

// control sends one bundle request and waits for its reply. Errors of single
// changes that come meanwhile are noted.
func (b *bundle) control(ctx context.Context, request uint16) error {
	ctrl := openflow15.NewBundleCtrl(b.id, request, bundleFlags)
	ctrl.Xid = b.conn.nextXID()
	return b.conn.exchange(ctx, messages(ctrl), func(m message) (bool, error) {
		switch {
		case m.kind() == openflow15.Type_Error && m.xid() == ctrl.Xid:
			if len(b.refused) > 0 {
				return true, nil
			}
			return true, b.broken("commit", m)
		case m.kind() == openflow15.Type_Error:
			return false, b.note(m)
		}
		return m.kind() == openflow15.Type_BundleControl && m.xid() == ctrl.Xid, nil
	})
}

// note maps an error to the change that caused it.
func (b *bundle) note(m message) error {
	if m.xid() < b.first {
		return b.broken("message", m)
	}
	b.refused[m.xid()-b.first] = reason(m)
	return nil
}

// broken is an error that belongs to no change. The connection is closed, which
// discards the open bundle.
func (b *bundle) broken(what string, m message) error {
	err := fmt.Errorf("openflow bundle: %s refused: %s", what, reason(m))
	b.conn.fail(err)
	return err
}
