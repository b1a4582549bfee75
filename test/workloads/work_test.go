package workloads_test

import (
	"slices"
	"testing"

	"github.com/felixlike/felixlike/felixlike/policy"
	"github.com/felixlike/felixlike/felixlike/policy/oracle"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/workloads"
)

// TestWorkGrowsWithTheResult loads every workload in two sizes, in two orders.
// The work is a few times the input and output, and grows with them:
// a scan of labels times selectors would grow it sixteenfold in four times the
// cluster.
func TestWorkGrowsWithTheResult(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	orders := map[string]func(*policy.Engine, *oracle.Cluster) error{"as measured": workloads.Load, "policies first": loadBackwards}
	for _, w := range workloads.All() {
		for _, p := range workloads.Placements() {
			for name, load := range orders {
				t.Run(w.Name+"/"+string(p)+"/"+name, func(t *testing.T) {
					small, smallSize := workOf(t, w.Scaled(units(w)), p, load)
					large, largeSize := workOf(t, w.Scaled(4*units(w)), p, load)
					t.Logf("%d objects and results: %+v", largeSize, large)
					if small.Total() > 3*smallSize || large.Total() > 3*largeSize {
						t.Errorf("more work than 3 for each of %d objects and results, %+v, or of %d, %+v", smallSize, small, largeSize, large)
					}
					if p == workloads.OneNode {
						return // how many pods are local is chance
					}
					for i, n := range counts(large) {
						if before := counts(small)[i]; n > 4*before+before/10 {
							t.Errorf("from %+v to %+v in four times the cluster", small, large)
						}
					}
				})
			}
		}
	}
}

// units is the number of units of the smaller size.
func units(w workloads.Workload) int {
	if testing.Short() {
		return w.Units / 50
	}
	return w.Units / 10
}

func counts(w policy.Work) []uint64 {
	return []uint64{w.Policies, w.Matches, w.Visits, w.Members, w.Listed, w.Endpoints}
}

// workOf loads a workload and returns the work, and the number of objects and
// results.
func workOf(t *testing.T, w workloads.Workload, p workloads.Placement, load func(*policy.Engine, *oracle.Cluster) error) (policy.Work, uint64) {
	c := w.Objects(p)
	e := policy.New(workloads.LocalNode)
	if err := load(e, c); err != nil {
		t.Fatal(err)
	}
	size := len(c.Namespaces) + len(c.Pods) + len(c.Policies)
	for _, u := range e.Flush() {
		size++
		if g, ok := u.(model.GroupUpdate); ok {
			size += len(g.Added)
		}
	}
	return e.Work(), uint64(size)
}

// loadBackwards hands over policies, pods, namespaces, each from the last one.
func loadBackwards(e *policy.Engine, c *oracle.Cluster) error {
	for _, p := range slices.Backward(c.Policies) {
		e.SetNetworkPolicy(p)
	}
	for _, p := range slices.Backward(c.Pods) {
		e.SetPod(p)
	}
	for _, n := range slices.Backward(c.Namespaces) {
		e.SetNamespace(n)
	}
	return nil
}
