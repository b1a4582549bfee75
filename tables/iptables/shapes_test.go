package iptables

import (
	"testing"

	"github.com/felixlike/felixlike/test/tablestest"
)

// BenchmarkShapes compares rules of the same meaning. Run it with -benchtime 5x.
func BenchmarkShapes(b *testing.B) {
	for _, v := range variants {
		b.Run(v.String(), func(b *testing.B) {
			p := tablestest.NewPath(b, toolsOf(v)...)
			table, sets := host{p.Router, v}.open(b), &ipset{}
			tablestest.BenchmarkShapes(b, p, table, sets, func() {
				sets.program(b, p.Router)
				apply(b, table)
			})
		})
	}
}
