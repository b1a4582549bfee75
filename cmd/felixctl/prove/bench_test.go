package prove

import (
	"testing"

	"github.com/felixlike/felixlike/cmd/felixctl/dump/wanted"
	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/bench/workload"
)

// BenchmarkProve compares the rules of nftables with other forms of them, for IPv4. w1 are 1,000 pods with 1,000 policies of 10 rules.
func BenchmarkProve(b *testing.B) {
	for _, name := range []string{"small", "w1-100", workload.W1} {
		m := workloadModel(b, name)
		first := stateOf(b, *m, config.NFTables)
		for _, backend := range []string{"maps", config.IPTablesNFT} {
			other := stateOf(b, *m, backend)
			b.Run(name+"/"+backend, func(b *testing.B) {
				for b.Loop() {
					if all, err := compared(model.IPv4, m, first, other); err != nil || len(all) > 0 {
						b.Fatal(all, err)
					}
				}
			})
		}
	}
}

// workloadModel returns the model of a node with a workload.
func workloadModel(b *testing.B, name string) *control.Model {
	profile, err := workload.FindProfile(name)
	if err != nil {
		b.Fatal(err)
	}
	m, _, err := wanted.FromEvents(workload.New(profile).Events(), workload.Node, &control.Model{Settings: control.Settings{Masquerade: true}, HostAddresses: nodeAddresses})
	if err != nil {
		b.Fatal(err)
	}
	return m
}
