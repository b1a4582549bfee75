package iptables

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/felixlike/felixlike/model"
)

// plain holds the characters that need no quotes, as the tools see it
// (xtables_save_string): iptables-save prints a text of only these without quotes.
const plain = "-_abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"

// maxComment is how long a comment may become; the kernel takes 255 bytes.
const maxComment = 128

// quote writes a comment as the tools save it. All characters but printable ASCII
// become question marks: a comment must not be able to end its line.
func quote(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, s)
	s = s[:min(len(s), maxComment)]
	if s != "" && strings.Trim(s, plain) == "" {
		return s
	}
	var b strings.Builder
	b.WriteByte('"')
	for _, c := range []byte(s) {
		if c == '"' || c == '\\' || c == '\'' {
			b.WriteByte('\\')
		}
		b.WriteByte(c)
	}
	b.WriteByte('"')
	return b.String()
}

// Words splits a saved rule as the tools do: at blanks, but not in quotes, in
// which a backslash takes the next character as it is.
func Words(line string) []string {
	var out []string
	var word strings.Builder
	inWord, inQuotes := false, false
	for i := 0; i < len(line); i++ {
		switch c := line[i]; {
		case inQuotes && c == '\\' && i+1 < len(line):
			i++
			word.WriteByte(line[i])
		case c == '"':
			inQuotes, inWord = !inQuotes, true
		case c == ' ' && !inQuotes:
			if inWord {
				out = append(out, word.String())
				word.Reset()
			}
			inWord = false
		default:
			inWord = true
			word.WriteByte(c)
		}
	}
	if inWord {
		out = append(out, word.String())
	}
	return out
}

// same reports whether two texts of a rule mean the same: equal words, where
// names and numbers of protocols and the spellings of an address are one.
func same(a, b string) bool {
	if a == b {
		return true
	}
	x, y := Words(a), Words(b)
	if len(x) != len(y) {
		return false
	}
	for i := range x {
		if x[i] == y[i] {
			continue
		}
		// The word before gives the meaning of the word.
		if i == 0 || x[i-1] != y[i-1] || meaning(x[i-1], x[i]) != meaning(y[i-1], y[i]) {
			return false
		}
	}
	return true
}

// meaning returns one spelling for all of an option's value.
func meaning(option, value string) string {
	switch option {
	case "-p":
		for _, p := range []model.Protocol{model.ICMP, model.TCP, model.UDP, model.ICMPv6, model.SCTP} {
			if value == protocol(p) || value == p.String() {
				return strconv.Itoa(int(p))
			}
		}
	case "-s", "-d":
		if p, err := netip.ParsePrefix(value); err == nil {
			return p.String()
		}
		if a, err := netip.ParseAddr(value); err == nil {
			return netip.PrefixFrom(a, a.BitLen()).String()
		}
	}
	return value
}

// protocol returns the name that the tools print.
func protocol(p model.Protocol) string {
	switch p {
	case model.ICMP, model.TCP, model.UDP, model.SCTP:
		return p.String()
	case model.ICMPv6:
		return "ipv6-icmp"
	}
	return fmt.Sprint(uint8(p))
}
