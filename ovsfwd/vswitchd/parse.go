package vswitchd

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/ovsfwd/conntrack"
)

// unrepliedAbove is the remaining time above which a UDP or ICMP entry has no answer:
// the userspace datapath keeps answered entries for 30 seconds after the last packet,
// and others for 60 (OTHER_BIDIR, OTHER_FIRST, OTHER_MULTIPLE and the same of ICMP).
// An old entry without an answer looks like an answered one.
const unrepliedAbove = 30 * time.Second

// parseConnections reads the lines of dpctl/dump-conntrack. It leaves out unreadable
// lines and names them in the error.
func parseConnections(text string) ([]conntrack.Connection, error) {
	var all []conntrack.Connection
	var errs []error
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		c, err := parseConnection(line)
		if err != nil {
			errs = append(errs, fmt.Errorf("connection %q: %w", line, err))
			continue
		}
		all = append(all, c)
	}
	return all, errors.Join(errs...)
}

func parseConnection(line string) (conntrack.Connection, error) {
	name, rest, _ := strings.Cut(line, ",")
	protocol, err := parseProtocol(name)
	if err != nil {
		return conntrack.Connection{}, err
	}
	var c conntrack.Connection
	for rest != "" {
		var key, value string
		if key, value, rest, err = nextField(rest); err != nil {
			return c, err
		}
		if err := setField(&c, key, value); err != nil {
			return c, fmt.Errorf("%s: %w", key, err)
		}
	}
	if !c.Original.Src.IsValid() || !c.Reply.Src.IsValid() {
		return c, errors.New("a direction is missing")
	}
	c.Original.Protocol, c.Reply.Protocol = protocol, protocol
	if protocol == unix.IPPROTO_TCP {
		c.Replied = c.State >= conntrack.StateSynReceived
	} else {
		c.Replied = c.Timeout <= unrepliedAbove
	}
	return c, nil
}

func parseProtocol(name string) (uint8, error) {
	switch name {
	case "tcp":
		return unix.IPPROTO_TCP, nil
	case "udp":
		return unix.IPPROTO_UDP, nil
	case "icmp":
		return unix.IPPROTO_ICMP, nil
	case "icmpv6":
		return unix.IPPROTO_ICMPV6, nil
	case "sctp":
		return unix.IPPROTO_SCTP, nil
	case "udplite":
		return unix.IPPROTO_UDPLITE, nil
	case "dccp":
		return unix.IPPROTO_DCCP, nil
	case "igmp":
		return unix.IPPROTO_IGMP, nil
	}
	n, err := strconv.ParseUint(name, 10, 8)
	if err != nil {
		return 0, fmt.Errorf("unknown protocol %q", name)
	}
	return uint8(n), nil
}

// nextField splits off key=value or key=(...), and the comma behind it.
func nextField(s string) (key, value, rest string, err error) {
	key, s, found := strings.Cut(s, "=")
	if !found {
		return "", "", "", fmt.Errorf("%q has no value", key)
	}
	if !strings.HasPrefix(s, "(") {
		value, rest, _ = strings.Cut(s, ",")
		return key, value, rest, nil
	}
	value, rest, found = strings.Cut(s[1:], ")")
	if !found {
		return "", "", "", fmt.Errorf("%s: no closing bracket", key)
	}
	return key, value, strings.TrimPrefix(rest, ","), nil
}

func setField(c *conntrack.Connection, key, value string) (err error) {
	switch key {
	case "orig":
		c.Original, err = parseTuple(value)
	case "reply":
		c.Reply, err = parseTuple(value)
	case "zone":
		err = parseNumber(&c.Zone, value, 10)
	case "mark":
		err = parseNumber(&c.Mark, value, 10)
	case "labels":
		c.Label, err = parseLabel(value)
	case "timeout":
		var seconds uint32
		err = parseNumber(&seconds, value, 10)
		c.Timeout = time.Duration(seconds) * time.Second
	case "protoinfo":
		// The daemon sets BE_LIBERAL if it did not see the start of the connection.
		c.Liberal = strings.Contains(value, "flags_orig=BE_LIBERAL") && strings.Contains(value, "flags_reply=BE_LIBERAL")
		c.State, err = parseState(value)
	}
	return err
}

func parseTuple(s string) (conntrack.Tuple, error) {
	var t conntrack.Tuple
	for s != "" {
		key, value, rest, err := nextField(s)
		if err != nil {
			return t, err
		}
		s = rest
		switch key {
		case "src":
			t.Src, err = netip.ParseAddr(value)
		case "dst":
			t.Dst, err = netip.ParseAddr(value)
		case "sport":
			err = parseNumber(&t.SrcPort, value, 10)
		case "dport":
			err = parseNumber(&t.DstPort, value, 10)
		case "id":
			err = parseNumber(&t.ICMPID, value, 10)
		case "type":
			err = parseNumber(&t.ICMPType, value, 10)
		case "code":
			err = parseNumber(&t.ICMPCode, value, 10)
		}
		if err != nil {
			return t, fmt.Errorf("%s: %w", key, err)
		}
	}
	if !t.Src.IsValid() || t.Src.Is4() != t.Dst.Is4() || !t.Dst.IsValid() {
		return t, errors.New("needs two addresses of one family")
	}
	return t, nil
}

func parseNumber[N uint8 | uint16 | uint32 | uint64](n *N, s string, base int) error {
	v, err := strconv.ParseUint(s, base, 64)
	if err != nil {
		return err
	}
	if *n = N(v); uint64(*n) != v {
		return fmt.Errorf("%s is too large", s)
	}
	return nil
}

// parseLabel reads 128 bits in hexadecimal.
func parseLabel(s string) (conntrack.Label, error) {
	var l conntrack.Label
	digits, found := strings.CutPrefix(s, "0x")
	if !found || len(digits) > 32 {
		return l, fmt.Errorf("%q is no label", s)
	}
	low := max(0, len(digits)-16)
	if low > 0 {
		if err := parseNumber(&l.High, digits[:low], 16); err != nil {
			return l, err
		}
	}
	return l, parseNumber(&l.Low, digits[low:], 16)
}

// parseState reads the state of a TCP connection. Verbose dumps have the state of each end. It shows whether
// an end that has sent everything still receives, or the connection is over.
func parseState(s string) (conntrack.State, error) {
	state, closed := conntrack.StateNone, 0
	for s != "" {
		key, value, rest, err := nextField(s)
		if err != nil {
			return state, err
		}
		s = rest
		switch key {
		case "state", "state_orig", "state_reply":
			one, known := stateOf(value)
			if !known {
				return state, fmt.Errorf("unknown state %q", value)
			}
			if value == "FIN_WAIT_2" {
				closed++
			}
			state = max(state, one)
		}
	}
	if closed == 2 {
		state = conntrack.StateTimeWait
	}
	return state, nil
}

// stateOf maps the daemon's names, which follow RFC 793, to the kernel's states.
// An end that is closed has sent nothing yet.
func stateOf(name string) (conntrack.State, bool) {
	switch name {
	case "CLOSED", "LISTEN":
		return conntrack.StateNone, true
	case "SYN_SENT":
		return conntrack.StateSynSent, true
	case "SYN_RECV":
		return conntrack.StateSynReceived, true
	case "ESTABLISHED":
		return conntrack.StateEstablished, true
	case "FIN_WAIT_1", "FIN_WAIT_2":
		return conntrack.StateFinWait, true
	case "CLOSE_WAIT":
		return conntrack.StateCloseWait, true
	case "CLOSING", "LAST_ACK":
		return conntrack.StateLastAck, true
	case "TIME_WAIT":
		return conntrack.StateTimeWait, true
	}
	return conntrack.StateNone, false
}
