package tablestest

import (
	"regexp"
	"slices"
	"strings"
)

// CanonicalNFT returns the output of `nft -s list table` in a fixed order: nft lists the
// objects of a table by age, and the elements of a set by hash. Rules keep their order.
func CanonicalNFT(listing string) string {
	objects := strings.Split(strings.TrimSuffix(listing, "}\n"), "\n\n")
	for i, o := range objects {
		if head, rest, found := strings.Cut(o, "\n"); found && strings.HasPrefix(head, "table ") {
			o = rest
		}
		if !strings.HasPrefix(strings.TrimSpace(o), "chain") {
			words := strings.FieldsFunc(o, func(r rune) bool { return strings.ContainsRune(",{}\n\t", r) })
			if len(words) > 0 {
				slices.Sort(words[1:]) // behind "set" or "map"
			}
			o = strings.Join(words, ",")
		}
		objects[i] = strings.TrimSpace(o)
	}
	slices.Sort(objects)
	return strings.Join(objects, "\n")
}

var packetCounters = regexp.MustCompile(` \[\d+:\d+\]$`)

// CanonicalIPTables returns the output of `iptables-save` without remarks and
// counters, and with tables and chains in a fixed order. Rules keep their order.
func CanonicalIPTables(save string) string {
	var table string
	var all []string
	chains := map[string]int{} // index in all
	for line := range strings.Lines(save) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case strings.HasPrefix(line, "*"):
			table = line
		case strings.HasPrefix(line, ":"):
			name, _, _ := strings.Cut(line[1:], " ")
			chains[table+name] = len(all)
			all = append(all, table+" "+packetCounters.ReplaceAllString(line, "")+"\n")
		case strings.HasPrefix(line, "-A "):
			name, _, _ := strings.Cut(line[len("-A "):], " ")
			all[chains[table+name]] += "  " + line + "\n"
		}
	}
	slices.Sort(all)
	return strings.Join(all, "")
}

// The kernel chooses these values: the present size of a set, and the seed
// of its hash.
var ipsetOwn = regexp.MustCompile(` (hashsize|initval) \S+`)

// CanonicalIPSets returns the output of `ipset save` in a fixed order, without values
// that the kernel chooses.
func CanonicalIPSets(save string) string {
	lines := strings.SplitAfter(ipsetOwn.ReplaceAllString(save, ""), "\n")
	slices.Sort(lines)
	return strings.Join(lines, "")
}
