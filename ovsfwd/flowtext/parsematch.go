package flowtext

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
)

// Ethernet types of the words that stand for them.
const (
	etherIPv4 = 0x0800
	etherARP  = 0x0806
	etherIPv6 = 0x86dd
)

// protocolWord returns the Ethernet type and the protocol (zero for any) that a
// word stands for.
func protocolWord(word string) (ether uint64, protocol model.Protocol, ok bool) {
	switch word {
	case "ip":
		return etherIPv4, 0, true
	case "ipv6":
		return etherIPv6, 0, true
	case "arp":
		return etherARP, 0, true
	case "icmp":
		return etherIPv4, model.ICMP, true
	case "icmp6":
		return etherIPv6, model.ICMPv6, true
	}
	for _, p := range []model.Protocol{model.TCP, model.UDP, model.SCTP} {
		switch word {
		case p.String():
			return etherIPv4, p, true
		case p.String() + "6":
			return etherIPv6, p, true
		}
	}
	return 0, 0, false
}

// parseMatch reads the words of a match.
func parseMatch(f *Flow, words []string) error {
	var later []string
	for _, word := range words {
		if ether, protocol, ok := protocolWord(word); ok {
			f.Match = append(f.Match, exact(openflow.EthType, ether))
			if protocol != 0 {
				f.Match = append(f.Match, exact(openflow.IPProto, uint64(protocol)))
			}
			continue
		}
		later = append(later, word)
	}
	for _, word := range later {
		if err := parseMatchWord(f, word); err != nil {
			return err
		}
	}
	slices.SortStableFunc(f.Match, func(a, b Term) int { return cmp.Compare(a.Field, b.Field) })
	for i := 1; i < len(f.Match); i++ {
		if f.Match[i].Field == f.Match[i-1].Field {
			return fmt.Errorf("%s is matched twice: %w", f.Match[i].Field, errForeign)
		}
	}
	return nil
}

func exact(f openflow.Field, value uint64) Term { return Term{f, Word{Lo: value}, Ones(f.Bits())} }

func parseMatchWord(f *Flow, word string) error {
	name, text, found := strings.Cut(word, "=")
	field, known := fieldOf(f.Match, name)
	if !found || !known {
		return fmt.Errorf("%s: %w", name, errForeign)
	}
	t, err := parseTerm(field, text)
	if err != nil {
		return fmt.Errorf("%s: %w", word, err)
	}
	if !t.Mask.IsZero() {
		f.Match = append(f.Match, t)
	}
	return nil
}

// fieldOf returns the field of that name. Some names stand for fields of several protocols:
// it depends on the protocol that the flow matches.
func fieldOf(match []Term, name string) (openflow.Field, bool) {
	switch name {
	case "tp_src", "tp_dst", "icmp_type", "icmp_code":
	default:
		f, known := fields()[name]
		return f, known
	}
	for _, m := range match {
		if m.Field == openflow.IPProto && m.Exact() {
			f, known := transportFields()[model.Protocol(m.Value.Lo)][name]
			return f, known
		}
	}
	return 0, false
}

// transportFields are the fields of each protocol by the names that protocols share.
var transportFields = sync.OnceValue(func() map[model.Protocol]map[string]openflow.Field {
	return map[model.Protocol]map[string]openflow.Field{
		model.TCP:    {"tp_src": openflow.TCPSrc, "tp_dst": openflow.TCPDst},
		model.UDP:    {"tp_src": openflow.UDPSrc, "tp_dst": openflow.UDPDst},
		model.SCTP:   {"tp_src": openflow.SCTPSrc, "tp_dst": openflow.SCTPDst},
		model.ICMP:   {"icmp_type": openflow.ICMPv4Type, "icmp_code": openflow.ICMPv4Code},
		model.ICMPv6: {"icmp_type": openflow.ICMPv6Type, "icmp_code": openflow.ICMPv6Code},
	}
})

// parseTerm reads a value, perhaps with a mask.
func parseTerm(f openflow.Field, text string) (Term, error) {
	switch f {
	case openflow.CTState, openflow.TCPFlags:
		return parseFlags(f, text)
	case openflow.IPFrag:
		const fragmented, fragmentedLater = 1, 3
		switch text {
		case "yes":
			return Term{f, Word{Lo: fragmented}, Word{Lo: fragmented}}, nil
		case "later":
			return Term{f, Word{Lo: fragmentedLater}, Word{Lo: fragmentedLater}}, nil
		}
		return Term{}, errForeign
	case openflow.InPort:
		if text == "LOCAL" {
			return exact(f, uint64(openflow.LocalPort)), nil
		}
	}
	text, maskText, masked := strings.Cut(text, "/")
	value, err := parseWord(f, text)
	mask := Ones(f.Bits())
	if masked && err == nil {
		mask, err = parseMask(f, text, maskText)
	}
	return Term{f, value.And(mask), mask}, err
}

func parseMask(f openflow.Field, value, mask string) (Word, error) {
	if _, err := netip.ParseAddr(value); err == nil {
		if length, err := strconv.ParseUint(mask, 10, 8); err == nil {
			if int(length) > f.Bits() {
				return Word{}, fmt.Errorf("%d bits of %d", length, f.Bits())
			}
			return Ones(int(length)).ShiftLeft(f.Bits() - int(length)), nil
		}
	}
	return parseWord(f, mask)
}

// parseWord reads a number, an IP or an Ethernet address, which has to fit the
// field.
func parseWord(f openflow.Field, text string) (Word, error) {
	if a, err := netip.ParseAddr(text); err == nil && a.Zone() == "" {
		return fitting(f, a.AsSlice(), a.BitLen() == f.Bits())
	}
	if mac, err := net.ParseMAC(text); err == nil {
		return fitting(f, mac, len(mac)*8 == f.Bits())
	}
	digits, isHex := strings.CutPrefix(text, "0x")
	if !isHex {
		n, err := strconv.ParseUint(text, 10, 64)
		return Word{Lo: n}, cmpErr(err, n > Ones(f.Bits()).Lo && f.Bits() <= 64)
	}
	if len(digits)%2 != 0 {
		digits = "0" + digits
	}
	b, err := hex.DecodeString(digits)
	if err != nil || len(b) > 16 {
		return Word{}, errForeign
	}
	w := WordOf(b)
	return w, cmpErr(nil, !w.AndNot(Ones(f.Bits())).IsZero())
}

func fitting(f openflow.Field, b []byte, fits bool) (Word, error) {
	if !fits {
		return Word{}, fmt.Errorf("%s has %d bits: %w", f, f.Bits(), errForeign)
	}
	return WordOf(b), nil
}

// cmpErr returns err, or that something is too big.
func cmpErr(err error, tooBig bool) error {
	if err == nil && tooBig {
		return fmt.Errorf("too big: %w", errForeign)
	}
	return err
}

// parseFlags reads "+new-est", or a number with a mask.
func parseFlags(f openflow.Field, text string) (Term, error) {
	t := Term{Field: f}
	if value, mask, found := strings.Cut(text, "/"); found {
		v, err := parseWord(t.Field, value)
		if err == nil {
			t.Mask, err = parseWord(t.Field, mask)
		}
		t.Value = v.And(t.Mask)
		return t, err
	}
	for text != "" {
		sign := text[0]
		if sign != '+' && sign != '-' {
			return t, errForeign
		}
		name := text[1:]
		if end := strings.IndexAny(name, "+-"); end >= 0 {
			name = name[:end]
		}
		text = text[1+len(name):]
		i := slices.Index(f.Flags(), name)
		if i < 0 {
			return t, fmt.Errorf("flag %q: %w", name, errForeign)
		}
		bit := Ones(1).ShiftLeft(i)
		if t.Mask = t.Mask.Or(bit); sign == '+' {
			t.Value = t.Value.Or(bit)
		}
	}
	return t, nil
}
