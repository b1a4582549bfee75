package cli

import (
	"io"

	"github.com/felixlike/felixlike/cmd/felixctl/dump"
	"github.com/felixlike/felixlike/cmd/felixctl/dump/compare"
	"github.com/felixlike/felixlike/cmd/felixctl/dump/names"
	"github.com/felixlike/felixlike/internal/terminal"
)

// view is a dump as JSON: typed, with the text of each rule and flow and a note on its
// subject.
type view struct {
	What    string      `json:"what"`
	Node    string      `json:"node,omitempty"`
	Backend string      `json:"backend,omitempty"`
	Tables  []viewTable `json:"tables,omitempty"`
	IPSets  []viewSet   `json:"ipsets,omitempty"`
	Flows   []viewFlow  `json:"flows,omitempty"`
}

type viewTable struct {
	Dialect string      `json:"dialect"`
	Family  string      `json:"family"`
	Name    string      `json:"name"`
	Chains  []viewChain `json:"chains,omitempty"`
	Sets    []viewSet   `json:"sets,omitempty"`
	Foreign []string    `json:"foreign,omitempty"`
}

type viewChain struct {
	Name  string     `json:"name"`
	About string     `json:"about,omitempty"`
	Hook  *dump.Hook `json:"hook,omitempty"`
	Rules []viewRule `json:"rules,omitempty"`
}

type viewRule struct {
	Text    string   `json:"text"`
	Matches []string `json:"matches,omitempty"`
	Action  string   `json:"action,omitempty"`
	Comment string   `json:"comment,omitempty"`
	Hash    string   `json:"hash,omitempty"`
	About   string   `json:"about,omitempty"`
	// Foreign reports that only the text of the rule is known.
	Foreign bool    `json:"foreign,omitempty"`
	Packets *uint64 `json:"packets,omitempty"`
	Bytes   *uint64 `json:"bytes,omitempty"`
}

type viewSet struct {
	Name     string        `json:"name"`
	Type     string        `json:"type"`
	About    string        `json:"about,omitempty"`
	Elements []viewElement `json:"elements,omitempty"`
	Foreign  []string      `json:"foreign,omitempty"`
}

type viewElement struct {
	Member  string `json:"member"`
	Verdict string `json:"verdict,omitempty"`
	Value   string `json:"value,omitempty"`
	About   string `json:"about,omitempty"`
}

type viewFlow struct {
	Table    uint8  `json:"table"`
	Priority uint16 `json:"priority"`
	Owner    uint16 `json:"owner"`
	Match    string `json:"match,omitempty"`
	Actions  string `json:"actions,omitempty"`
	Foreign  string `json:"foreign,omitempty"`
	About    string `json:"about,omitempty"`
	Packets  uint64 `json:"packets,omitempty"`
	Bytes    uint64 `json:"bytes,omitempty"`
}

func newView(o *side, s *dump.State, note func(any) string) view {
	v := view{What: o.title, IPSets: viewSets(s.IPSets, note)}
	if o.model != nil {
		v.Node, v.Backend = o.model.Node, o.model.Backend
	}
	for _, t := range s.Tables {
		out := viewTable{Dialect: t.Dialect.String(), Family: t.Family, Name: t.Name, Sets: viewSets(t.Sets, note), Foreign: t.Foreign}
		for _, c := range t.Chains {
			out.Chains = append(out.Chains, newViewChain(t.Dialect, c, note))
		}
		v.Tables = append(v.Tables, out)
	}
	for _, f := range s.Flows {
		one := viewFlow{
			Table: f.Table, Priority: f.Priority, Owner: f.Owner(), Foreign: f.Foreign, About: note(f), Packets: f.Packets, Bytes: f.Bytes,
		}
		if f.Foreign == "" {
			one.Match, one.Actions = f.MatchText(), f.ActionsText()
		}
		v.Flows = append(v.Flows, one)
	}
	return v
}

func newViewChain(d dump.Dialect, c *dump.Chain, note func(any) string) viewChain {
	out := viewChain{Name: c.Name, About: note(c), Hook: c.Hook}
	for i := range c.Rules {
		r := &c.Rules[i]
		one := viewRule{Comment: r.Comment, Hash: r.Hash, Foreign: r.Foreign != "", About: note(r)}
		if one.Text = r.IPTables(); d == dump.NFT {
			one.Text = r.NFT(false)
		}
		for _, m := range r.Matches {
			one.Matches = append(one.Matches, m.String())
		}
		if r.Action != nil {
			one.Action = r.Action.String()
		}
		if r.Counted {
			one.Packets, one.Bytes = &r.Packets, &r.Bytes
		}
		out.Rules = append(out.Rules, one)
	}
	return out
}

func viewSets(sets []*dump.Set, note func(any) string) []viewSet {
	var all []viewSet
	for _, s := range sets {
		out := viewSet{Name: s.Name, Type: s.Type, About: note(s), Foreign: s.Foreign}
		for _, e := range s.Elements {
			one := viewElement{Member: e.Key(), About: note(e)}
			if e.Parts != nil {
				one.Value = e.Value
			}
			if e.Verdict != nil {
				one.Verdict = e.Verdict.String()
			}
			out.Elements = append(out.Elements, one)
		}
		all = append(all, out)
	}
	return all
}

func (o *side) print(out io.Writer, output terminal.Output, options compare.Options) error {
	options.Hashes = output.ForPrograms()
	state := compare.Canonical(o.state, options)
	noter := names.Of(o.model)
	if output.ForPrograms() {
		return output.Print(out, newView(o, state, noter.Note), nil)
	}
	text := dump.TextOptions{Counters: options.Counters, Elements: options.Elements}
	if output == terminal.Text {
		text.Note = noter.Note
	}
	return dump.Write(out, state, text)
}
