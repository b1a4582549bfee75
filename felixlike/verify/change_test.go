package verify

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/felixlike/driver/drivertest"
	"github.com/felixlike/felixlike/felixlike/metrics"
	"github.com/felixlike/felixlike/test/eventually"
)

// changes returns the number of updates and of writes, once nothing runs.
func (f *fixture) changes(t *testing.T) (n uint64) {
	t.Helper()
	if err := f.view.Wait(t.Context(), func() (bool, error) {
		n = f.view.Changes() + f.view.Attempted()
		return f.view.Idle(), nil
	}); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestEveryChange: with everyChange, the state is proved after each change of objects and each repair as well, without a resync, and not in between.
// Otherwise a change has no proof.
func TestEveryChange(t *testing.T) {
	for mode, every := range map[string]bool{config.VerifyEveryChange: true, config.VerifyOnResync: false} {
		t.Run(mode, func(t *testing.T) {
			f := startWith(t, Options{EveryChange: every}, always(Answer{Compared: true}))
			f.is(t, metrics.VerifyEqual, "")
			if got := f.Fixture.Status().Verify.Mode; got != mode {
				t.Errorf("mode %q", got)
			}
			proofs := f.asked()
			for what, change := range map[string]func(){
				"a change of objects": func() { f.Source.Send(true, drivertest.PodOn("new", "node1")) },
				"a repair":            func() { f.reread(t)() },
			} {
				before := f.changes(t)
				change()
				eventually.True(t, what+" is programmed", func() bool { return f.changes(t) > before })
				if every {
					eventually.True(t, "a proof after "+what, func() bool { return f.asked() > proofs })
				}
				time.Sleep(20 * time.Millisecond) // proofs that nobody asked for would run
				if got := f.asked(); !every && got != proofs || every && got > proofs+2 {
					t.Errorf("%d proofs after %s, %d before", got, what, proofs)
				}
				proofs = f.asked()
			}
		})
	}
}

// TestEveryChangeInOneProof: changes during the pause after a proof have one proof, which comes no sooner than the pause ends.
func TestEveryChangeInOneProof(t *testing.T) {
	const used = 20 * time.Millisecond
	first := make(chan time.Time, 1)
	f := startWith(t, Options{EveryChange: true}, func(_ context.Context, call int) Answer {
		if call == 1 {
			first <- time.Now()
		}
		return Answer{Compared: true, CPU: used}
	})
	f.is(t, metrics.VerifyEqual, "")
	ended := <-first
	for i := range 5 {
		before := f.changes(t)
		f.Source.Send(true, drivertest.PodOn(fmt.Sprint("pod", i), "node1"))
		eventually.True(t, "the change is programmed", func() bool { return f.changes(t) > before })
	}
	if took := time.Since(ended); took > share*used {
		t.Skipf("five changes took %s, longer than the pause", took)
	}
	eventually.True(t, "the proof of the changes", func() bool { return f.asked() > 1 })
	if pause := time.Since(ended); pause < share*used {
		t.Errorf("another proof %s after one that took %s", pause, used)
	}
	time.Sleep(20 * time.Millisecond) // proofs that nobody asked for would run
	if got := f.asked(); got != 2 {
		t.Errorf("%d proofs for five changes in one pause", got-1)
	}
}

// TestDifferenceAfterChange: with everyChange, a difference that comes with a change is found without a resync, and is reported as any other.
func TestDifferenceAfterChange(t *testing.T) {
	const what = "shop/web -> shop/db tcp 80"
	f := startWith(t, Options{EveryChange: true}, always(Answer{Compared: true}))
	f.is(t, metrics.VerifyEqual, "")
	f.set(always(Answer{Difference: what}))
	f.Source.Send(true, drivertest.PodOn("new", "node1"))
	eventually.True(t, "not ready", func() bool { return f.Missing(t) == "the programmed state differs from the policies: "+what }, func() string { return f.Missing(t) })
	f.set(always(Answer{Compared: true}))
	eventually.True(t, "ready", func() bool { return f.Missing(t) == "" })
}
