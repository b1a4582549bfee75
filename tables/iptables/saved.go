package iptables

import (
	"errors"
	"strings"

	"github.com/felixlike/felixlike/tables"
)

// saved is the output of iptables-save for one family, as far as it concerns us.
type saved struct {
	tables [kernelTables]savedTable
	// others counts rules and chains that are not ours, in all tables.
	others int
	// kubelet says that the chain is there by which the kubelet shows which
	// variant the node uses.
	kubelet bool
	// hidden are those of the kernel's tables that cannot be shown.
	hidden []kernelTable
}

// savedTable is one table. Its chains are those of ours, without the prefix.
type savedTable struct {
	chains map[string]*savedChain
	// entries are our rules in chains that are not ours, by the chain.
	entries map[string]*entered
	// strange are rules of others, in chains of others, that lead to ours.
	strange []strangeRule
}

// entered are our rules in one of the kernel's own chains, as their texts.
type entered struct {
	texts []string
	// handles are those of nf_tables, if the table is hidden.
	handles []uint64
	// first is how many of them stand before all rules of other programs, mixed
	// whether there are such.
	first int
	mixed bool
}

type savedChain struct {
	rules []savedRule
	// pinned says that strange rules lead here.
	pinned bool
}

// savedRule is a rule with the hash in its comment, if it has one, and its text
// behind the command and the chain.
type savedRule struct {
	hash, text string
	// hidden says that the text is not known.
	hidden bool
}

type strangeRule struct{ chain, text string }

// errIncompatible is the error of the nft variant for a table that it cannot show.
var errIncompatible = errors.New("the table has rules that iptables cannot show: another program has written to it with nft")

// kubeletChains are the chains that the kubelet keeps in the mangle table
// (Kubernetes KEP 3178; before that the canary).
var kubeletChains = []string{"KUBE-IPTABLES-HINT", "KUBE-KUBELET-CANARY"}

func (k kernelTable) incompatible() error {
	return &tables.ObjectError{Object: "table", Name: k.String(), Err: errIncompatible}
}

// parseSaved parses the output of iptables-save.
func parseSaved(out string) *saved {
	s := &saved{}
	for k := range s.tables {
		s.tables[k] = savedTable{chains: map[string]*savedChain{}, entries: map[string]*entered{}}
	}
	var table *savedTable
	for line := range strings.Lines(out) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case strings.HasPrefix(line, "*"):
			table = nil
			if k, ok := parseKernelTable(line[1:]); ok {
				table = &s.tables[k]
			}
		case strings.HasPrefix(line, ":"):
			s.declared(table, line[1:])
		case strings.HasPrefix(line, "-A "):
			s.rule(table, line[len("-A "):])
		case strings.HasPrefix(line, "# Table `") && strings.Contains(line, "is incompatible"):
			name, _, _ := strings.Cut(line[len("# Table `"):], "'")
			if k, ok := parseKernelTable(name); ok {
				s.hidden = append(s.hidden, k)
			}
		}
	}
	for k := range s.tables {
		s.tables[k].pin()
	}
	return s
}

// declared takes a chain, as "name policy [counters]".
func (s *saved) declared(table *savedTable, line string) {
	name, policy, _ := strings.Cut(line, " ")
	ours, ok := strings.CutPrefix(name, Prefix)
	switch {
	case ok && table != nil:
		table.chains[ours] = &savedChain{}
	case strings.HasPrefix(policy, "-"): // not one of the kernel's own
		s.others++
		for _, k := range kubeletChains {
			s.kubelet = s.kubelet || name == k
		}
	}
}

// rule takes a rule, as "chain text".
func (s *saved) rule(table *savedTable, line string) {
	chain, text, _ := strings.Cut(line, " ")
	if ours, ok := strings.CutPrefix(chain, Prefix); ok {
		if table != nil && table.chains[ours] != nil {
			c := table.chains[ours]
			c.rules = append(c.rules, savedRule{hash: hashIn(text), text: text})
		}
		return
	}
	leads := table != nil && strings.HasPrefix(targetOf(text), Prefix)
	if leads && hashIn(text) != "" {
		e := table.entered(chain)
		if e.texts = append(e.texts, text); !e.mixed {
			e.first++
		}
		return
	}
	if isHeadRule(chain, text) {
		return // ours, in a chain without a way to our chains
	}
	s.others++
	if table == nil {
		return
	}
	if leads {
		table.strange = append(table.strange, strangeRule{chain, text})
	}
	table.entered(chain).mixed = true
}

// entered returns the known state of our rules in a chain that is not ours.
func (t *savedTable) entered(chain string) *entered {
	e := t.entries[chain]
	if e == nil {
		e = &entered{}
		t.entries[chain] = e
	}
	return e
}

// pin marks the chains of ours that rules of others lead to, and forgets the
// chains of others that have nothing of ours.
func (t *savedTable) pin() {
	for _, r := range t.strange {
		if c := t.chains[strings.TrimPrefix(targetOf(r.text), Prefix)]; c != nil {
			c.pinned = true
		}
	}
	for name, e := range t.entries {
		if len(e.texts) == 0 {
			delete(t.entries, name)
		}
	}
}

// targetOf returns the chain that a rule jumps or goes to, if it can be one of
// ours: others are not looked at any closer.
func targetOf(text string) string {
	if !strings.Contains(text, Prefix) {
		return ""
	}
	list := Words(text)
	// From the end: a comment, which comes before, may say "-j" as well.
	for i := len(list) - 2; i >= 0; i-- {
		if list[i] == "-j" || list[i] == "-g" {
			return list[i+1]
		}
	}
	return ""
}

// hashIn returns the hash in the comment of a rule, or "".
func hashIn(text string) string {
	if !strings.Contains(text, tables.CommentPrefix) {
		return ""
	}
	// As the tools print it: the colon makes them quote it.
	const before = `--comment "` + tables.CommentPrefix
	if _, rest, ok := strings.Cut(text, before); ok {
		if hash, _, ok := strings.Cut(rest, `"`); ok && !strings.ContainsAny(hash, ` \`) {
			return hash
		}
	}
	list := Words(text)
	for i, w := range list[:max(0, len(list)-1)] {
		if w == "--comment" {
			if hash := tables.HashInComment(list[i+1]); hash != "" {
				return hash
			}
		}
	}
	return ""
}
