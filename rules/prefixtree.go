package rules

import (
	"maps"
	"slices"
	"sort"
	"strings"

	"github.com/felixlike/felixlike/tables"
)

// treeSizes bounds the keys below a node of each kind of chain: a leaf lists
// its keys; the kinds above list the largest subtrees of the kind below; the
// root lists the largest of all. A path through a tree is so at most three
// chains below the root, for any keys: nf_tables takes no path of
// more than 16 chains (NFT_JUMP_STACK_SIZE, gotos counted).
//
// Within three chains these sizes cost the least for hundreds to a thousand
// keys: at most 24 rules to find one of 1,000 addresses in a row, 26 of 1,000
// random ones, 14 in the mean of both (TestTreeCosts).
var treeSizes = [...]int{8, 32, 160}

// prefixTree dispatches by one key of a packet. Each rule of its chains compares a
// prefix of the key and goes to the chain of the keys with that prefix. The last
// rules compare a whole key and carry out its verdict. A packet with an unknown key
// returns to the chain that has the root's rules.
//
// The set of chains depends on the set of keys alone, not on their order, so a
// restart writes nothing. A prefix has a chain if at least two keys have it, and if
// the prefix without its last digit has a larger size class (see treeSizes). So a new
// or removed key changes the chain that lists it. If it crosses a size, it also
// changes the chains of one prefix and its halves.
type prefixTree struct {
	space keyspace
	// keys are sorted by their digits.
	keys []treeKey
	// dirty has the prefixes with chains that may change, begin or end.
	dirty map[string]bool
	// rendered is the text of every chain by its prefix, to detect changes. The root has the
	// empty prefix.
	rendered map[string]string
}

// keyspace gives a tree's keys their meaning. Keys are strings of digits, and no key
// is the beginning of another.
type keyspace interface {
	// match returns the match for all keys that begin with the digits, or for
	// the one key if they are whole.
	match(digits string) tables.Match
	// chain returns the name of the chain for the keys with a prefix.
	chain(digits string) string
	// origin returns the origin of that chain.
	origin(digits string) tables.Origin
	// comment names the objects to which the tree dispatches.
	comment() string
}

// treeKey is a key with the verdict for its packets.
type treeKey struct {
	digits  string
	verdict tables.Action
}

// TreeChanges is the changes of a tree, in the order of the prefixes.
type TreeChanges struct {
	// Chains are new or have other rules. Removed are names of chains.
	Chains  []tables.Chain
	Removed []string
	// Root is true if the root's rules changed.
	Root bool
}

func newPrefixTree(space keyspace) prefixTree {
	return prefixTree{space: space, dirty: map[string]bool{}, rendered: map[string]string{"": rulesText(nil)}}
}

// set sets the verdict for the key.
func (t *prefixTree) set(digits string, verdict tables.Action) {
	i, found := t.find(digits)
	switch {
	case !found:
		t.keys = slices.Insert(t.keys, i, treeKey{digits, verdict})
	case t.keys[i].verdict == verdict:
		return
	default:
		t.keys[i].verdict = verdict
	}
	t.touch(digits)
}

// remove removes the key.
func (t *prefixTree) remove(digits string) {
	if i, found := t.find(digits); found {
		t.touch(digits)
		t.keys = slices.Delete(t.keys, i, i+1)
	}
}

func (t *prefixTree) find(digits string) (int, bool) {
	return slices.BinarySearchFunc(t.keys, digits, func(k treeKey, d string) int { return strings.Compare(k.digits, d) })
}

// touch marks as dirty the prefixes of a key that the tree has. It also marks their siblings
// if the key makes their common prefix cross a size, or is the only reason for its split.
func (t *prefixTree) touch(digits string) {
	t.dirty[""] = true
	keys := t.keys
	for len(keys) > treeSizes[0] {
		crosses := size(len(keys)) != size(len(keys)-1)
		var below []treeKey
		var siblings []string
		for prefix, part := range byNextDigit(keys) {
			if strings.HasPrefix(digits, prefix) {
				t.dirty[prefix] = true
				below = part
			} else {
				siblings = append(siblings, prefix)
			}
		}
		if crosses || len(below) == 1 {
			for _, prefix := range siblings {
				t.dirty[prefix] = true
			}
		}
		keys = below
	}
}

// Changes returns the changes since the last call.
func (t *prefixTree) Changes() TreeChanges {
	var out TreeChanges
	for _, prefix := range slices.Sorted(maps.Keys(t.dirty)) {
		old, had := t.rendered[prefix]
		keys := t.below(prefix)
		if prefix != "" && !t.hasChain(prefix, len(keys)) {
			if had {
				out.Removed = append(out.Removed, t.space.chain(prefix))
				delete(t.rendered, prefix)
			}
			continue
		}
		rules := t.rules(keys, prefix == "")
		text := rulesText(rules)
		if had && text == old {
			continue
		}
		t.rendered[prefix] = text
		if prefix == "" {
			out.Root = true
		} else {
			out.Chains = append(out.Chains, tables.Chain{Name: t.space.chain(prefix), Rules: rules, Origin: t.space.origin(prefix)})
		}
	}
	t.dirty = map[string]bool{} // cleared, it would keep the room of the first load
	return out
}

func rulesText(rules []tables.Rule) string {
	c := tables.Chain{Rules: rules}
	return c.Text()
}

// Root returns the rules to put where the dispatch takes place.
func (t *prefixTree) Root() []tables.Rule { return t.rules(t.keys, true) }

// hasChain reports whether a prefix that n keys have is a chain.
func (t *prefixTree) hasChain(prefix string, n int) bool {
	return n > 1 && size(n) < size(len(t.below(prefix[:len(prefix)-1])))
}

// below returns the keys with a prefix.
func (t *prefixTree) below(prefix string) []treeKey {
	first, _ := t.find(prefix)
	n := sort.Search(len(t.keys)-first, func(i int) bool { return !strings.HasPrefix(t.keys[first+i].digits, prefix) })
	return t.keys[first : first+n]
}

// rules renders the chain for the keys. The root's rules jump, so that packets with
// an unknown key come back to the rules after them.
func (t *prefixTree) rules(keys []treeKey, root bool) []tables.Rule {
	var rules []tables.Rule
	add := func(digits string, verdict tables.Action) {
		rules = append(rules, tables.Rule{
			Matches: []tables.Match{t.space.match(digits)}, Action: verdict, Comment: t.space.comment(),
		})
	}
	limit := 1
	if n := size(len(keys)); n > 0 {
		limit = treeSizes[n-1]
	}
	split(keys, limit, func(prefix string, part []treeKey) {
		switch {
		case len(part) == 1:
			add(part[0].digits, part[0].verdict)
		case root:
			add(prefix, tables.Jump{Chain: t.space.chain(prefix)})
		default:
			add(prefix, tables.Goto{Chain: t.space.chain(prefix)})
		}
	})
	return rules
}

// size returns which kind of chain n keys make.
func size(n int) int {
	i := slices.IndexFunc(treeSizes[:], func(limit int) bool { return n <= limit })
	if i < 0 {
		return len(treeSizes)
	}
	return i
}

// split yields, in order, the shortest prefixes that at most limit of the keys
// have.
func split(keys []treeKey, limit int, yield func(prefix string, part []treeKey)) {
	if len(keys) == 1 {
		yield(keys[0].digits, keys)
		return
	}
	for prefix, part := range byNextDigit(keys) {
		if len(part) <= limit {
			yield(prefix, part)
		} else {
			split(part, limit, yield)
		}
	}
}

// byNextDigit yields the keys in parts by the first digit in which they
// differ, each with the prefix up to that digit.
func byNextDigit(keys []treeKey) func(yield func(prefix string, part []treeKey) bool) {
	return func(yield func(string, []treeKey) bool) {
		if len(keys) < 2 {
			return
		}
		// The keys are sorted: all share the common prefix of the first and the last.
		n := shared(keys[0].digits, keys[len(keys)-1].digits) + 1
		for len(keys) > 0 {
			prefix := keys[0].digits[:n]
			end := sort.Search(len(keys), func(i int) bool { return keys[i].digits[:n] > prefix })
			if !yield(prefix, keys[:end]) {
				return
			}
			keys = keys[end:]
		}
	}
}

// shared returns the number of digits with which both begin.
func shared(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}
