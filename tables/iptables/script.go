package iptables

import (
	"fmt"
	"slices"
	"strings"

	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/tables/nftables/kernel"
)

// script is the input of one restore: sections, each a table that changes as a whole,
// and the object of each line.
type script struct {
	text     strings.Builder
	about    []about // by line
	sections int
	// changes and entries are the kernel's state after it.
	changes []change
	entries map[entry]*entered
	// hidden says that the tool cannot show the table of the script. There it deletes no rule from a chain with rules that it does not
	// know: before and after are the entries to delete by netlink, before and after the restore.
	hidden        bool
	before, after []kernel.Op
	// result counts the commands and rules.
	result tables.Result
}

func newScript() *script { return &script{entries: map[entry]*entered{}} }

// deleteHidden deletes an entry of a hidden table. If one of the wanted entries leads to the same chain, that one comes first: no
// packet may pass between.
func (s *script) deleteHidden(e entry, now *entered, i int, wanted []string) {
	op := kernel.Op{Kind: kernel.DeleteRule, Name: e.chain, Handle: now.handles[i]}
	s.result.Messages++
	if slices.ContainsFunc(wanted, func(text string) bool { return targetOf(text) == targetOf(now.texts[i]) }) {
		s.after = append(s.after, op)
	} else {
		s.before = append(s.before, op)
	}
}

// about is the object that a line of a script concerns.
type about struct {
	place place
	// chain is the chain of ours that the line writes a rule of, with the
	// rule's hash; both are empty for other lines.
	chain, hash string
	// entry says that the line concerns a chain of the kernel's own.
	entry bool
}

// change is the content of a chain in a place after a script; nil means none.
type change struct {
	chain *chain
	place place
	now   *observedChain
}

// line adds one line.
func (s *script) line(a about, format string, args ...any) {
	fmt.Fprintf(&s.text, format+"\n", args...)
	s.about = append(s.about, a)
}

// command adds one line that changes something.
func (s *script) command(a about, format string, args ...any) {
	s.line(a, format, args...)
	s.result.Messages++
}

// concerns returns the object of the line with the number, from one.
func (s *script) concerns(number int) (about, bool) {
	if number < 1 || number > len(s.about) {
		return about{}, false
	}
	return s.about[number-1], true
}

// countIn adds the script's commands and rules to a Result.
func (s *script) countIn(result *tables.Result) {
	result.Messages += s.result.Messages
	result.RulesAdded += s.result.RulesAdded
	result.RulesDeleted += s.result.RulesDeleted
}

// join adds a section, if it has anything to do.
func (s *script) join(section *script, p place) {
	s.changes = append(s.changes, section.changes...)
	for e, now := range section.entries {
		s.entries[e] = now
	}
	s.before, s.after = append(s.before, section.before...), append(s.after, section.after...)
	if section.result.Messages == 0 {
		return
	}
	s.sections++
	s.line(about{place: p}, "*%s", p.table())
	s.text.WriteString(section.text.String())
	s.about = append(s.about, section.about...)
	s.line(about{place: p}, "COMMIT")
	s.result.Messages += section.result.Messages
	s.result.RulesAdded += section.result.RulesAdded
	s.result.RulesDeleted += section.result.RulesDeleted
}
