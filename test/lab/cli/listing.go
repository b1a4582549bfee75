package cli

import (
	"strings"

	"github.com/felixlike/felixlike/cmd/felixctl/dump"
	"github.com/felixlike/felixlike/tables/iptables"
)

// listing is a backend's state in a node's kernel, as the backend's own tool
// prints it: independent of felixlike's code.
type listing struct {
	chains map[string]*listedChain
	// names of the chains, in the tool's order.
	names []string
	// maps are the entries of verdict maps, by map.
	maps map[string][]listedEntry
	// members are the sets, by name.
	members map[string][]string
}

// listedChain is a chain, or a table of flows.
type listedChain struct {
	Name string `json:"name"`
	// What describes a table.
	What  string       `json:"what,omitempty"`
	Rules []listedRule `json:"rules"`
}

// listedRule is a rule, or a flow, in the tool's words.
type listedRule struct {
	Packets uint64 `json:"packets"`
	// Priority is that of a flow.
	Priority uint16 `json:"priority,omitempty"`
	// Match is empty if the rule matches every packet.
	Match   string `json:"match,omitempty"`
	Verdict string `json:"verdict"`
	// Actions are all those of a flow.
	Actions string `json:"actions,omitempty"`
	// For is the origin of the rule; Hash is that in its comment.
	For  string `json:"for,omitempty"`
	Hash string `json:"hash,omitempty"`
}

// listedEntry is the target of an address.
type listedEntry struct {
	// In is the verdict map or the chain.
	In      string `json:"in"`
	Match   string `json:"match"`
	Verdict string `json:"verdict"`
}

func newListing() *listing {
	return &listing{chains: map[string]*listedChain{}, maps: map[string][]listedEntry{}, members: map[string][]string{}}
}

func (l *listing) add(chain string, r listedRule) {
	c := l.chains[chain]
	if c == nil {
		c = &listedChain{Name: chain}
		l.chains[chain] = c
		l.names = append(l.names, chain)
	}
	c.Rules = append(c.Rules, r)
}

// listed takes our chains, maps and sets of a node.
func listed(s *dump.State) *listing {
	l := newListing()
	for _, t := range s.Tables {
		for _, c := range t.Chains {
			if t.Dialect == dump.IPTables && !strings.HasPrefix(c.Name, iptables.Prefix) {
				continue
			}
			for i := range c.Rules {
				r := &c.Rules[i]
				match, action := r.Split(t.Dialect)
				l.add(c.Name, listedRule{Packets: r.Packets, Match: match, Verdict: action, For: r.Comment, Hash: r.Hash})
			}
		}
		for _, set := range t.Sets {
			l.set(set)
		}
	}
	for _, set := range s.IPSets {
		l.set(set)
	}
	return l
}

func (l *listing) set(s *dump.Set) {
	for _, e := range s.Elements {
		if s.Verdicts {
			l.maps[s.Name] = append(l.maps[s.Name], listedEntry{In: "map " + s.Name, Match: e.Member.String(), Verdict: e.Verdict.String()})
		} else {
			l.members[s.Name] = append(l.members[s.Name], e.Member.String())
		}
	}
	l.members[s.Name] = append(l.members[s.Name], s.Foreign...)
}

// dispatch returns where packets from and to an address are sent.
func (l *listing) dispatch(address string) []listedEntry {
	var found []listedEntry
	for _, name := range sortedKeys(l.maps) {
		for _, e := range l.maps[name] {
			if e.Match == address {
				found = append(found, e)
			}
		}
	}
	for _, name := range l.names {
		for _, r := range l.chains[name].Rules {
			for _, side := range []string{"-s ", "-d "} {
				if rest, ok := strings.CutPrefix(r.Match, side+address+"/"); ok && (rest == "32" || rest == "128") {
					found = append(found, listedEntry{In: "chain " + name, Match: r.Match, Verdict: r.Verdict})
				}
			}
		}
	}
	return found
}

// target returns the chain that a verdict jumps or goes to, or "".
func (l *listing) target(verdict string) string {
	words := strings.Fields(verdict)
	if len(words) < 2 || l.chains[words[1]] == nil {
		return ""
	}
	return words[1]
}

// setsOf returns the sets that a match names.
func (l *listing) setsOf(match string) []string {
	var names []string
	for _, word := range strings.Fields(match) {
		if name := strings.TrimPrefix(word, "@"); len(l.members[name]) > 0 {
			names = append(names, name)
		}
	}
	return names
}
