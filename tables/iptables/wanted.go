package iptables

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/felixlike/felixlike/model"
)

// WantedText returns what iptables-save (of IPv4) or ip6tables-save would print,
// if the kernel held what is wanted and nothing else. It asks no kernel.
func (t *Table) WantedText(f model.Family) string {
	t.reach()
	var b strings.Builder
	for _, p := range placesOf(f) {
		t.writeWanted(&b, p)
	}
	return b.String()
}

// writeWanted writes one table, unless nothing is wanted in it.
func (t *Table) writeWanted(b *strings.Builder, p place) {
	ways := t.entriesOf(p)
	if len(ways) == 0 {
		return
	}
	var rules strings.Builder
	fmt.Fprintf(b, "*%s\n", p.table())
	for _, e := range slices.SortedFunc(maps.Keys(ways), func(a, b entry) int { return cmp.Compare(a.chain, b.chain) }) {
		fmt.Fprintf(b, ":%s ACCEPT [0:0]\n", e.chain)
		for _, way := range ways[e] {
			fmt.Fprintf(&rules, "-A %s %s\n", e.chain, way)
		}
	}
	for _, name := range sorted(t.chains) {
		c := t.chains[name]
		if c.want == nil || !c.lives.has(p) {
			continue
		}
		fmt.Fprintf(b, ":%s - [0:0]\n", KernelName(name))
		now := t.content(c, p)
		for i, r := range now.rules {
			fmt.Fprintf(&rules, "-A %s %s\n", KernelName(name), render(r, now.hashes[i]))
		}
	}
	b.WriteString(rules.String() + "COMMIT\n")
}
