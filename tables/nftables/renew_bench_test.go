package nftables

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/felixlike/felixlike/model"
)

// BenchmarkIntervals changes one prefix of a set of as many nodes: apart from all others, or split and merged.
func BenchmarkIntervals(b *testing.B) {
	for _, nodes := range []int{100, 1_000, 5_000} {
		for _, c := range []struct {
			name      string
			one, many []model.Member
		}{
			{"another", membersOf("11.0.0.0/24"), nil},
			{"split", membersOf("11.0.0.0/24"), membersOf("11.0.0.0/25", "11.0.0.128/25")},
		} {
			b.Run(fmt.Sprintf("nodes=%d/%s", nodes, c.name), func(b *testing.B) {
				ns := newNamespace(b)
				table := ns.open(b)
				loadNetworks(table)
				var all []model.Member
				for i := range nodes {
					all = append(all, model.Member{Prefix: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 0}), 24)})
				}
				table.AddMembers("networks", all)
				apply(b, table)
				for i := 0; b.Loop(); i++ {
					gone, come := c.many, c.one
					if i%2 == 1 {
						gone, come = come, gone
					}
					table.RemoveMembers("networks", gone)
					table.AddMembers("networks", come)
					apply(b, table)
				}
			})
		}
	}
}
