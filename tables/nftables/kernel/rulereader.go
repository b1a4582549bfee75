package kernel

import (
	"bytes"

	"github.com/felixlike/felixlike/internal/nfnetlink"
	"github.com/felixlike/felixlike/tables"
)

// ruleReader takes the rules of a dump, which come chain by chain.
type ruleReader struct {
	// name is that of the chain of the last rule, and rules are its rules so far.
	name  []byte
	rules []Rule
	// hashes are those of the wanted rules of the chain, of which hashes[next] is
	// expected.
	hashes []string
	next   int
	// full are the chains that have got their rules.
	full []*Chain
}

// start begins a dump, again if need be.
func (in *ruleReader) start() {
	for _, c := range in.full {
		c.Rules = nil
	}
	in.name, in.rules, in.full = in.name[:0], in.rules[:0], in.full[:0]
}

// enter notes that the next rule is one of the named chain.
func (in *ruleReader) enter(name []byte, chains map[string]*Chain, wanted Wanted) {
	if bytes.Equal(in.name, name) {
		return
	}
	in.leave(chains)
	in.name = append(in.name, name...)
	if wanted != nil {
		in.hashes = wanted.HashesOf(nfnetlink.Trimmed(name))
	}
}

// leave gives a chain its rules, in a slice of their exact size.
func (in *ruleReader) leave(chains map[string]*Chain) {
	if c := chains[string(nfnetlink.Trimmed(in.name))]; c != nil {
		c.Rules = append(c.Rules, in.rules...)
		in.full = append(in.full, c)
	}
	in.name, in.rules, in.hashes, in.next = in.name[:0], in.rules[:0], nil, 0
}

// hash returns the hash in a comment, without new memory if the rule is the one
// that is wanted there.
func (in *ruleReader) hash(comment []byte) string {
	comment, ok := bytes.CutPrefix(comment, []byte(tables.CommentPrefix))
	if !ok {
		return ""
	}
	comment, _, _ = bytes.Cut(comment, []byte(" "))
	for i := in.next; i < min(len(in.hashes), in.next+lookAhead); i++ {
		if in.hashes[i] == string(comment) {
			in.next = i + 1
			return in.hashes[i]
		}
	}
	return string(comment)
}

// lookAhead is how many missing wanted rules are skipped at most.
const lookAhead = 8
