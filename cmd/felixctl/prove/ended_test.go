package prove

import (
	"context"
	"errors"
	"testing"

	"github.com/felixlike/felixlike/cmd/felixctl/dump/names"
	"github.com/felixlike/felixlike/cmd/felixctl/dump/wanted"
	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/bench/workload"
)

// TestEndsWithItsCaller: a proof for which nobody waits any more takes no more memory, so that felixctl ui, which lives on, can give one up.
func TestEndsWithItsCaller(t *testing.T) {
	t.Parallel()
	profile, err := workload.FindProfile("w1-100")
	if err != nil {
		t.Fatal(err)
	}
	m, _, err := wanted.FromEvents(workload.New(profile).Events(), workload.Node, &control.Model{HostAddresses: nodeAddresses})
	if err != nil {
		t.Fatal(err)
	}
	a, b := Side{stateOf(t, *m, config.NFTables), m}, Side{stateOf(t, *m, config.IPTablesNFT), m}
	made := func(ended func() error) *space {
		p := &proof{models: []*control.Model{m, m}, names: names.Of(m), found: map[[2]string]*difference{}, ended: ended}
		s, _ := p.family(model.IPv4, true, a, b)
		return s
	}
	if whole := made(nil); whole.full || len(whole.nodes) < 2*askedEvery {
		t.Fatalf("the whole proof makes %d nodes, which is too few for this test", len(whole.nodes))
	}
	if s := made(func() error { return context.Canceled }); !s.full || len(s.nodes) > askedEvery {
		t.Errorf("it made %d nodes", len(s.nodes))
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := compareSides(ctx, a, b, Options{OnlyOurs: true}); !errors.Is(err, context.Canceled) {
		t.Errorf("the error is %v", err)
	}
}
