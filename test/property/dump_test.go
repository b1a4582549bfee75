package property

import (
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"

	"github.com/felixlike/felixlike/felixlike"
	"github.com/felixlike/felixlike/tables/nftables"
)

// dump tells what the kernel holds of a backend in the network namespace of the
// thread, without counters, and in an order that does not depend on when an object
// was made: only rules stand as they do.
func dump(backend string) (string, error) {
	if backend == felixlike.NFTables {
		listing, err := run("nft", "-s", "list", "table", "inet", nftables.DefaultTable)
		return sortedObjects(listing), err
	}
	var parts []string
	for _, tool := range [][]string{{backend + "-save"}, {"ip6" + strings.TrimPrefix(backend, "ip") + "-save"}, {"ipset", "save"}} {
		saved, err := run(tool[0], tool[1:]...)
		if err != nil {
			return "", err
		}
		parts = append(parts, tool[0]+"\n"+sortedLines(saved))
	}
	return strings.Join(parts, ""), nil
}

func run(name string, args ...string) (string, error) {
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, out)
	}
	return string(out), nil
}

var objectStart = regexp.MustCompile(`(?m)^\t(?:chain|set|map) \S+ \{`)

// sortedObjects sorts the objects in nft's listing of a table.
func sortedObjects(listing string) string {
	listing = strings.TrimSuffix(listing, "}\n")
	var objects []string
	at := objectStart.FindAllStringIndex(listing, -1)
	for i, m := range at {
		end := len(listing)
		if i+1 < len(at) {
			end = at[i+1][0]
		}
		objects = append(objects, strings.TrimSpace(listing[m[0]:end])+"\n")
	}
	slices.Sort(objects)
	return strings.Join(objects, "")
}

// changing is what differs between two listings of the same: counters, and how
// sets hash.
var changing = regexp.MustCompile(` ?\[\d+:\d+\]| hashsize \d+| initval \S+`)

// sortedLines sorts what iptables-save or ipset save prints, table by table, and
// the rules by their chain only.
func sortedLines(saved string) string {
	table := ""
	var lines []string
	for line := range strings.Lines(saved) {
		switch line = changing.ReplaceAllString(strings.TrimSpace(line), ""); {
		case strings.HasPrefix(line, "#") || line == "COMMIT":
			continue
		case strings.HasPrefix(line, "*"):
			table = line
		}
		lines = append(lines, table+" "+line+"\n")
	}
	slices.SortStableFunc(lines, func(a, b string) int {
		if !strings.Contains(a, " -A ") || !strings.Contains(b, " -A ") {
			return strings.Compare(a, b)
		}
		return strings.Compare(strings.Join(strings.Fields(a)[:3], " "), strings.Join(strings.Fields(b)[:3], " "))
	})
	return strings.Join(lines, "")
}
