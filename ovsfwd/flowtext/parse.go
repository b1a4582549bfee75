package flowtext

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/felixlike/felixlike/internal/files"
)

// Read parses the output of `ovs-ofctl dump-flows` of any OpenFlow version, and
// the lines that `ovs-ofctl add-flows` takes. A flow with an unknown field or action
// becomes Foreign; a line that is no flow is an error.
func Read(r io.Reader) ([]*Flow, error) {
	var all []*Flow
	err := files.Lines(r, func(number int, line string) error {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' || IsHeader(line) {
			return nil
		}
		f, err := Parse(line)
		if err != nil {
			return fmt.Errorf("line %d: %w", number, err)
		}
		f.Line = number
		all = append(all, f)
		return nil
	})
	return all, err
}

// IsHeader reports whether a line is the header of ovs-ofctl's answer.
func IsHeader(line string) bool {
	return strings.Contains(line, "reply") && (strings.HasPrefix(line, "OFPST_") || strings.HasPrefix(line, "NXST_"))
}

// Parse parses one flow. A flow with an unknown field or action becomes Foreign.
func Parse(line string) (*Flow, error) {
	line = strings.TrimSpace(line)
	head, actions, found := strings.Cut(line, "actions=")
	if !found {
		return nil, fmt.Errorf("no actions in %s", strconv.Quote(files.Excerpt(line)))
	}
	actions = strings.TrimSpace(actions)
	f := &Flow{Priority: 32768}
	var match []string
	for word := range strings.FieldsFuncSeq(head, func(c rune) bool { return c == ',' || c == ' ' }) {
		if about, err := f.about(word); err != nil {
			return nil, fmt.Errorf("%s: %w", files.Excerpt(word), err)
		} else if !about {
			match = append(match, word)
		}
	}
	err := parseMatch(f, match)
	if err == nil {
		f.Actions, err = parseActions(actions)
	}
	if err != nil {
		f.Match, f.Actions = nil, nil
		f.Foreign = strings.TrimSpace(strings.Join(match, ",") + " actions=" + actions)
	}
	return f, nil
}

// about takes a word that says something of the flow itself, and reports whether
// it was one.
func (f *Flow) about(word string) (bool, error) {
	name, value, _ := strings.Cut(word, "=")
	var err error
	switch name {
	case "duration", "idle_age", "hard_age", "importance", "send_flow_rem", "check_overlap", "reset_counts", "no_packet_counts", "no_byte_counts":
	case "cookie":
		f.Cookie, err = strconv.ParseUint(value, 0, 64)
	case "table":
		f.Table, err = number8(value)
	case "priority":
		f.Priority, err = number16(value)
	case "idle_timeout":
		f.IdleTimeout, err = number16(value)
	case "hard_timeout":
		f.HardTimeout, err = number16(value)
	case "n_packets":
		f.Packets, err = strconv.ParseUint(value, 0, 64)
	case "n_bytes":
		f.Bytes, err = strconv.ParseUint(value, 0, 64)
	default:
		return false, nil
	}
	return true, err
}
