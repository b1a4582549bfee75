package ovstest

import (
	"fmt"
	"maps"
	"math/big"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Flow is a flow in ovs-ofctl notation, parsed so that notations which mean
// the same are equal: load and set_field, resubmit at the end and goto_table,
// words like "tcp" and the fields they stand for, any order of fields.
type Flow struct {
	Table    uint8
	Priority uint16
	// Match holds value and mask of each field.
	Match map[string]Bits
	// Actions are in order; none means drop.
	Actions []string
}

// Bits are the bits of a field that a match compares.
type Bits struct{ Value, Mask *big.Int }

// ParseFlow parses one line of a dump.
func ParseFlow(text string) (Flow, error) {
	match, actions, found := strings.Cut(strings.TrimSpace(text), "actions=")
	if !found {
		return Flow{}, fmt.Errorf("no actions in %q", text)
	}
	f := Flow{Priority: 32768, Match: map[string]Bits{}}
	for word := range strings.FieldsFuncSeq(match, func(r rune) bool { return r == ',' || r == ' ' }) {
		if err := f.parseMatch(word); err != nil {
			return Flow{}, fmt.Errorf("%q: %w", text, err)
		}
	}
	words := splitActions(strings.TrimSpace(actions))
	for i, word := range words {
		a, err := canonicalAction(word, i == len(words)-1)
		if err != nil {
			return Flow{}, fmt.Errorf("%q: %w", text, err)
		}
		if a != "drop" {
			f.Actions = append(f.Actions, a)
		}
	}
	return f, nil
}

// String returns the flow in one canonical form.
func (f Flow) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "table=%d,priority=%d", f.Table, f.Priority)
	for _, name := range slices.Sorted(maps.Keys(f.Match)) {
		fmt.Fprintf(&b, ",%s=%#x/%#x", name, f.Match[name].Value, f.Match[name].Mask)
	}
	actions := "drop"
	if len(f.Actions) > 0 {
		actions = strings.Join(f.Actions, ",")
	}
	return b.String() + " actions=" + actions
}

// Covers reports whether every packet that o matches is matched by f too.
func (f Flow) Covers(o Flow) bool {
	for name, mine := range f.Match {
		theirs, found := o.Match[name]
		if !found || new(big.Int).AndNot(mine.Mask, theirs.Mask).Sign() != 0 ||
			new(big.Int).And(theirs.Value, mine.Mask).Cmp(mine.Value) != 0 {
			return false
		}
	}
	return true
}

func (f *Flow) parseMatch(word string) error {
	name, value, hasValue := strings.Cut(word, "=")
	switch name {
	case "cookie", "duration", "n_packets", "n_bytes", "idle_timeout", "hard_timeout", "reset_counts":
		return nil
	case "table":
		n, err := strconv.ParseUint(value, 0, 8)
		f.Table = uint8(n)
		return err
	case "priority":
		n, err := strconv.ParseUint(value, 0, 16)
		f.Priority = uint16(n)
		return err
	case "ct_state":
		return f.parseFlags(name, value, []string{"new", "est", "rel", "rpl", "inv", "trk", "snat", "dnat"})
	case "tcp_flags":
		return f.parseFlags(name, value, []string{"fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr", "ns"})
	}
	if !hasValue {
		fields, known := protocolWords()[name]
		if !known {
			return fmt.Errorf("unknown word %q", name)
		}
		for field, n := range fields {
			f.Match[field] = Bits{big.NewInt(n), ones(fieldBits(field))}
		}
		return nil
	}
	switch name {
	case "ipv6_src":
		name = "nw_src"
	case "ipv6_dst":
		name = "nw_dst"
	}
	text, maskText, masked := strings.Cut(value, "/")
	v, width, err := parseValue(text, fieldBits(name))
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	mask := ones(width)
	if masked {
		if mask, err = parseMask(text, maskText, width); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	f.Match[name] = Bits{v.And(v, mask), mask}
	return nil
}

// parseFlags reads flags that have names from the lowest bit.
func (f *Flow) parseFlags(field, text string, names []string) error {
	value, mask := new(big.Int), new(big.Int)
	for _, flag := range stateFlag.FindAllString(text, -1) {
		i := slices.Index(names, flag[1:])
		if i < 0 {
			return fmt.Errorf("%s: unknown flag %q", field, flag)
		}
		mask.SetBit(mask, i, 1)
		if flag[0] == '+' {
			value.SetBit(value, i, 1)
		}
	}
	f.Match[field] = Bits{value, mask}
	return nil
}

func protocolWords() map[string]map[string]int64 {
	const v4, v6 = 0x0800, 0x86dd
	word := func(ethType int64, proto ...int64) map[string]int64 {
		m := map[string]int64{"dl_type": ethType}
		if len(proto) > 0 {
			m["nw_proto"] = proto[0]
		}
		return m
	}
	return map[string]map[string]int64{
		"ip": word(v4), "ipv6": word(v6), "arp": word(0x0806),
		"icmp": word(v4, 1), "tcp": word(v4, 6), "udp": word(v4, 17), "sctp": word(v4, 132),
		"icmp6": word(v6, 58), "tcp6": word(v6, 6), "udp6": word(v6, 17), "sctp6": word(v6, 132),
	}
}

// fieldBits is the width of a field that its value does not show.
func fieldBits(name string) int {
	switch name {
	case "dl_type", "tp_src", "tp_dst", "arp_op":
		return 16
	case "nw_proto", "icmp_type", "icmp_code":
		return 8
	case "ct_label":
		return 128
	}
	return 32
}

func ones(bits int) *big.Int {
	n := big.NewInt(1)
	return n.Sub(n.Lsh(n, uint(bits)), big.NewInt(1))
}

// parseValue reads a number, an IP or an Ethernet address.
func parseValue(text string, bits int) (*big.Int, int, error) {
	if a, err := netip.ParseAddr(text); err == nil {
		return new(big.Int).SetBytes(a.AsSlice()), a.BitLen(), nil
	}
	if mac, err := net.ParseMAC(text); err == nil {
		return new(big.Int).SetBytes(mac), 48, nil
	}
	n, ok := new(big.Int).SetString(text, 0)
	if !ok {
		return nil, 0, fmt.Errorf("%q is no value", text)
	}
	return n, bits, nil
}

func parseMask(value, text string, width int) (*big.Int, error) {
	if _, err := netip.ParseAddr(value); err == nil {
		if length, err := strconv.Atoi(text); err == nil {
			mask := ones(length)
			return mask.Lsh(mask, uint(width-length)), nil
		}
	}
	mask, _, err := parseValue(text, width)
	return mask, err
}

// splitActions splits at the commas outside brackets.
func splitActions(text string) []string {
	var words []string
	depth, start := 0, 0
	for i, r := range text {
		switch r {
		case '(':
			depth++
		case ')':
			depth--
		case ',':
			if depth == 0 {
				words, start = append(words, text[start:i]), i+1
			}
		}
	}
	return append(words, text[start:])
}

var (
	stateFlag    = regexp.MustCompile(`[+-]\w+`)
	loadAction   = regexp.MustCompile(`^load:(\w+)->(\w+)\[(?:(\d+)(?:\.\.(\d+))?)?\]$`)
	setAction    = regexp.MustCompile(`^set_field:([^/]+)(?:/(.+))?->(\w+)$`)
	lastResubmit = regexp.MustCompile(`^resubmit\(,(\d+)\)$`)
	ctAction     = regexp.MustCompile(`^ct\((.*)\)$`)
)

func canonicalAction(word string, last bool) (string, error) {
	if m := lastResubmit.FindStringSubmatch(word); m != nil && last {
		return "goto_table:" + m[1], nil
	}
	if m := ctAction.FindStringSubmatch(word); m != nil {
		return canonicalCT(splitActions(m[1]))
	}
	if m := setAction.FindStringSubmatch(word); m != nil {
		value, width, err := parseValue(m[1], fieldBits(m[3]))
		if err != nil {
			return "", err
		}
		mask := ones(width)
		if m[2] != "" {
			if mask, err = parseMask(m[1], m[2], width); err != nil {
				return "", err
			}
		}
		return fmt.Sprintf("set:%s=%#x/%#x", m[3], value, mask), nil
	}
	if m := loadAction.FindStringSubmatch(word); m != nil {
		return canonicalLoad(m[1], m[2], m[3], m[4])
	}
	return word, nil
}

func canonicalCT(words []string) (string, error) {
	for i, w := range words {
		inner, found := strings.CutPrefix(w, "exec(")
		if !found {
			continue
		}
		exec := splitActions(strings.TrimSuffix(inner, ")"))
		for j, e := range exec {
			a, err := canonicalAction(e, false)
			if err != nil {
				return "", err
			}
			exec[j] = a
		}
		words[i] = "exec(" + strings.Join(exec, ",") + ")"
	}
	slices.Sort(words)
	return "ct(" + strings.Join(words, ",") + ")", nil
}

// canonicalLoad writes a load as the set_field that does the same.
func canonicalLoad(value, field, first, last string) (string, error) {
	name, width := setName(field)
	v, ok := new(big.Int).SetString(value, 0)
	if !ok {
		return "", fmt.Errorf("%q is no value", value)
	}
	from, to := 0, width-1
	if first != "" {
		from, _ = strconv.Atoi(first)
		to = from
	}
	if last != "" {
		to, _ = strconv.Atoi(last)
	}
	mask := ones(to - from + 1)
	return fmt.Sprintf("set:%s=%#x/%#x", name, v.Lsh(v, uint(from)), mask.Lsh(mask, uint(from))), nil
}

// setName is the name that set_field has for a field of load, and its width.
func setName(nxm string) (string, int) {
	name := strings.ToLower(strings.TrimPrefix(strings.TrimPrefix(nxm, "NXM_OF_"), "NXM_NX_"))
	switch name {
	case "tun_ipv4_dst":
		return "tun_dst", 32
	case "arp_op":
		return name, 16
	case "eth_src", "eth_dst", "arp_sha", "arp_tha":
		return name, 48
	case "ipv6_src", "ipv6_dst", "ct_label":
		return name, 128
	}
	return name, 32
}
