package iptables

import (
	"context"
	"strconv"
	"strings"

	"github.com/felixlike/felixlike/tables"
)

// Counters calls visit with the counter of each of our rules: with the name of its chain, and
// the hash in its comment. It starts iptables-save of the variant, once a family, and may be
// called while a Table is applied.
func Counters(ctx context.Context, v Variant, netns int, visit func(chain, hash string, packets uint64)) error {
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
			if chain, hash, packets, ok := counted(line); ok {
				visit(chain, hash, packets)
			}
		}
	}
	return nil
}

// counted reads "[12:720] -A flx-chain ... --comment "flx:hash" ...".
func counted(line string) (chain, hash string, packets uint64, ok bool) {
	counters, rest, ok := strings.Cut(line, "] -A "+Prefix)
	if !ok {
		return "", "", 0, false
	}
	number, _, _ := strings.Cut(strings.TrimPrefix(counters, "["), ":")
	packets, err := strconv.ParseUint(number, 10, 64)
	if err != nil {
		return "", "", 0, false
	}
	chain, rest, _ = strings.Cut(rest, " ")
	_, rest, ok = strings.Cut(rest, `--comment "`+tables.CommentPrefix)
	if !ok {
		return "", "", 0, false
	}
	hash, _, ok = strings.Cut(rest, `"`)
	return chain, hash, packets, ok
}
