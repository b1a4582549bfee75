package nftables

import (
	"testing"

	"github.com/felixlike/felixlike/test/tablestest"
)

// BenchmarkShapes compares rules of the same meaning. Run it with -benchtime 5x.
func BenchmarkShapes(b *testing.B) {
	p := tablestest.NewPath(b, "nft")
	table := namespace{p.Router.Name, p.Router.FD}.open(b)
	tablestest.BenchmarkShapes(b, p, table, table, func() { apply(b, table) })
}
