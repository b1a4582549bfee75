package cli

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/tables/iptables"
)

// listing is what a node's kernel holds of a backend, as the backend's own tool
// prints it: an eye that is not ours.
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
	// What says what a table is for.
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
	// For says what the rule comes from; Hash is that in its comment.
	For  string `json:"for,omitempty"`
	Hash string `json:"hash,omitempty"`
}

// listedEntry is where an address is sent to.
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

// comment takes our comment apart.
func (r *listedRule) comment(text string) {
	if hash := tables.HashInComment(text); hash != "" {
		r.Hash = hash
		text = strings.TrimPrefix(text[len(tables.CommentPrefix)+len(hash):], " ")
	}
	r.For = strings.TrimSpace(r.For + " " + text)
}

// parseNFT reads what `nft list table` prints.
func parseNFT(text string) *listing {
	l := newListing()
	rule := regexp.MustCompile(`^(.*?) ?counter packets (\d+) bytes \d+ (.*?)(?: comment "(.*)")?$`)
	kind, name, elements := "", "", ""
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		words := strings.Fields(line)
		switch {
		case len(words) == 3 && words[2] == "{" && words[0] != "table":
			kind, name, elements = words[0], words[1], ""
		case line == "}":
			kind = ""
		case kind == "chain":
			if m := rule.FindStringSubmatch(line); m != nil {
				r := listedRule{Match: m[1], Verdict: m[3]}
				r.Packets, _ = strconv.ParseUint(m[2], 10, 64) // digits, by the expression
				r.comment(m[4])
				l.add(name, r)
			}
		case kind != "" && (elements != "" || strings.HasPrefix(line, "elements = {")):
			elements += " " + strings.TrimPrefix(line, "elements = {")
			if strings.HasSuffix(line, "}") {
				l.elements(kind, name, strings.TrimSuffix(elements, "}"))
				elements = ""
			}
		}
	}
	return l
}

func (l *listing) elements(kind, name, text string) {
	for _, e := range strings.Split(text, ",") {
		e = strings.TrimSpace(e)
		if address, verdict, ok := strings.Cut(e, " : "); ok && kind == "map" {
			l.maps[name] = append(l.maps[name], listedEntry{In: "map " + name, Match: address, Verdict: verdict})
		} else if e != "" {
			l.members[name] = append(l.members[name], e)
		}
	}
}

// parseIPTables reads what `iptables-save -c` prints, as far as it is ours, and
// what `ipset save` does.
func parseIPTables(rules, sets string) *listing {
	l := newListing()
	rule := regexp.MustCompile(`^\[(\d+):\d+\] -A (\S+)(.*?) (-[jg] .*)$`)
	comment := regexp.MustCompile(` -m comment --comment (?:"((?:[^"\\]|\\.)*)"|(\S+))`)
	for line := range strings.Lines(rules) {
		m := rule.FindStringSubmatch(strings.TrimSpace(line))
		if m == nil || !strings.HasPrefix(m[2], iptables.Prefix) {
			continue
		}
		r := listedRule{Verdict: m[4]}
		r.Packets, _ = strconv.ParseUint(m[1], 10, 64) // digits, by the expression
		for _, c := range comment.FindAllStringSubmatch(m[3], -1) {
			r.comment(c[1] + c[2])
		}
		r.Match = strings.TrimSpace(comment.ReplaceAllString(m[3], ""))
		l.add(m[2], r)
	}
	for line := range strings.Lines(sets) {
		if words := strings.Fields(line); len(words) >= 3 && words[0] == "add" {
			l.members[words[1]] = append(l.members[words[1]], words[2])
		}
	}
	return l
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
