package driver

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/felixlike/driver/drivertest"
	"github.com/felixlike/felixlike/felixlike/handover"
	"github.com/felixlike/felixlike/test/tablestest"
)

// Two variants of iptables have the same sets. While the one is built and read back,
// it does not undo changes of the other one.
func TestVariantsShareTheirSets(t *testing.T) {
	for _, c := range [][2]string{{config.IPTablesLegacy, config.IPTablesNFT}, {config.IPTablesNFT, config.IPTablesLegacy}} {
		t.Run(c[1], func(t *testing.T) {
			ns := tablestest.NewNamespace(t, "ipset", "iptables-legacy", "iptables-nft", "ip6tables-legacy", "ip6tables-nft")
			open := func(name string) backend.Backend {
				b, err := backend.New(t.Context(), backend.Config{Name: name, Node: "node1", NetNS: ns.FD})
				if err != nil {
					t.Fatal(err)
				}
				return b
			}
			old, next := open(c[0]), open(c[1])
			t.Cleanup(func() { _, _ = old.Close(), next.Close() })
			holds := func(prefix string) bool {
				return strings.Contains(ns.Run(t, "ipset", "list", "flx-pod-networks-4"), "\n"+prefix+"\n")
			}
			// A stage that is slow keeps the cycle up, so that the backend in force is
			// applied beside it.
			var slow atomic.Bool
			stage := next.Stage()
			f := startWith(t, Config{
				Backend: old, Handover: handover.Config{New: func(string) (backend.Backend, error) { return drivertest.Staged{Backend: next, StageIs: stage}, nil }},
				Stages: []backend.Stage{old.Stage(), {Name: "slow", Apply: func(ctx context.Context) (backend.Applied, error) {
					for slow.Load() && ctx.Err() == nil {
						time.Sleep(time.Millisecond)
					}
					return backend.Applied{}, ctx.Err()
				}}},
			})
			apply := stage.Apply
			var rounds atomic.Int32
			const building, verifying = 1, 2
			stage.Apply = func(ctx context.Context) (backend.Applied, error) {
				round := rounds.Add(1)
				if round > verifying {
					return apply(ctx)
				}
				slow.Store(true)
				defer slow.Store(round < verifying)
				prefix := fmt.Sprintf("10.11.%d.0/24", round)
				f.Source.Send(true, drivertest.Node(fmt.Sprint("node-", round), prefix))
				for !holds(prefix) {
					if ctx.Err() != nil {
						t.Errorf("round %d: the backend in force does not follow", round)
						break
					}
				}
				done, err := apply(ctx)
				if !holds(prefix) {
					t.Errorf("round %d has undone what the backend in force has programmed", round)
				}
				return done, err
			}
			f.begin(t)
			stage.Timeout = 10 * time.Second
			if err := f.SetBackend(t.Context(), c[1]); err != nil {
				t.Fatal(err)
			}
			if round := rounds.Load(); round <= verifying {
				t.Errorf("the new backend was applied %d times", round)
			}
			for i := range verifying {
				if prefix := fmt.Sprintf("10.11.%d.0/24", i+building); !holds(prefix) {
					t.Errorf("in the end, %s is not in the set", prefix)
				}
			}
		})
	}
}
