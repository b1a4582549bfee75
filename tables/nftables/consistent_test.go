package nftables

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/tables/nftables/watch"
)

// churn changes another table as fast as it goes until the test ends, and counts
// the transactions.
func (n namespace) churn(t testing.TB, table string, ops ...[]op) *atomic.Int64 {
	t.Helper()
	c, err := dial(Options{NetNS: n.fd, Table: table}, New(Options{}).digests.Seed)
	if err != nil {
		t.Fatal(err)
	}
	var ended atomic.Bool
	var commits atomic.Int64
	var running sync.WaitGroup
	running.Go(func() {
		for i := 0; !ended.Load(); i++ {
			if err := c.flush(ops[i%len(ops)]); err != nil {
				t.Error(err)
				return
			}
			commits.Add(1)
		}
	})
	t.Cleanup(func() {
		ended.Store(true)
		running.Wait()
		_ = c.close()
	})
	return &commits
}

// Others may commit thousands of times a second: the table is read all the
// same, and rightly.
func TestReadWhileOthersCommit(t *testing.T) {
	ns := newNamespace(t)
	first := ns.open(t)
	load(first, 380)
	for i := range 3000 {
		first.SetVerdict("to-pods-4", nth("10.3.0.0", i), tables.Drop{})
	}
	apply(t, first)
	ns.nft(t, "table inet other { chain c { }; set s { type ipv4_addr; }; }")
	inSet := newSet("s")
	inSet.shape = first.sets["a0-4"].shape
	member := []change{{member: membersOf("10.0.0.1")[0]}}
	commits := ns.churn(t, "other", []op{{kind: addMembers, set: inSet, changes: member}}, []op{{kind: deleteMembers, set: inSet, changes: member}})

	second := ns.open(t)
	load(second, 380)
	for i := range 3000 {
		second.SetVerdict("to-pods-4", nth("10.3.0.0", i), tables.Drop{})
	}
	for range 5 {
		before := commits.Load()
		second.Invalidate()
		r := apply(t, second)
		t.Logf("full read in %v while others committed %d times", r.Duration, commits.Load()-before)
		if r.Messages != 0 {
			t.Errorf("%+v", r)
		}
	}
}

// The barrier changes nothing, not even the generation.
func TestBarrier(t *testing.T) {
	ns := newNamespace(t)
	table := ns.open(t)
	apply(t, table)
	before, err := watch.ReadGeneration(table.conn.raw)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := table.conn.barrier(); err != nil {
			t.Fatal(err)
		}
	}
	if after, err := watch.ReadGeneration(table.conn.raw); err != nil || after != before {
		t.Errorf("generation %d, then %d: %v", before, after, err)
	}
	table.UpdateChain(tables.Chain{Name: "next"})
	apply(t, table)
}
