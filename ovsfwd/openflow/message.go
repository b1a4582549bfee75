package openflow

import (
	"encoding/binary"
	"fmt"
	"io"
	"sync"

	"antrea.io/libOpenflow/util"
)

const headerLen = 8

// message is one received OpenFlow message, header included.
type message []byte

func (m message) kind() uint8 { return m[1] }

func (m message) xid() uint32 { return binary.BigEndian.Uint32(m[4:]) }

func (m message) body() []byte { return m[headerLen:] }

// messages sends messages in order.
func messages(msgs ...util.Message) func(io.Writer) error {
	return func(w io.Writer) error {
		for _, m := range msgs {
			if err := write(w, m); err != nil {
				return err
			}
		}
		return nil
	}
}

func write(w io.Writer, m util.Message) error {
	b, err := m.MarshalBinary()
	if err != nil {
		return fmt.Errorf("encode: %w", err)
	}
	_, err = w.Write(b)
	return err
}

func readMessage(r io.Reader) (message, error) {
	header := make([]byte, headerLen)
	if _, err := io.ReadFull(r, header); err != nil {
		return nil, err
	}
	size := int(binary.BigEndian.Uint16(header[2:]))
	if size < headerLen {
		return nil, fmt.Errorf("message of impossible length %d", size)
	}
	m := append(header, make([]byte, size-headerLen)...)
	_, err := io.ReadFull(r, m[headerLen:])
	return m, err
}

// mailbox holds received messages for the operation in progress. It is
// unbounded, so that the reader never waits for an operation still sending.
type mailbox struct {
	mu    sync.Mutex
	wants bool
	msgs  []message
	ready chan struct{}
}

func (b *mailbox) open() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.wants = true
}

func (b *mailbox) shut() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.wants, b.msgs = false, nil
}

func (b *mailbox) put(m message) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.wants {
		return
	}
	b.msgs = append(b.msgs, m)
	select {
	case b.ready <- struct{}{}:
	default:
	}
}

func (b *mailbox) take() []message {
	b.mu.Lock()
	defer b.mu.Unlock()
	msgs := b.msgs
	b.msgs = nil
	return msgs
}
