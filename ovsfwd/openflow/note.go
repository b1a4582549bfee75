package openflow

import (
	"fmt"
	"strings"
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
