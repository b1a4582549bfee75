package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/internal/nfnetlink"
	"github.com/felixlike/felixlike/tables/nftables/expression"
)

// keptBatch is the most memory for a batch that is kept for the next one.
const keptBatch = 1 << 20

// messageSize is the size that most messages about rules stay below.
const messageSize = 640

// Commit sends the operations as one transaction: one system call, which returns when the kernel has
// committed or refused it. If the kernel refuses an operation, or an operation cannot be written, nothing is
// changed, and the error is a RefusedError that names the objects. After errUnknownOutcome, the transaction
// may be committed or not.
func (c *Conn) Commit(ops []Op) error {
	if err := c.injected(ops); err != nil {
		return err
	}
	a, err := c.transact(ops, true)
	if err != nil {
		return err
	}
	return a.outcome(c.table)
}

// Check has the kernel check the operations, and change nothing, as nft --check does. What the kernel says of them is lost.
func (c *Conn) Check(ops []Op) error {
	_, err := c.transact(ops, false)
	return err
}

// transact sends the operations as one transaction and reads the answers. The kernel commits it only if it has an end.
func (c *Conn) transact(ops []Op, end bool) (*answer, error) {
	first := c.sequence + 1 // of the batch's begin; the operations follow
	if bad := c.encode(ops, first, end); bad != nil {
		return nil, &RefusedError{Objects: []*ObjectError{bad}}
	}
	c.sequence = first + uint32(len(ops)) + 1
	rc, err := c.raw.SyscallConn()
	if err != nil {
		return nil, err
	}
	if err := nfnetlink.Send(rc, c.batch.B); err != nil {
		return nil, fmt.Errorf("send %d messages: %w", len(ops), err)
	}
	if cap(c.batch.B) > keptBatch {
		c.batch.B = nil
	}
	a := &answer{ops: ops, first: first, digests: &c.digests}
	return a, a.read(rc, c.buffer)
}

// encode writes the transaction, with its end or without. Only its last message asks for an acknowledgement: the kernel handles all
// messages, even after a refusal, and answers when it has committed. It returns the operation that cannot be
// written, or nil.
func (c *Conn) encode(ops []Op, first uint32, end bool) *ObjectError {
	m := &c.batch
	m.Reset()
	m.B = slices.Grow(m.B, messageSize*len(ops))
	m.Begin(unix.NFNL_MSG_BATCH_BEGIN, 0, first, unix.AF_UNSPEC, unix.NFNL_SUBSYS_NFTABLES)
	m.End()
	for i := range ops {
		flags := uint16(0)
		if i == len(ops)-1 {
			flags = unix.NLM_F_ACK
		}
		err := ops[i].encode(m, c.family, c.table, uint32(i)+1, first+1+uint32(i), flags)
		if err == nil && m.Long {
			err = errors.New("it does not fit in a message")
		}
		if err != nil {
			return ops[i].failed(c.table, err)
		}
	}
	if !end {
		return nil
	}
	m.Begin(unix.NFNL_MSG_BATCH_END, 0, first+1+uint32(len(ops)), unix.AF_UNSPEC, unix.NFNL_SUBSYS_NFTABLES)
	m.End()
	return nil
}

// failed returns the error with the operation's object.
func (o *Op) failed(table string, err error) *ObjectError {
	e := o.About(table)
	e.Err = err
	return &e
}

// answer collects the kernel's replies to a transaction.
type answer struct {
	ops   []Op
	first uint32 // the sequence number of the batch's begin
	// digests are those of the connection, for echoed rules.
	digests *expression.Digester
	// acknowledged reports that the last message was acknowledged, lost that another message was not
	// delivered.
	acknowledged, lost bool
	refused            []refusedOp
	// commit is an error that concerns no message of its own.
	commit error
}

// read reads all messages in the socket. The kernel queues its answers before the system call that sends
// the batch returns, so a missing answer will not come.
func (a *answer) read(rc syscall.RawConn, buffer []byte) error {
	var err error
	wait := rc.Control(func(fd uintptr) {
		for err == nil {
			var n int
			n, err = unix.Read(int(fd), buffer)
			switch {
			case err == unix.EINTR:
				err = nil
			case err == unix.ENOBUFS:
				a.lost, err = true, nil
			case err == nil:
				err = a.note(buffer[:n])
			}
		}
	})
	if err == unix.EAGAIN {
		err = nil
	}
	if err = errors.Join(wait, err); err != nil {
		return fmt.Errorf("%w: %w", errUnknownOutcome, err)
	}
	return nil
}

// note takes one datagram of answers.
func (a *answer) note(b []byte) error {
	for len(b) >= unix.NLMSG_HDRLEN {
		size := int(binary.NativeEndian.Uint32(b))
		if size < unix.NLMSG_HDRLEN || size > len(b) {
			return errMalformed
		}
		kind, flags := binary.NativeEndian.Uint16(b[4:]), binary.NativeEndian.Uint16(b[6:])
		// A message with an earlier sequence number is not about this transaction.
		at := int64(int32(binary.NativeEndian.Uint32(b[8:]) - a.first))
		payload := b[unix.NLMSG_HDRLEN:size]
		b = b[min(len(b), nfnetlink.Align(size)):]
		switch {
		case at < 0 || at > int64(len(a.ops))+1:
		case kind == unix.NLMSG_ERROR && len(payload) >= 4:
			a.noteError(int(at)-1, flags, payload)
		case kind == unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_NEWRULE && at > 0 && at <= int64(len(a.ops)) && len(payload) >= 4:
			if o := &a.ops[at-1]; o.Echo != nil {
				a.noteEcho(o.Echo, payload[4:])
			}
		}
	}
	return nil
}

// noteError takes the acknowledgement, or the refusal, of the operation at i. With an i outside the
// operations it concerns the transaction as a whole.
func (a *answer) noteError(i int, flags uint16, payload []byte) {
	if code := number32(payload); code == 0 {
		a.acknowledged = a.acknowledged || i == len(a.ops)-1
		return
	}
	offset, err := reason(flags, payload)
	if i < 0 || i == len(a.ops) {
		a.commit = errors.Join(a.commit, err)
		return
	}
	a.refused = append(a.refused, refusedOp{i, err, offset})
}

// reason returns the kernel's error, with its explanation, and the offset in the message that it names; zero
// if it names none.
func reason(flags uint16, payload []byte) (offset int, err error) {
	err = fmt.Errorf("the kernel refuses: %w", unix.Errno(-number32(payload)))
	if flags&unix.NLM_F_ACK_TLVS == 0 || len(payload) < 4+unix.NLMSG_HDRLEN {
		return 0, err
	}
	// struct nlmsgerr: the code, the header of the message, and if not capped
	// the message.
	at := 4 + unix.NLMSG_HDRLEN
	if flags&unix.NLM_F_CAPPED == 0 {
		at = 4 + nfnetlink.Align(int(binary.NativeEndian.Uint32(payload[4:])))
	}
	for kind, v := range nfnetlink.Attributes(payload[min(len(payload), max(at, 0)):]) {
		switch kind {
		case unix.NLMSGERR_ATTR_MSG:
			err = fmt.Errorf("%w (%s)", err, nfnetlink.Text(v))
		case unix.NLMSGERR_ATTR_OFFS:
			if len(v) == 4 {
				offset = int(number32(v))
			}
		}
	}
	return offset, err
}

// noteEcho takes the rule as the kernel holds it now.
func (a *answer) noteEcho(r *Rule, payload []byte) {
	for kind, v := range nfnetlink.Attributes(payload) {
		switch kind {
		case unix.NFTA_RULE_HANDLE:
			r.Handle = nfnetlink.Uint64(v)
		case unix.NFTA_RULE_EXPRESSIONS:
			r.Digest = a.digests.Digest(v)
		}
	}
}

// outcome returns the result of the transaction.
func (a *answer) outcome(table string) error {
	switch {
	case len(a.refused) > 0 || a.commit != nil:
		e := &RefusedError{Refused: a.refused, Commit: a.commit}
		for _, r := range a.refused {
			o := &a.ops[r.Index]
			e.Objects = append(e.Objects, o.narrowed(table, r.offset).failed(table, r.err))
		}
		return e
	case a.lost:
		return fmt.Errorf("%w: %w", errUnknownOutcome, unix.ENOBUFS)
	case !a.acknowledged:
		return fmt.Errorf("%w: the kernel does not acknowledge", errUnknownOutcome)
	}
	return nil
}

// errUnknownOutcome says that an answer of the kernel is lost: whether it has
// committed the transaction is not known.
var errUnknownOutcome = errors.New("the outcome is not known")

// refusedOp is an operation that the kernel refuses.
type refusedOp struct {
	Index int
	err   error
	// offset is where in its message the trouble is, zero if the kernel does not
	// say.
	offset int
}

// RefusedError says why the kernel has refused a transaction. It has changed nothing.
type RefusedError struct {
	// Refused are the operations that the kernel refuses, in order, and Objects their objects. Some may be
	// refused only because another is.
	Refused []refusedOp
	Objects []*ObjectError
	// Commit is an error that the kernel gives for the transaction as a whole.
	Commit error
}

// maxListed bounds the errors in the text.
const maxListed = 4

// Error lists the first errors; the others are mostly consequences.
func (e *RefusedError) Error() string {
	var parts []string
	for i, o := range e.Objects {
		if i == maxListed {
			parts = append(parts, fmt.Sprintf("and %d more", len(e.Objects)-i))
			break
		}
		parts = append(parts, o.Error())
	}
	if e.Commit != nil {
		parts = append(parts, fmt.Sprintf("commit: %v", e.Commit))
	}
	return strings.Join(parts, "; ")
}

// Unwrap returns all of them.
func (e *RefusedError) Unwrap() []error {
	var out []error
	for _, o := range e.Objects {
		out = append(out, o)
	}
	if e.Commit != nil {
		out = append(out, e.Commit)
	}
	return out
}

// ErrUnnamed is the error of Options.Fault for a refused transaction without a named message, as when a
// commit fails.
var ErrUnnamed = errors.New("the kernel names nothing")

// injected returns the refusal that the fault hook has for a transaction, or nil.
func (c *Conn) injected(ops []Op) error {
	if c.fault == nil {
		return nil
	}
	a := answer{ops: ops, acknowledged: true}
	for i := range ops {
		err := c.fault(ops[i].About(c.table).ObjectError)
		switch {
		case errors.Is(err, ErrUnnamed):
			a.commit = fmt.Errorf("the kernel refuses: %w", err)
		case err != nil:
			a.refused = append(a.refused, refusedOp{Index: i, err: fmt.Errorf("the kernel refuses: %w", err)})
		}
	}
	if a.commit != nil {
		a.refused = nil
	}
	return a.outcome(c.table)
}
