package iptables

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/felixlike/felixlike/model"
)

// text returns the output that iptables-save (of IPv4) or ip6tables-save would have if
// the kernel held the desired state and nothing else.
func (l *planner) text(f model.Family) string {
	l.locate()
	var b strings.Builder
	for _, p := range placesOf(f) {
		l.writeText(&b, p)
	}
	return b.String()
}

// writeText writes one table, unless the desired state of it is empty.
func (l *planner) writeText(b *strings.Builder, p place) {
	entries := l.entries(p)
	if len(entries) == 0 {
		return
	}
	var rules strings.Builder
	fmt.Fprintf(b, "*%s\n", p.table())
	for _, e := range slices.SortedFunc(maps.Keys(entries), func(a, b entry) int { return cmp.Compare(a.chain, b.chain) }) {
		fmt.Fprintf(b, ":%s ACCEPT [0:0]\n", e.chain)
		for _, text := range entries[e] {
			fmt.Fprintf(&rules, "-A %s %s\n", e.chain, text)
		}
	}
	for _, name := range sorted(l.chains) {
		c := l.chains[name]
		if c.desired == nil || !c.places.has(p) {
			continue
		}
		fmt.Fprintf(b, ":%s - [0:0]\n", KernelName(name))
		desired := l.quarantine.content(c, p)
		for i, r := range desired.rules {
			fmt.Fprintf(&rules, "-A %s %s\n", KernelName(name), render(r, desired.hashes[i]))
		}
	}
	b.WriteString(rules.String() + "COMMIT\n")
}
