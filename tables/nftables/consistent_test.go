package nftables

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/tables/nftables/kernel"
)

// churn changes another table as fast as it goes until the test ends, and counts
// the transactions.
func (n namespace) churn(t testing.TB, table string, ops ...[]kernel.Op) *atomic.Int64 {
	t.Helper()
	c, err := kernel.Dial(kernel.Options{NetNS: n.fd, Table: table, Seed: maphash.MakeSeed()})
	if err != nil {
		t.Fatal(err)
	}
	var ended atomic.Bool
	var commits atomic.Int64
	var running sync.WaitGroup
	running.Go(func() {
		for i := 0; !ended.Load(); i++ {
			if err := c.Commit(ops[i%len(ops)]); err != nil {
				t.Error(err)
				return
			}
			commits.Add(1)
		}
	})
	t.Cleanup(func() {
		ended.Store(true)
		running.Wait()
		_ = c.Close()
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
	member := kernel.Op{Kind: kernel.AddMembers, Name: "s", Shape: first.sets["a0-4"].shape, Changes: changesOf("10.0.0.1")}
	gone := member
	gone.Kind = kernel.DeleteMembers
	commits := ns.churn(t, "other", []kernel.Op{member}, []kernel.Op{gone})

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
