package iptables

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/internal/namespace"
	"github.com/felixlike/felixlike/model"
)

// LegacyActs finds the chains of the legacy variant that may do something with packets of established connections which
// come and leave by an interface. foreign.Acts finds those of the nft variant. Only one goroutine may use it.
type LegacyActs struct {
	netns int
	by    string
	tools *tools
	sizes *tableSizes
	// last are the sizes of the tables at the last read, and found its result.
	last  map[legacyTable]info
	found []string
}

// legacyTable is a table of one family.
type legacyTable struct {
	family model.Family
	name   string
}

// NewLegacyActs returns one for an interface, by its name. netns is a descriptor as in Options.
func NewLegacyActs(netns int, by string) *LegacyActs {
	return &LegacyActs{netns: netns, by: by, tools: newTools(Legacy, kernelFamilies(), netns)}
}

// Close ends the use.
func (l *LegacyActs) Close() {
	if l.sizes != nil {
		l.sizes.close()
	}
}

// Find returns the chains, each with a rule that may do something. Drops, changes and counts are of that kind, translations
// of addresses are not: they see the first packet of a connection only. The packets are of TCP without SYN and RST, of UDP or
// SCTP. It reads only tables in use, and unless again is true only those whose sizes have changed since the last call.
func (l *LegacyActs) Find(ctx context.Context, again bool) ([]string, error) {
	now, err := l.look()
	if err != nil {
		return nil, err
	}
	if l.last != nil && !again && maps.Equal(now, l.last) {
		return l.found, nil
	}
	var found []string
	if len(now) > 0 {
		switch err := l.tools.find(ctx); {
		case errors.Is(err, exec.ErrNotFound):
			return nil, fmt.Errorf("tables of iptables-legacy are in use, and its programs are missing: %w", err)
		case err != nil:
			return nil, err
		}
	}
	for _, t := range slices.SortedFunc(maps.Keys(now), func(a, b legacyTable) int {
		return strings.Compare(a.family.String()+a.name, b.family.String()+b.name)
	}) {
		out, err := l.tools.dump(ctx, t.family, "-t", t.name)
		if err != nil {
			return nil, err
		}
		for _, act := range parseActs(string(out)).find(l.by) {
			found = append(found, fmt.Sprintf("table %s of iptables-legacy (IPv%s), %s", t.name, t.family, act))
		}
	}
	l.last, l.found = now, found
	return found, nil
}

// look returns the sizes of the tables in use on the way of forwarded packets.
func (l *LegacyActs) look() (map[legacyTable]info, error) {
	all := map[legacyTable]info{}
	for _, f := range kernelFamilies() {
		names, err := legacyTables(l.netns, f)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			if name == tableNAT.String() {
				continue
			}
			if l.sizes == nil {
				if l.sizes, err = openSizes(l.netns, kernelFamilies()); err != nil {
					return nil, err
				}
			}
			level := unix.SOL_IP
			if f == model.IPv6 {
				level = unix.SOL_IPV6
			}
			size, code := sizeOf(l.sizes.sockets[f], level, name)
			if code != 0 {
				return nil, fmt.Errorf("ask for the size of table %s: %w", name, code)
			}
			all[legacyTable{f, name}] = size
		}
	}
	return all, nil
}

// legacyTables returns the names of the legacy variant's tables that the kernel has.
func legacyTables(netns int, f model.Family) (all []string, err error) {
	path := "/proc/thread-self/net/ip_tables_names"
	if f == model.IPv6 {
		path = "/proc/thread-self/net/ip6_tables_names"
	}
	read := func() error {
		names, err := os.ReadFile(path)
		if errors.Is(err, os.ErrNotExist) {
			return nil // the kernel has no legacy tables
		}
		all = strings.Fields(string(names))
		return err
	}
	if netns == 0 {
		return all, read()
	}
	err = namespace.In(netns, read)
	return all, err
}

// actsTable is a table as iptables-save shows it.
type actsTable struct {
	// policies are those of the kernel's own chains; chains are all others.
	policies map[string]string
	chains   map[string]bool
	rules    map[string][]string
}

func parseActs(out string) *actsTable {
	t := &actsTable{policies: map[string]string{}, chains: map[string]bool{}, rules: map[string][]string{}}
	for line := range strings.Lines(out) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case strings.HasPrefix(line, ":"):
			name, policy, _ := strings.Cut(line[1:], " ")
			if policy, _, _ = strings.Cut(policy, " "); policy == "-" {
				t.chains[name] = true
			} else {
				t.policies[name] = policy
			}
		case strings.HasPrefix(line, "-A "):
			chain, text, _ := strings.Cut(line[len("-A "):], " ")
			t.rules[chain] = append(t.rules[chain], text)
		}
	}
	return t
}

// find returns the chains on the way of forwarded packets that may do something, as "chain NAME: rule".
func (t *actsTable) find(by string) []string {
	var all []string
	for _, hook := range []string{"PREROUTING", "FORWARD", "POSTROUTING"} {
		policy, ok := t.policies[hook]
		if !ok {
			continue
		}
		w := actsWalk{table: t, by: by, ownAccepts: hook == "FORWARD"}
		if passes := w.chain(hook, 0); w.act == "" && passes && policy != "ACCEPT" {
			w.act = "policy " + policy
		}
		if w.act != "" {
			all = append(all, fmt.Sprintf("chain %s: %s", hook, w.act))
		}
	}
	return all
}

// actsWalk is the way of the packets through a table.
type actsWalk struct {
	table *actsTable
	by    string
	// ownAccepts says that our chains accept all packets; otherwise they return.
	ownAccepts bool
	// act is the first rule that may do something.
	act string
}

// maxJumps bounds jumps: the kernel refuses loops.
const maxJumps = 64

// chain reports whether packets may go on behind the chain.
func (w *actsWalk) chain(name string, depth int) (passes bool) {
	if strings.HasPrefix(name, Prefix) {
		return !w.ownAccepts
	}
	if depth > maxJumps {
		return true
	}
	for _, text := range w.table.rules[name] {
		words := Words(text)
		matches := w.answer(words)
		if matches == never {
			continue
		}
		target, isGoto := targetIn(words)
		goesOn := true
		switch {
		case target == "ACCEPT":
			goesOn = false
		case target == "RETURN":
			if matches == always {
				return true
			}
			passes = true
		case w.table.chains[target]:
			goesOn = w.chain(target, depth+1)
			if isGoto && goesOn {
				passes, goesOn = true, false
			}
		case w.act == "":
			w.act = text
		}
		if !goesOn && matches == always {
			return passes
		}
	}
	return true
}

// certainty says whether a rule matches the packets.
type certainty uint8

const (
	never certainty = iota
	perhaps
	always
)

// answer says whether a rule matches, by its words.
func (w *actsWalk) answer(words []string) certainty {
	all := always
	for len(words) > 0 && words[0] != "-j" && words[0] != "-g" {
		negated := words[0] == "!"
		if negated {
			words = words[1:]
			if len(words) == 0 {
				break
			}
		}
		one, used := w.condition(words)
		if negated && one != perhaps {
			one = always - one
		}
		all, words = min(all, one), words[min(used, len(words)):]
	}
	return all
}

// condition returns the answer of the condition at the head of the words, and how many words it has. A word that is
// not known counts as a condition for itself, which may be true.
func (w *actsWalk) condition(words []string) (certainty, int) {
	is := func(holds bool) certainty {
		if holds {
			return always
		}
		return never
	}
	value := func(i int) string {
		if i < len(words) {
			return words[i]
		}
		return ""
	}
	switch words[0] {
	case "-i", "-o":
		name, some := strings.CutSuffix(value(1), "+")
		return is(name == w.by || some && strings.HasPrefix(w.by, name)), 2
	case "-m":
		if value(1) == "comment" && value(2) == "--comment" {
			return always, 4
		}
		if slices.Contains([]string{"conntrack", "state", "tcp", "udp", "sctp"}, value(1)) {
			return always, 2 // the options decide
		}
	case "--ctstate", "--state":
		return is(slices.Contains(strings.Split(value(1), ","), "ESTABLISHED")), 2
	case "-p":
		if !slices.Contains([]string{"tcp", "udp", "sctp", "udplite", "all"}, value(1)) {
			return never, 2
		}
		return perhaps, 2
	case "--tcp-flags":
		asked := strings.Split(value(2), ",")
		if slices.Contains(asked, "SYN") || slices.Contains(asked, "RST") {
			return never, 3
		}
		return perhaps, 3
	case "--invert":
		// The way back to the sender of each packet is the interface.
		return never, 1
	}
	return perhaps, 1
}
