package bench_test

import (
	"slices"
	"testing"

	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/test/bench"
	"github.com/felixlike/felixlike/test/bench/worker"
	"github.com/felixlike/felixlike/test/measure"
)

// TestDearer asserts that one slow turn of the new version, or one quick turn of the old one, is no failure.
func TestDearer(t *testing.T) {
	for name, c := range map[string]struct {
		was, is measure.Series
		dearer  bool
	}{
		"equal":                   {measure.Series{1, 1, 1}, measure.Series{1, 1, 1}, false},
		"at the limit":            {measure.Series{1, 1, 1}, measure.Series{1.15, 1.15, 1.15}, false},
		"above":                   {measure.Series{1, 1, 1}, measure.Series{1.2, 1.2, 1.2}, true},
		"above on a busy machine": {measure.Series{1, 2, 1.5}, measure.Series{1.2, 2.4, 1.8}, true},
		"one slow turn":           {measure.Series{1, 1, 1}, measure.Series{1, 9, 1}, false},
		"two slow turns":          {measure.Series{1, 1, 1}, measure.Series{1, 2, 2}, false},
		"one quick turn":          {measure.Series{1, 0.5, 1}, measure.Series{1, 1, 1}, false},
		"cheaper":                 {measure.Series{1, 1, 1}, measure.Series{0.5, 0.5, 0.5}, false},
	} {
		v := bench.Versions{Limit: 1.15, Costs: []bench.Cost{{Was: c.was, Is: c.is}}}
		if got := len(v.Dearer()) > 0; got != c.dearer {
			t.Errorf("%s: dearer %v, want %v", name, got, c.dearer)
		}
	}
}

// TestCompareVersions compares a version with itself.
func TestCompareVersions(t *testing.T) {
	cfg, _ := smallRun(t, 1)
	cfg.Backends = slices.DeleteFunc(cfg.Backends, func(b worker.Backend) bool { return b.Name != config.NFTables && !b.NeedsSwitch })
	v, err := bench.CompareVersions(t.Context(), cfg, cfg.Worker, 1.15)
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range cfg.Backends {
		for c, rounds := range map[worker.Case]int{
			worker.FirstLoad: 1, worker.FirstLoad + ", model": 1, worker.Restart: 3, worker.Restart + ", model": 3, worker.RuleChanged: 1,
			worker.ElementAdded: 1, worker.ElementRemoved: 1, worker.EndpointAdded: 1, worker.EndpointRemoved: 1, worker.Recheck: 1,
		} {
			i := slices.IndexFunc(v.Costs, func(k bench.Cost) bool { return k.Backend == b.Name && k.What == string(c) })
			if i < 0 || len(v.Costs[i].Was) != rounds || len(v.Costs[i].Is) != rounds || v.Costs[i].Was.Min() <= 0 || v.Costs[i].Is.Min() <= 0 {
				t.Errorf("%s %s: want %d positive CPU times of both versions, got %+v", b.Name, c, rounds, v.Costs)
			}
		}
	}
	// A limit that every version is above: the table names them all.
	v.Limit = 0.001
	if len(v.Dearer()) != len(v.Costs) {
		t.Errorf("%d of %d costs are above a limit of nothing", len(v.Dearer()), len(v.Costs))
	}
}
