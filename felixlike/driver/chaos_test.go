package driver

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/felixlike/driver/drivertest"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/test/eventually"
)

// TestLoopConvergesWhateverHappens mixes changes, notices, failures, refusals
// and stages that hang. When all is well again, every manager has seen every
// update in order, everything is programmed, and no stage was ever used twice
// at a time (the fakes check this).
func TestLoopConvergesWhateverHappens(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { chaos(t, rand.New(rand.NewPCG(seed, 1))) })
	}
}

func chaos(t *testing.T, random *rand.Rand) {
	table, sw := drivertest.NewTable(t), drivertest.NewHanging(t)
	f := startWith(t, Config{
		Managers: drivertest.ManagersOf(sw), Timing: Timing{Resync: 20 * time.Millisecond},
		Stages: []backend.Stage{
			table.WatchedStage(),
			{Name: "ovsdb", Apply: func(context.Context) (backend.Applied, error) { return backend.Applied{}, nil }},
			{Name: "openflow", Timeout: 15 * time.Millisecond, Apply: sw.Apply},
		},
	})
	go func() {
		for {
			select {
			case <-sw.Entered:
			case <-f.queue.stopped:
				return
			}
		}
	}()
	f.begin(t)
	changed := <-table.Changed
	for i := range 150 {
		switch random.IntN(8) {
		case 0:
			sw.SetHangs(random.IntN(2) == 0)
		case 1:
			table.Set(func() { table.Err = []error{nil, errors.New("no buffer space")}[random.IntN(2)] })
		case 2:
			table.Set(func() { table.Repaired = []tables.Repair{foreignRule()} })
			changed()
		case 3:
			table.Set(func() {
				table.Refused = []tables.Refusal{{Object: "chain", Name: "pin-x", Reason: "too big", NextTry: time.Now().Add(time.Millisecond)}}[:random.IntN(2)]
			})
		case 4:
			f.lose(errors.New("connection ended"))
		case 5:
			f.Attach(fmt.Sprint("p", random.IntN(5)))
		default:
			f.Source.Send(true, drivertest.PodOn(fmt.Sprint("p", i), "node1"))
		}
		time.Sleep(time.Duration(random.IntN(4)) * time.Millisecond)
	}
	sw.SetHangs(false)
	table.Set(func() { table.Err, table.Refused = nil, nil })
	eventually.True(t, "everything is programmed", func() bool {
		s := f.Status()
		return s.Programmed == s.Observed && s.LastApply.Error == "" && len(s.Quarantined) == 0 && len(s.Running) == 0
	})
	if err := f.queue.ask(t.Context(), func() { sameUpdates(t, table.Updates, sw.Updates) }); err != nil {
		t.Fatal(err)
	}
	if got := missing(t, f); got != "" {
		t.Errorf("not ready: %s", got)
	}
}

func sameUpdates(t *testing.T, policy, forwarding []model.Update) {
	t.Helper()
	if len(policy) != len(forwarding) {
		t.Errorf("policy received %d updates, forwarding of %d", len(policy), len(forwarding))
		return
	}
	for i := range policy {
		if fmt.Sprintf("%T%+v", policy[i], policy[i]) != fmt.Sprintf("%T%+v", forwarding[i], forwarding[i]) {
			t.Errorf("update %d: policy %+v, forwarding %+v", i, policy[i], forwarding[i])
		}
	}
}
