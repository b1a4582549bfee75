package dump

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/felixlike/felixlike/internal/files"
)

// ParseNFT parses the output of `nft list ruleset` or `nft list table`, with or
// without handles (-a) and counters (-s). Rules and elements that felixlike does not
// write become Foreign; other objects are kept as text. An empty or truncated listing
// is an error, returned with the part that was parsed.
func ParseNFT(r io.Reader) ([]*Table, error) {
	p := nftListing{}
	err := files.Lines(r, p.line)
	if err == nil {
		err = p.ended()
	}
	return p.tables, err
}

// ended reports whether something is left open.
func (p *nftListing) ended() error {
	if p.level() > 0 {
		return fmt.Errorf("the listing ends inside %s", p.where())
	}
	return nil
}

// nftListing is the state of the parser.
type nftListing struct {
	tables []*Table
	table  *Table
	chain  *Chain
	set    *nftSet
	// foreign is the text of an object that is not ours, open the brackets that it
	// has open.
	foreign strings.Builder
	open    int
	// rule is the first part of a rule that continues on the next line.
	rule     strings.Builder
	ruleOpen int
	ruleLine int
}

// level is the number of open brackets of objects.
func (p *nftListing) level() int {
	switch {
	case p.chain != nil || p.set != nil || p.open > 0:
		return 2
	case p.table != nil:
		return 1
	}
	return 0
}

func (p *nftListing) where() string {
	switch {
	case p.chain != nil:
		return "chain " + p.chain.Name
	case p.set != nil:
		return "set " + p.set.Name
	}
	return "table " + p.table.Family + " " + p.table.Name
}

func (p *nftListing) line(number int, line string) error {
	line = strings.TrimSpace(line)
	if line == "" {
		return nil
	}
	switch {
	case p.open > 0:
		p.object(line)
		if p.foreign.Len() > files.MaxLine {
			return fmt.Errorf("line %d: an object in table %s does not end", number, p.table.Name)
		}
	case p.set != nil:
		return p.setLine(number, line)
	case p.chain != nil:
		return p.chainLine(number, line)
	case line[0] == '#':
	case p.table != nil:
		return p.tableLine(number, line)
	default:
		return p.begin(number, line)
	}
	return nil
}

// withoutHandle cuts "# handle 7" off.
func withoutHandle(line string) string {
	if i := strings.LastIndex(line, "# handle "); i >= 0 {
		if _, err := strconv.ParseUint(line[i+len("# handle "):], 10, 64); err == nil {
			return strings.TrimSpace(line[:i])
		}
	}
	return line
}

// begin reads the head of a table. Behind it nft lists the handle, and the name of the
// process that owns the table.
func (p *nftListing) begin(number int, line string) error {
	head, _, _ := strings.Cut(line, " # ")
	words := nftWords(head)
	if len(words) != 4 || words[0] != "table" || words[3] != "{" {
		return fmt.Errorf("line %d: %q where a table has to begin", number, files.Excerpt(line))
	}
	p.table = &Table{Dialect: NFT, Family: words[1], Name: words[2]}
	p.tables = append(p.tables, p.table)
	return nil
}

// tableLine parses a line inside a table.
func (p *nftListing) tableLine(number int, line string) error {
	if line == "}" {
		p.table = nil
		return nil
	}
	words := nftWords(withoutHandle(line))
	if len(words) == 3 && words[2] == "{" {
		switch words[0] {
		case "chain":
			p.chain = &Chain{Name: words[1]}
			p.table.Chains = append(p.table.Chains, p.chain)
			return nil
		case "set", "map":
			p.set = &nftSet{Set: Set{Name: words[1], Line: number, Verdicts: words[0] == "map"}, isMap: words[0] == "map"}
			return nil
		}
	}
	p.object(line)
	return nil
}

// object keeps the lines of an object that is not ours.
func (p *nftListing) object(line string) {
	if p.foreign.Len() > 0 {
		p.foreign.WriteByte('\n')
	}
	p.foreign.WriteString(withoutHandle(line))
	p.open = max(0, p.open+brackets(line))
	if p.open == 0 {
		p.table.Foreign = append(p.table.Foreign, p.foreign.String())
		p.foreign.Reset()
	}
}

// brackets counts the curly brackets that a line leaves open.
func brackets(line string) int {
	n, quoted := 0, false
	for i := range len(line) {
		switch c := line[i]; {
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{':
			n++
		case c == '}':
			n--
		}
	}
	return n
}

// chainLine reads a rule, the head of a base chain, or the end.
func (p *nftListing) chainLine(number int, line string) error {
	if p.rule.Len() == 0 {
		if line == "}" {
			p.chain = nil
			return nil
		}
		if rest, ok := strings.CutPrefix(line, "type "); ok && strings.Contains(line, " hook ") && strings.HasSuffix(line, ";") {
			return p.hook(number, rest)
		}
		if line[0] == '#' || strings.HasPrefix(line, "comment ") {
			return nil
		}
		p.ruleLine = number
	}
	p.ruleOpen += brackets(line)
	if p.rule.Len() > 0 || p.ruleOpen > 0 {
		p.rule.WriteString(" " + line)
		if p.rule.Len() > files.MaxLine {
			return fmt.Errorf("line %d: a rule of chain %s does not end", p.ruleLine, p.chain.Name)
		}
		if p.ruleOpen > 0 {
			return nil
		}
		line = p.rule.String()
		p.rule.Reset()
	}
	p.ruleOpen = 0
	r := parseNFTRule(line)
	r.Line = p.ruleLine
	p.chain.Rules = append(p.chain.Rules, r)
	return nil
}

// hook reads "filter hook forward priority filter - 1; policy accept;".
func (p *nftListing) hook(number int, text string) error {
	h, policy, err := parseHook(text, p.table.Family)
	if err != nil {
		return fmt.Errorf("line %d: chain %s: %w", number, p.chain.Name, err)
	}
	p.chain.Hook, p.chain.Policy = h, policy
	return nil
}

func parseHook(text, family string) (h *Hook, policy string, err error) {
	text, rest, _ := strings.Cut(text, ";")
	words := nftWords(text)
	if len(words) < 5 || words[1] != "hook" {
		return nil, "", errors.New("unknown kind of base chain")
	}
	h = &Hook{Type: words[0], Point: words[2]}
	words = words[3:]
	if words[0] == "device" || words[0] == "devices" {
		i := 0
		for i < len(words) && words[i] != "priority" {
			i++
		}
		h.Device = strings.Join(words[1:i], " ")
		words = words[i:]
	}
	if len(words) < 2 || words[0] != "priority" {
		return nil, "", errors.New("base chain without a priority")
	}
	if h.Priority, err = parsePriority(words[1:], family, h.Point); err != nil {
		return nil, "", err
	}
	if p, ok := strings.CutPrefix(strings.TrimSpace(rest), "policy "); ok {
		policy = strings.TrimSuffix(p, ";")
	}
	return h, policy, nil
}

// parsePriority reads "filter", "srcnat - 1" or "-150".
func parsePriority(words []string, family, point string) (int32, error) {
	base, known := priorities(family, point)[words[0]]
	if !known {
		n, err := strconv.ParseInt(words[0], 10, 32)
		if err != nil || len(words) > 1 {
			return 0, fmt.Errorf("unknown priority %q", strings.Join(words, " "))
		}
		return int32(n), nil
	}
	if len(words) == 1 {
		return base, nil
	}
	if len(words) != 3 || words[1] != "+" && words[1] != "-" {
		return 0, fmt.Errorf("unknown priority %q", strings.Join(words, " "))
	}
	n, err := strconv.ParseInt(words[2], 10, 16)
	if words[1] == "-" {
		n = -n
	}
	return base + int32(n), err
}

// priorities are the numbers of nft's names (nft(8), "standard priority names").
func priorities(family, point string) map[string]int32 {
	if family == "bridge" {
		return map[string]int32{"dstnat": -300, "filter": -200, "out": 100, "srcnat": 300}
	}
	all := map[string]int32{"raw": -300, "mangle": -150, "filter": 0, "security": 50}
	switch point {
	case "prerouting", "output":
		all["dstnat"] = -100
	case "postrouting", "input":
		all["srcnat"] = 100
	}
	return all
}

// setLine reads a line of a set.
func (p *nftListing) setLine(number int, line string) error {
	s := p.set
	if s.within {
		if s.element(line); s.elements.Len() > files.MaxLine {
			return fmt.Errorf("line %d: an element of set %s does not end", number, s.Name)
		}
		return nil
	}
	if line == "}" {
		s.finish()
		p.table.Sets = append(p.table.Sets, &s.Set)
		p.set = nil
		return nil
	}
	words := nftWords(line)
	switch words[0] {
	case "type":
		s.Type = strings.Join(words[1:], " ")
	case "flags":
		s.flags = strings.TrimSuffix(strings.Join(words[1:], ","), ";")
	case "comment", "#":
	case "elements":
		rest, ok := strings.CutPrefix(line, "elements = {")
		if !ok {
			return fmt.Errorf("line %d: set %s: unknown list of elements", number, s.Name)
		}
		s.within = true
		s.element(rest)
	default:
		s.odd = true
		s.flags += " " + line
	}
	return nil
}
