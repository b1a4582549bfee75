package iptables

import (
	"context"
	"strconv"
	"strings"

	"github.com/felixlike/felixlike/tables"
)

// Counters calls visit with the counters of our policy rules, and with their comments
// without the hash. It starts iptables-save of the variant, once a family, and may be
// called while a Table is applied.
func Counters(ctx context.Context, v Variant, netns int, visit func(comment string, packets uint64)) error {
	all := kernelFamilies()
	t := newTools(v, all, netns)
	if err := t.find(ctx); err != nil {
		return err
	}
	for _, f := range all {
		out, err := t.dump(ctx, f, "-c", "-t", "mangle")
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(out)) {
			if packets, comment, ok := counted(line); ok {
				visit(comment, packets)
			}
		}
	}
	return nil
}

// counted reads "[12:720] -A chain ... --comment "flx:hash" ... --comment "words" ...".
func counted(line string) (packets uint64, comment string, ok bool) {
	counters, rest, ok := strings.Cut(line, "] -A ")
	if !ok {
		return 0, "", false
	}
	number, _, _ := strings.Cut(strings.TrimPrefix(counters, "["), ":")
	packets, err := strconv.ParseUint(number, 10, 64)
	if err != nil {
		return 0, "", false
	}
	_, rest, ok = strings.Cut(rest, `--comment "`+tables.CommentPrefix)
	if !ok {
		return 0, "", false
	}
	_, rest, ok = strings.Cut(rest, `--comment "`)
	if !ok {
		return 0, "", false
	}
	comment, _, ok = strings.Cut(rest, `"`)
	return packets, comment, ok
}
