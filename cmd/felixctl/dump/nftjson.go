package dump

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// ParseNFTJSON parses the output of `nft -j list ruleset`, object by object, so that a
// big ruleset is not in memory twice. It keeps unknown objects as JSON.
func ParseNFTJSON(r io.Reader) ([]*Table, error) {
	p := jsonListing{sets: map[string]*Set{}}
	d := json.NewDecoder(r)
	err := p.read(d)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = errors.New("the listing ends too early")
	}
	return p.tables, err
}

// jsonListing is the state of the parser.
type jsonListing struct {
	tables []*Table
	sets   map[string]*Set
}

// read reads {"nftables": [object, ...]}.
func (p *jsonListing) read(d *json.Decoder) error {
	for _, want := range []json.Token{json.Delim('{'), "nftables", json.Delim('[')} {
		got, err := d.Token()
		if err != nil {
			return err
		}
		if got != want {
			return fmt.Errorf("%v where %v has to be: this is no listing of nft in JSON", got, want)
		}
	}
	for d.More() {
		var object map[string]json.RawMessage
		if err := d.Decode(&object); err != nil {
			return err
		}
		for kind, body := range object {
			if err := p.object(kind, body); err != nil {
				return fmt.Errorf("%s before byte %d: %w", kind, d.InputOffset(), err)
			}
		}
	}
	for range 2 {
		if _, err := d.Token(); err != nil {
			return err
		}
	}
	return nil
}

// jsonObject has the fields that matter in objects of all kinds.
type jsonObject struct {
	Family  string            `json:"family"`
	Table   string            `json:"table"`
	Name    string            `json:"name"`
	Chain   string            `json:"chain"`
	Type    json.RawMessage   `json:"type"`
	Hook    string            `json:"hook"`
	Prio    int32             `json:"prio"`
	Dev     json.RawMessage   `json:"dev"`
	Policy  string            `json:"policy"`
	Comment string            `json:"comment"`
	Expr    []json.RawMessage `json:"expr"`
	Map     json.RawMessage   `json:"map"`
	Flags   json.RawMessage   `json:"flags"`
	Elem    []json.RawMessage `json:"elem"`
	// Properties that our sets do not have.
	Timeout    json.RawMessage `json:"timeout"`
	GCInterval json.RawMessage `json:"gc-interval"`
	Size       json.RawMessage `json:"size"`
	SetPolicy  json.RawMessage `json:"set-policy"`
	AutoMerge  json.RawMessage `json:"auto-merge"`
	Stmt       json.RawMessage `json:"stmt"`
}

func (p *jsonListing) object(kind string, body json.RawMessage) error {
	switch kind {
	case "metainfo":
		return nil
	case "table", "chain", "rule", "set", "map", "element":
	default:
		return p.foreign(kind, body)
	}
	var o jsonObject
	if err := json.Unmarshal(body, &o); err != nil {
		return err
	}
	if kind == "table" {
		if p.table(o.Family, o.Name) == nil {
			p.tables = append(p.tables, &Table{Dialect: NFT, Family: o.Family, Name: o.Name})
		}
		return nil
	}
	t := p.table(o.Family, o.Table)
	if t == nil {
		return fmt.Errorf("table %s %s is not there", o.Family, o.Table)
	}
	switch kind {
	case "chain":
		t.Chains = append(t.Chains, o.chain())
	case "rule":
		c := t.Chain(o.Chain)
		if c == nil {
			return fmt.Errorf("chain %s is not there", o.Chain)
		}
		c.Rules = append(c.Rules, o.rule())
	case "set", "map":
		t.Sets = append(t.Sets, o.set(kind == "map"))
	case "element": // of newer versions, behind the sets
		s := t.Set(o.Name)
		if s == nil {
			return fmt.Errorf("set %s is not there", o.Name)
		}
		o.elements(s)
	}
	return nil
}

func (p *jsonListing) table(family, name string) *Table {
	// From the end: objects follow their table.
	for i := len(p.tables) - 1; i >= 0; i-- {
		if t := p.tables[i]; t.Family == family && t.Name == name {
			return t
		}
	}
	return nil
}

// foreign keeps an object of another kind with its table, if it names one.
func (p *jsonListing) foreign(kind string, body json.RawMessage) error {
	var o struct{ Family, Table string }
	if err := json.Unmarshal(body, &o); err != nil {
		return err
	}
	if t := p.table(o.Family, o.Table); t != nil {
		t.Foreign = append(t.Foreign, kind+" "+string(body))
	}
	return nil
}

func (o *jsonObject) chain() *Chain {
	c := &Chain{Name: o.Name}
	if o.Hook != "" {
		c.Hook = &Hook{Type: textOf(o.Type), Point: o.Hook, Priority: o.Prio, Device: textOf(o.Dev)}
		c.Policy = o.Policy
	}
	return c
}

// rule parses a rule through nft's language. A rule that does not fit there is Foreign.
func (o *jsonObject) rule() Rule {
	var words []string
	foreign := false
	for _, raw := range o.Expr {
		text, ok := "", nested(raw) <= maxNesting
		if ok {
			text, ok = statement(raw)
		}
		if foreign = foreign || !ok; foreign {
			text = string(raw)
		}
		words = append(words, text)
	}
	line := strings.Join(words, " ")
	var r Rule
	if foreign {
		r.Foreign = line
	} else {
		r = parseNFTRule(line)
	}
	r.setComment(o.Comment)
	return r
}

func (o *jsonObject) set(isMap bool) *Set {
	s := &Set{Name: o.Name}
	var parts []string
	if json.Unmarshal(o.Type, &parts) == nil {
		s.Type = strings.Join(parts, " . ")
	} else {
		s.Type = textOf(o.Type)
	}
	if isMap {
		s.Type += " : " + textOf(o.Map)
	}
	var flags []string
	if json.Unmarshal(o.Flags, &flags) != nil && len(o.Flags) > 0 {
		flags = []string{textOf(o.Flags)}
	}
	odd := false
	for _, raw := range []json.RawMessage{o.Timeout, o.GCInterval, o.Size, o.SetPolicy, o.AutoMerge, o.Stmt} {
		odd = odd || len(raw) > 0
	}
	s.classify(isMap, odd, strings.Join(flags, ","))
	o.elements(s)
	return s
}

func (o *jsonObject) elements(s *Set) {
	for _, raw := range o.Elem {
		text, ok := elementText(raw)
		if !ok {
			s.Foreign = append(s.Foreign, string(raw))
			continue
		}
		s.addElement(text)
	}
}

// maxNesting bounds the nesting of statements and elements that felixlike writes.
const maxNesting = 8

// nested returns the depth of a value.
func nested(raw json.RawMessage) int {
	depth, deepest, quoted := 0, 0, false
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			depth++
			deepest = max(deepest, depth)
		case c == '}' || c == ']':
			depth--
		}
	}
	return deepest
}

// elementText writes an element as nft does.
func elementText(raw json.RawMessage) (string, bool) {
	if nested(raw) > maxNesting {
		return "", false
	}
	var pair []json.RawMessage
	if json.Unmarshal(raw, &pair) == nil && len(pair) == 2 {
		key, ok1 := expression(pair[0])
		verdict, ok2 := statement(pair[1])
		return key + " : " + verdict, ok1 && ok2
	}
	return expression(raw)
}
