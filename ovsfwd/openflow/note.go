package openflow

import (
	"encoding/binary"
	"fmt"
	"strings"

	"antrea.io/libOpenflow/openflow15"
)

// NoteText is the text of a note. Its length needs no padding.
type NoteText [14]byte

// Note keeps a text in a flow, and does nothing to packets. FlowStats returns it if it is
// the first action.
func Note(text NoteText) Action { return note(text) }

type note NoteText

// String returns "note:00.01.02" and so on.
func (a note) String() string {
	words := make([]string, len(a))
	for i := range a {
		words[i] = fmt.Sprintf("%02x", a[i])
	}
	return "note:" + strings.Join(words, ".")
}

func (a note) wire(b []byte) ([]byte, error) {
	start := len(b)
	return endAction(append(startNicira(b, niciraNote), a[:]...), start), nil
}

// Sizes of the headers of an apply-actions instruction and of its first action.
const (
	instructionHeader = 8
	noteHeader        = 10
	noteSize          = instructionHeader + noteHeader + len(NoteText{})
)

// note returns the text of the note that the actions begin with, zero if there is none.
func (e flowEntry) note() NoteText {
	b := e.instructions
	if len(b) < noteSize || binary.BigEndian.Uint16(b) != openflow15.InstrType_APPLY_ACTIONS {
		return NoteText{}
	}
	start, _ := note{}.wire(nil)
	if string(b[instructionHeader:instructionHeader+noteHeader]) != string(start[:noteHeader]) {
		return NoteText{}
	}
	return NoteText(b[instructionHeader+noteHeader : noteSize])
}
