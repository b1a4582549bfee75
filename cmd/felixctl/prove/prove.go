package prove

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/felixlike/felixlike/cmd/felixctl/dump"
	"github.com/felixlike/felixlike/cmd/felixctl/dump/compare"
	"github.com/felixlike/felixlike/cmd/felixctl/dump/names"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/flowtext"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
	"github.com/felixlike/felixlike/rules"
	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/tables/nftables"
)

// Side is one of two states that are compared. Model is nil if it is not known.
type Side struct {
	State *dump.State
	Model *control.Model
}

// NotProved is the error of a comparison that cannot be done: an unknown object, texts that differ, or a limit.
type NotProved struct{ Place, Reason string }

// Error implements error.
func (e *NotProved) Error() string { return "not proved: " + e.Place + ": " + e.Reason }

// Result is the outcome of a comparison. The states are equal if Differences and NotProved are empty.
type Result struct {
	// Compared names the packets that were compared, NotProved those that were not, Assumed the assumptions.
	Compared    string       `json:"compared"`
	NotProved   []string     `json:"notProved"`
	Assumed     []string     `json:"assumed"`
	Classes     []Classes    `json:"classes"`
	Differences []Difference `json:"differences"`
}

// Classes counts the classes of one family: neither state tells the members of a class apart.
type Classes struct {
	Family     string `json:"family"`
	Addresses  int    `json:"addresses"`
	Ports      int    `json:"ports"`
	Interfaces int    `json:"interfaces"`
}

// TheyDiffer is in an assumption that two texts do the same although they are not the same.
const TheyDiffer = "They differ: "

// Options choose what is compared.
type Options struct {
	// OnlyOurs allows rules of other programs to differ.
	OnlyOurs bool
}

// proof is a comparison under way.
type proof struct {
	Result
	names  *names.Names
	models []*control.Model
	found  map[[2]string]*difference
	// ended returns an error once nobody waits for the proof.
	ended func() error
}

// Compare compares what two states do with all packets. An error is a *NotProved, or the context's.
func Compare(ctx context.Context, a, b Side, o Options) (*Result, error) {
	type answer struct {
		result *Result
		err    error
	}
	done := make(chan answer, 1)
	go func() {
		r, err := compareSides(ctx, a, b, o)
		done <- answer{r, err}
	}()
	select {
	case <-ctx.Done():
		return nil, ctx.Err() // the proof ends soon
	case is := <-done:
		return is.result, is.err
	}
}

func compareSides(ctx context.Context, a, b Side, o Options) (*Result, error) {
	p := &proof{ended: ctx.Err, Result: Result{NotProved: []string{}, Classes: []Classes{}, Differences: []Difference{}}}
	for _, m := range []*control.Model{a.Model, b.Model} {
		if m != nil {
			p.models = append(p.models, m)
		}
	}
	if p.names = names.Of(nil); len(p.models) > 0 {
		p.names = names.Of(p.models[0])
	}
	if err := p.alike(a, b, o); err != nil {
		return nil, err
	}
	a, b = p.withoutLearned(a, 'A'), p.withoutLearned(b, 'B')
	flows, err := p.sameFlows(a, b)
	if err != nil {
		return nil, err
	}
	if flows && sameRules(a.State, b.State) {
		p.Assumed = append(p.Assumed, "Equal texts act alike: felixlike's rules, with the sets that they look up.")
		return &p.Result, nil
	}
	var spaces [2]*space
	var parts [2]proof
	var running errgroup.Group
	for i, f := range model.Families() {
		running.Go(func() (err error) {
			parts[i] = proof{models: p.models, ended: p.ended, found: map[[2]string]*difference{}}
			spaces[i], err = parts[i].family(f, flows, a, b)
			switch ended := ctx.Err(); {
			case ended != nil:
				err = ended
			case err == nil && spaces[i].full:
				err = &NotProved{"IPv" + f.String(), "the proof needs more than 1 GB of memory"}
			}
			return err
		})
	}
	if err := running.Wait(); err != nil {
		return nil, err
	}
	for i, s := range spaces {
		p.Classes = append(p.Classes, Classes{"IPv" + model.Families()[i].String(), len(s.first), len(s.ports), len(s.names)})
		p.found = parts[i].found
		p.conclude(s)
	}
	return &p.Result, nil
}

// family compares the packets of a family. With the same flows, the switch hands the same packets to the host, and netfilter decides.
func (p *proof) family(f model.Family, sameFlows bool, a, b Side) (*space, error) {
	if !sameFlows {
		return p.compareNodes(f, a, b)
	}
	var networks []netip.Prefix
	for _, m := range p.models {
		networks = append(networks, podNetworks(m)...)
	}
	s := newSpaceFor(f, p.models, networks, a.State, b.State)
	s.ended = p.ended
	var sides [2]*netfilter
	for i, one := range []Side{a, b} {
		var err error
		if sides[i], err = newNetfilter(s, one.State); err != nil {
			return nil, err
		}
	}
	return s, p.compareNetfilter(s, sides)
}

// alike checks the parts that are compared by their text, and says what is assumed.
func (p *proof) alike(a, b Side, o Options) error {
	p.Assumed = []string{
		"The kernel and the switch carry out rules and flows as documented; routes and neighbours of the node are as felixlike sets them.",
		"Packets are not fragments, have no mark, and do not run out of hops. Their destination is that after the translation of Services. Masquerade uses an address of the node outside the pod networks.",
		"No other program rewrites the sources of packets that felixlike leaves as they are, and conntrack expects no connections (as helpers for FTP do).",
	}
	mine, theirs := apart(a.State), apart(b.State)
	for _, both := range []struct {
		what    string
		text    [2]string
		must    bool
		leaveTo *[]string
	}{
		{"the tables of Services and of bridges (" + rules.ServicesTable + ", bridge " + nftables.PodSourcesTable + ")", [2]string{mine.unjudged, theirs.unjudged}, true, nil},
		{preDNATPlace, [2]string{mine.preDNAT, theirs.preDNAT}, true, nil},
		{"rules of other programs in front of felixlike's", [2]string{mine.front, theirs.front}, !o.OnlyOurs, &p.NotProved},
		{"rules of other programs behind felixlike's", [2]string{mine.behind, theirs.behind}, !o.OnlyOurs, &p.Assumed},
	} {
		same := both.text[0] == both.text[1]
		switch {
		case same && both.text[0] == "":
		case same:
			p.Assumed = append(p.Assumed, fmt.Sprintf("Equal texts act alike: %s.", both.what))
		case both.must:
			return &NotProved{both.what, "they differ, and are compared by their text alone: " + firstDifference(both.text)}
		default:
			*both.leaveTo = append(*both.leaveTo, "That "+both.what+" do the same. "+TheyDiffer+firstDifference(both.text))
		}
	}
	return nil
}

// firstDifference returns the first line that only one text has.
func firstDifference(text [2]string) string {
	for i := range text {
		for line := range strings.Lines(text[i]) {
			if !strings.ContainsRune("#*:", rune(line[0])) && !strings.Contains(text[1-i], line) {
				return strings.TrimSpace(line)
			}
		}
	}
	return "the order of lines"
}

// texts are the parts of a state that the proof does not walk: tables of felixlike, its rules before DNAT, and what other programs have in front of
// felixlike's rules and behind them.
type texts struct{ unjudged, preDNAT, front, behind string }

func apart(s *dump.State) texts {
	var unjudged, early, front, behind dump.State
	iptables := slices.ContainsFunc(s.Tables, func(t *dump.Table) bool { return t.Dialect == dump.IPTables })
	mine := hooksOf(s)
	inFront := func(c *dump.Chain) bool {
		return c.Hook != nil && c.Hook.Type != tables.HookNAT.String() && slices.ContainsFunc(mine, func(h *dump.Hook) bool { return before(c.Hook, h) })
	}
	for _, t := range s.Tables {
		switch {
		case ofHosts(t):
			if part := preDNAT(t); part != nil {
				early.Tables = append(early.Tables, part)
			}
		case judged(t):
		case ours(t):
			unjudged.Tables = append(unjudged.Tables, t)
		case t.Dialect == dump.NFT && !(iptables && t.IPFamily() != 0 && slices.Contains(kernelTables(), t.Name)): // else iptables-nft keeps it
			to := &behind
			if slices.ContainsFunc(t.Chains, inFront) {
				to = &front
			}
			to.Tables = append(to.Tables, t)
		case t.Dialect == dump.IPTables:
			for _, c := range t.Chains {
				first, others := split(t, c)
				if len(others.Rules) == 0 && others.Policy != "drop" {
					continue
				}
				to := &behind
				if len(first.Rules) == 0 && inFront(c) {
					to = &front
				}
				rest := *t
				rest.Chains = []*dump.Chain{others}
				to.Tables = append(to.Tables, &rest)
			}
		}
	}
	return texts{text(&unjudged), text(&early), text(&front), text(&behind)}
}

func kernelTables() []string { return []string{"raw", "mangle", "nat", "filter", "security"} }

// hooksOf returns where a state has rules of felixlike.
func hooksOf(s *dump.State) (all []*dump.Hook) {
	for _, t := range s.Tables {
		for _, c := range t.Chains {
			if mine, _ := split(t, c); c.Hook != nil && (judged(t) || t.Dialect == dump.IPTables && len(mine.Rules) > 0) {
				all = append(all, c.Hook)
			}
		}
	}
	return all
}

// before reports whether packets pass a hook before, or at the same time as, another one.
func before(a, b *dump.Hook) bool {
	for _, w := range ways() {
		point := func(h *dump.Hook) int {
			return slices.IndexFunc(w.hooks, func(p tables.HookPoint) bool { return p.String() == h.Point })
		}
		switch i, j := point(a), point(b); {
		case i < 0 || j < 0:
		case i < j || i == j && a.Priority <= b.Priority:
			return true
		}
	}
	return false
}

// text is a state in the tools' words, without what changes with traffic.
func text(s *dump.State) string {
	var b strings.Builder
	// A strings.Builder takes all.
	_ = dump.Write(&b, compare.Canonical(s, compare.Options{}), dump.TextOptions{})
	return b.String()
}

// sameFlows reports whether the switch does the same on both sides, which are withoutLearned.
func (p *proof) sameFlows(a, b Side) (bool, error) {
	same := slices.EqualFunc(a.State.Flows, b.State.Flows, func(x, y *flowtext.Flow) bool {
		return reflect.DeepEqual(x, y) || x.Cookie == y.Cookie && x.String() == y.String() // a text costs more
	})
	policy := func(s Side) bool { return s.State.Table(dump.NFT, "inet", nftables.HostTable) != nil }
	none := len(a.State.Flows) == 0 || len(b.State.Flows) == 0
	switch {
	case none && (policy(a) || policy(b)):
		return false, &NotProved{"flows", "one side has policy in the switch, and a side has no flows"}
	case same || none:
		p.Compared = "all packets of all connections, on each way through netfilter"
		if none && !same {
			p.NotProved = append(p.NotProved, "That the switches do the same: one side has no flows.")
		} else if !none {
			p.Assumed = append(p.Assumed, "Equal texts act alike: the flows of the switch.")
		}
		return true, nil
	}
	p.Compared = "the first packets of all connections, from each pod, node and the outside to where they end"
	p.NotProved = append(p.NotProved, "Later packets of connections, and packets to Services: the flows differ.")
	p.Assumed = append(p.Assumed,
		"Where several rules with the same actions match a packet, it does not matter to the flows behind which of them decided.",
		"Pods send to their gateway with their own MAC address; other nodes send by the tunnel. No packet from outside has a source in the cluster, and no packet has an unrouted address (RFC 6890).",
		fmt.Sprintf("Packets from outside do not have the sources %s and %s, which openflow drops.", pipeline.Hairpin(model.IPv4), pipeline.Hairpin(model.IPv6)),
	)
	return false, nil
}

// withoutLearned returns a side with its flows in one order, without those that come and go with traffic, which are not proved.
func (p *proof) withoutLearned(s Side, name rune) Side {
	state := *s.State
	state.Flows = compare.Canonical(&dump.State{Flows: s.State.Flows}, compare.Options{}).Flows
	if len(state.Flows) < len(s.State.Flows) {
		p.NotProved = append(p.NotProved, fmt.Sprintf("What the flows do that the switch of %c has learned from traffic.", name))
	}
	return Side{&state, s.Model}
}

// outcomes are how packets end.
type outcomes interface {
	comparable
	String() string
	// detail is String with all that tells two of them apart.
	detail() string
}

// differences notes the packets that end in different ways.
func differences[E outcomes](p *proof, s *space, way, conn string, possible packets, ends [2]map[E]packets) {
	for a, x := range ends[0] {
		for b, y := range ends[1] {
			if a == b {
				continue
			}
			both := s.and(s.and(x, y), possible)
			if both == nothing {
				continue
			}
			key := [2]string{a.String(), b.String()}
			if key[0] == key[1] {
				key = [2]string{a.detail(), b.detail()}
			}
			d := p.found[key]
			if d == nil {
				d = &difference{some: nothing}
				p.found[key] = d
			}
			d.some = s.or(d.some, both)
			d.places = append(d.places, place{way, conn, both})
		}
	}
}

func (f final) detail() string {
	return fmt.Sprintf("%s with connection mark 0x%x, packet mark 0x%x", f, f.mark, f.packetMark)
}

// sortDifferences puts those first that are easiest to see: of new connections.
func sortDifferences(all []Difference) {
	slices.SortStableFunc(all, func(a, b Difference) int {
		isNew := func(d Difference) int {
			if d.Connection == "new" {
				return 0
			}
			return 1
		}
		return cmp.Or(cmp.Compare(isNew(a), isNew(b)), cmp.Compare(a.A, b.A), cmp.Compare(a.B, b.B))
	})
}
