package flowtext

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/felixlike/felixlike/internal/files"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
)

// parseActions reads a list of actions.
func parseActions(text string) ([]Action, error) {
	if text == "drop" {
		return nil, nil
	}
	var all []Action
	for _, word := range splitActions(text) {
		a, err := parseAction(word)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", files.Excerpt(word), err)
		}
		all = append(all, a)
	}
	return all, nil
}

// splitActions splits at the commas outside brackets.
func splitActions(text string) []string {
	var words []string
	depth, start := 0, 0
	for i := range len(text) {
		switch text[i] {
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

func parseAction(word string) (Action, error) {
	switch word {
	case "NORMAL":
		return OutputNormal{}, nil
	case "IN_PORT":
		return OutputInPort{}, nil
	case "LOCAL":
		return Output{Port: openflow.LocalPort}, nil
	case "ct_clear":
		return CTClear{}, nil
	case "dec_ttl":
		return DecTTL{}, nil
	}
	if name, inner, found := strings.Cut(word, "("); found {
		inner, closed := strings.CutSuffix(inner, ")")
		if !closed {
			return nil, errForeign
		}
		return parseCall(name, inner)
	}
	name, value, _ := strings.Cut(word, ":")
	switch name {
	case "goto_table":
		n, err := number8(value)
		return GotoTable{n}, err
	case "output":
		return parseOutput(value)
	case "set_field":
		return parseSetField(value)
	case "group":
		n, err := number32(value)
		return Group{n}, err
	case "meter":
		n, err := number32(value)
		return Meter{n}, err
	case "note":
		return Note{value}, nil
	case "load":
		return parseLoad(value)
	case "move":
		return parseMove(value)
	}
	return nil, errForeign
}

// parseCall reads an action with arguments in brackets.
func parseCall(name, inner string) (Action, error) {
	switch name {
	case "ct":
		return parseCT(inner)
	case "conjunction":
		return parseConjunction(inner)
	case "controller":
		return parseController(inner)
	case "learn":
		return parseLearn(inner)
	case "resubmit":
		table, found := strings.CutPrefix(inner, ",")
		if !found {
			return nil, errForeign
		}
		n, err := number8(table)
		return Resubmit{n}, err
	}
	return nil, errForeign
}

func parseOutput(value string) (Action, error) {
	if n, err := number32(value); err == nil {
		return Output{n}, nil
	}
	f, first, count, err := parseBitRange(value)
	if err != nil || first != 0 || count != f.Bits() {
		return nil, errForeign
	}
	return OutputField{f}, nil
}

// parseBitRange reads "NXM_NX_REG0[0..15]", "NXM_NX_REG0[5]" or "NXM_NX_REG0[]".
func parseBitRange(text string) (f openflow.Field, first, count int, err error) {
	name, inner, found := strings.Cut(text, "[")
	inner, closed := strings.CutSuffix(inner, "]")
	f, known := fields()[name]
	if !found || !closed || !known {
		return 0, 0, 0, errForeign
	}
	if inner == "" {
		return f, 0, f.Bits(), nil
	}
	from, to, ranged := strings.Cut(inner, "..")
	if !ranged {
		to = from
	}
	first, err = strconv.Atoi(from)
	last := first
	if err == nil {
		last, err = strconv.Atoi(to)
	}
	if err != nil || first < 0 || last < first || last >= f.Bits() {
		return 0, 0, 0, errForeign
	}
	return f, first, last - first + 1, nil
}

func parseSetField(text string) (SetField, error) {
	value, name, found := strings.Cut(text, "->")
	f, known := fields()[name]
	if !found || !known || f == openflow.CTState || f == openflow.IPFrag {
		return SetField{}, errForeign
	}
	t, err := parseTerm(f, value)
	return SetField(t), err
}

// parseLoad reads the older form of set_field.
func parseLoad(text string) (SetField, error) {
	value, to, found := strings.Cut(text, "->")
	if !found {
		return SetField{}, errForeign
	}
	f, first, count, err := parseBitRange(to)
	if err != nil {
		return SetField{}, err
	}
	v, err := parseWord(f, value)
	if err != nil || !v.AndNot(Ones(count)).IsZero() {
		return SetField{}, errForeign
	}
	return SetField{f, v.ShiftLeft(first), Ones(count).ShiftLeft(first)}, nil
}

func parseMove(text string) (CopyField, error) {
	from, to, found := strings.Cut(text, "->")
	if !found {
		return CopyField{}, errForeign
	}
	var a CopyField
	var n int
	var err error
	if a.From, a.FromBit, n, err = parseBitRange(from); err != nil {
		return a, err
	}
	if a.To, a.ToBit, a.Bits, err = parseBitRange(to); err == nil && n != a.Bits {
		err = errForeign
	}
	return a, err
}

func parseCT(inner string) (CT, error) {
	a := CT{Table: openflow.NoTable}
	for _, word := range splitActions(inner) {
		name, value, _ := strings.Cut(word, "=")
		var err error
		switch {
		case word == "commit":
			a.Commit = true
		case word == "force":
			a.Force = true
		case word == "nat":
			a.NAT = true
		case strings.HasPrefix(word, "nat(src="):
			a.Source, err = parseNATSource(strings.TrimSuffix(word[len("nat(src="):], ")"))
		case strings.HasPrefix(word, "nat(dst="):
			a.Destination, err = netip.ParseAddrPort(strings.TrimSuffix(word[len("nat(dst="):], ")"))
		case name == "table":
			a.Table, err = number8(value)
		case name == "zone":
			a.Zone, err = number16(value)
		case strings.HasPrefix(word, "exec("):
			a.Exec, err = parseExec(strings.TrimSuffix(word[len("exec("):], ")"))
		case word == "": // "ct()"
		default:
			err = errForeign
		}
		if err != nil {
			return a, err
		}
	}
	return a, nil
}

// parseNATSource reads "192.0.2.1:10000-20000", "[2001:db8::1]:10000-20000", or the address alone.
func parseNATSource(text string) (openflow.NATSource, error) {
	var s openflow.NATSource
	var err error
	if s.Address, err = netip.ParseAddr(text); err == nil {
		return s, nil
	}
	start, last, found := strings.Cut(text, "-")
	first, err := netip.ParseAddrPort(start)
	if err != nil {
		return s, errForeign
	}
	if s.Address, s.First, s.Last = first.Addr(), first.Port(), first.Port(); found {
		s.Last, err = number16(last)
	}
	return s, err
}

func parseExec(inner string) ([]SetField, error) {
	var all []SetField
	for _, word := range splitActions(inner) {
		a, err := parseAction(word)
		set, ok := a.(SetField)
		if err != nil || !ok {
			return nil, errForeign
		}
		all = append(all, set)
	}
	return all, nil
}

// parseController reads "max_len=128,id=7".
func parseController(inner string) (Controller, error) {
	var a Controller
	for _, word := range splitActions(inner) {
		name, value, _ := strings.Cut(word, "=")
		var err error
		switch name {
		case "max_len":
			a.MaxLen, err = number16(value)
		case "id":
			a.ID, err = number16(value)
		case "meter_id":
			a.Meter, err = number32(value)
		default:
			err = errForeign
		}
		if err != nil {
			return a, err
		}
	}
	return a, nil
}

// parseConjunction reads "7,1/2".
func parseConjunction(inner string) (Conjunction, error) {
	var a Conjunction
	id, dimension, _ := strings.Cut(inner, ",")
	k, n, found := strings.Cut(dimension, "/")
	var errs [3]error
	a.ID, errs[0] = number32(id)
	a.K, errs[1] = number8(strings.TrimSpace(k))
	a.N, errs[2] = number8(n)
	if !found || errs != [3]error{} || a.K < 1 || a.K > a.N {
		return a, errForeign
	}
	return a, nil
}

func parseLearn(inner string) (Learn, error) {
	var a Learn
	for _, word := range splitActions(inner) {
		name, value, found := strings.Cut(word, "=")
		var err error
		switch name {
		case "table":
			a.Table, err = number8(value)
		case "priority":
			a.Priority, err = number16(value)
		case "idle_timeout":
			a.IdleTimeout, err = number16(value)
		case "cookie":
			a.Cookie, err = strconv.ParseUint(value, 0, 64)
		case "limit":
			a.Limit, err = number32(value)
		default:
			err = parseLearned(&a, word, name, value, found)
		}
		if err != nil {
			return a, err
		}
	}
	return a, nil
}

// registerBits is the width of a register.
const registerBits = 32

// parseLearned parses one match or action of a learned flow.
func parseLearned(a *Learn, word, name, value string, found bool) error {
	if load, ok := strings.CutPrefix(word, "load:"); ok {
		set, err := parseLoad(load)
		if err == nil && set.Field.Bits() != registerBits {
			err = errForeign
		}
		a.Sets = append(a.Sets, openflow.RegisterBits{Register: set.Field, Value: uint32(set.Value.Lo), Mask: uint32(set.Mask.Lo)})
		return err
	}
	if !strings.HasSuffix(name, "[]") {
		f, known := fields()[name]
		if !found || !known {
			return errForeign
		}
		t, err := parseTerm(f, value)
		at, twice := slices.BinarySearchFunc(a.Match, f, func(t Term, f openflow.Field) int { return cmp.Compare(t.Field, f) })
		if err == nil && twice {
			err = errForeign
		}
		a.Match = slices.Insert(a.Match, at, t)
		return err
	}
	if !found {
		value = name
	}
	to, _, n, err := parseBitRange(name)
	if err != nil {
		return err
	}
	from, first, m, err := parseBitRange(value)
	if err != nil || first != 0 || n != m {
		return errForeign
	}
	a.Copies = append(a.Copies, openflow.FieldCopy{Field: to, From: from})
	return nil
}
