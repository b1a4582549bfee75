package tables

import (
	"fmt"
	"testing"

	"github.com/felixlike/felixlike/model"
)

// BenchmarkHashes hashes a chain of ten rules.
func BenchmarkHashes(b *testing.B) {
	c := Chain{Name: "policy"}
	for n := range uint16(10) {
		c.Rules = append(c.Rules, Rule{
			Matches: []Match{
				MatchSet{Family: model.IPv4, Side: Source, Set: "a12-4"},
				MatchProtocol{Protocol: model.TCP},
				MatchDestinationPorts{80 + n, 80 + n},
			},
			Action:  Accept{},
			Comment: fmt.Sprintf("ns/policy-1 ingress[%d]", n),
		})
	}
	b.ReportAllocs()
	for b.Loop() {
		if h := c.Hashes(); h[3] != c.Rules[3].Hash() {
			b.Fatal(h)
		}
	}
}
