package watch

import "golang.org/x/sys/unix"

// witness reports whether other programs have changed the objects of a dump.
type witness struct {
	s      *Subscription
	family uint8
	table  string
	kind   uint16 // of the dump
	buffer []byte
}

// NewWitness begins to watch the objects of a dump: its message kind (NFT_MSG_GETRULE, ...) and its table of the family.
// buffer bounds the bytes in its socket.
func NewWitness(netns, buffer int, family uint8, table string, kind uint16) (*witness, error) {
	s, _, err := Subscribe(netns, buffer)
	if err != nil {
		return nil, err
	}
	return &witness{s: s, family: family, table: table, kind: kind, buffer: make([]byte, DatagramSize)}, nil
}

func (w *witness) Close() error { return w.s.Close() }

// Disturbed reports whether a change that makes the dump worthless was received since
// the last call, or may have been lost.
func (w *witness) Disturbed() (bool, error) {
	disturbed := false
	lost, err := w.s.Drain(w.buffer, func(datagram []byte) {
		disturbed = w.concerned(datagram) || disturbed
	})
	return disturbed || lost, err
}

func (w *witness) concerned(datagram []byte) bool {
	for h, payload := range Messages(datagram) {
		message := h.Kind & 0xff
		if message == unix.NFT_MSG_NEWGEN || len(payload) < HeaderSize || payload[0] != w.family {
			continue
		}
		if _, _, ours := Concerns(message, payload[HeaderSize:], w.table); ours {
			return true
		}
		// Chains are listed of all tables of the family, and counted over all.
		if w.kind != unix.NFT_MSG_GETCHAIN {
			continue
		}
		switch message {
		case unix.NFT_MSG_NEWCHAIN, unix.NFT_MSG_DELCHAIN, unix.NFT_MSG_NEWTABLE, unix.NFT_MSG_DELTABLE:
			return true
		}
	}
	return false
}
