package dump

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"

	"github.com/felixlike/felixlike/ovsfwd/openflow"
)

// ParseFlows parses the output of `ovs-ofctl dump-flows` of any OpenFlow version, and
// the lines that `ovs-ofctl add-flows` takes. A flow with an unknown field or action
// becomes Foreign; a line that is no flow is an error.
func ParseFlows(r io.Reader) ([]*Flow, error) {
	p := newFlowParser()
	var all []*Flow
	err := eachLine(r, func(number int, line string) error {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' || flowHeader(line) {
			return nil
		}
		f, err := p.flow(line)
		if err != nil {
			return fmt.Errorf("line %d: %w", number, err)
		}
		f.Line = number
		all = append(all, f)
		return nil
	})
	return all, err
}

// ParseFlow reads one flow in ovs-ofctl's notation.
func ParseFlow(line string) (*Flow, error) { return newFlowParser().flow(strings.TrimSpace(line)) }

// flowHeader reports whether a line is the header of ovs-ofctl's answer.
func flowHeader(line string) bool {
	return strings.Contains(line, "reply") && (strings.HasPrefix(line, "OFPST_") || strings.HasPrefix(line, "NXST_"))
}

// maxLine bounds a line: a flow with 4,000 conjunctions has some 120 kB.
const maxLine = 8 << 20

// eachLine calls f with every line, from 1.
func eachLine(r io.Reader, f func(number int, line string) error) error {
	s := bufio.NewScanner(r)
	s.Buffer(make([]byte, 64<<10), maxLine)
	for n := 1; s.Scan(); n++ {
		if err := f(n, s.Text()); err != nil {
			return err
		}
	}
	if errors.Is(s.Err(), bufio.ErrTooLong) {
		return fmt.Errorf("a line has more than %d bytes: this is no such listing", maxLine)
	}
	return s.Err()
}

// flowParser knows the fields by their names.
type flowParser struct{ fields map[string]openflow.Field }

func newFlowParser() *flowParser { return &flowParser{fields: flowFields()} }

// flowFields are the fields by their names in ovs-ofctl. The map is read-only.
var flowFields = sync.OnceValue(func() map[string]openflow.Field {
	fields := map[string]openflow.Field{}
	for _, f := range openflow.Fields() {
		for _, n := range f.Names() {
			fields[n] = f
		}
	}
	// These two stand for the ports of any protocol, icmp_type and icmp_code for
	// either ICMP.
	delete(fields, "tp_src")
	delete(fields, "tp_dst")
	return fields
})

// errForeign marks a rule or flow with a part that felixlike does not write.
var errForeign = errors.New("not of a form that felixlike writes")

func (p *flowParser) flow(line string) (*Flow, error) {
	head, actions, found := strings.Cut(line, "actions=")
	if !found {
		return nil, fmt.Errorf("no actions in %s", strconv.Quote(shortened(line)))
	}
	f := &Flow{Priority: 32768}
	var match []string
	for word := range strings.FieldsFuncSeq(head, func(c rune) bool { return c == ',' || c == ' ' }) {
		if about, err := f.about(word); err != nil {
			return nil, fmt.Errorf("%s: %w", shortened(word), err)
		} else if !about {
			match = append(match, word)
		}
	}
	err := p.match(f, match)
	if err == nil {
		f.Actions, err = p.actions(strings.TrimSpace(actions))
	}
	if err != nil {
		f.Match, f.Actions = nil, nil
		f.Foreign = strings.TrimSpace(strings.Join(match, ",") + " actions=" + strings.TrimSpace(actions))
	}
	return f, nil
}

// shortened is as much of a text as an error message wants.
func shortened(s string) string {
	const most = 80
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "..."
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

func number8(s string) (uint8, error) {
	n, err := strconv.ParseUint(s, 0, 8)
	return uint8(n), err
}

func number16(s string) (uint16, error) {
	n, err := strconv.ParseUint(s, 0, 16)
	return uint16(n), err
}

func number32(s string) (uint32, error) {
	n, err := strconv.ParseUint(s, 0, 32)
	return uint32(n), err
}
