package driver

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/felixlike/driver/drivertest"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/test/eventually"
	"github.com/felixlike/felixlike/test/stopwatch"
)

func foreignRule() tables.Repair {
	return tables.Repair{Object: "chain", Name: "forward", What: "1 foreign rule", By: "nft (pid 77)", Noticed: time.Now()}
}

// tamper makes a foreign change and waits until it is repaired.
func tamper(t *testing.T, f *drivertest.Table, changed func()) stopwatch.Lap {
	t.Helper()
	before, watch := f.Count(), stopwatch.Start(t)
	f.Set(func() { f.Repaired = []tables.Repair{foreignRule()} })
	changed()
	eventually.True(t, "a foreign change is repaired", func() bool { return f.Count() > before })
	return watch.Lap(t)
}

func TestForeignChangeIsRepairedAlone(t *testing.T) {
	table, others, log := drivertest.NewTable(t), &drivertest.Stages{Fail: map[string]error{}}, &drivertest.LogBuffer{}
	f := startWith(t, Config{Stages: []backend.Stage{table.WatchedStage(), others.Stage("openflow", false)}, Log: log.Logger()})
	f.begin(t)
	changed := <-table.Changed
	if took := tamper(t, table, changed); took.Net() > 100*time.Millisecond {
		t.Errorf("repaired after %s", took)
	}
	eventually.True(t, "the repair is in status", func() bool { return f.Status().Repairs.Total == 1 })
	r := f.Status().Repairs.Last[0]
	if r.Stage != "nftables" || r.Kind != "chain" || r.Name != "forward" || r.What != "1 foreign rule" || r.By != "nft (pid 77)" || r.Took <= 0 {
		t.Errorf("repair %+v", r)
	}
	if got := others.Log(); len(got) != 1 {
		t.Errorf("other stages ran: %v", got)
	}
	if lines := log.Lines("repaired a foreign change"); len(lines) != 1 || !strings.Contains(lines[0], "pid 77") || !strings.Contains(lines[0], "level=WARN") {
		t.Errorf("log %q", lines)
	}
}

func TestNothingIsRepairedBeforeTheFirstPass(t *testing.T) {
	table := drivertest.NewTable(t)
	f := startWith(t, Config{Stages: []backend.Stage{table.WatchedStage()}})
	(<-table.Changed)()
	f.Source.Send(false, drivertest.Node("node1", "10.10.0.0/24"))
	f.Status()
	if n := table.Count(); n != 0 {
		t.Errorf("applied %d times before all is known", n)
	}
}

// The switch hangs for its whole deadline; meanwhile, policy is repaired and
// changed, and questions are answered.
func TestRepairDoesNotWaitForSwitchThatHangs(t *testing.T) {
	table, sw := drivertest.NewTable(t), drivertest.NewHanging(t)
	f := startWith(t, Config{
		Managers: drivertest.ManagersOf(sw),
		Stages:   []backend.Stage{table.WatchedStage(), {Name: "openflow", Timeout: time.Minute, Apply: sw.Apply}},
	})
	f.begin(t)
	changed := <-table.Changed
	<-sw.Entered
	sw.SetHangs(true)
	f.Source.Send(true, drivertest.PodOn("a", "node1"))
	<-sw.Entered
	before := sw.Seen
	for range 3 {
		if took := tamper(t, table, changed); took.Net() > 100*time.Millisecond {
			t.Errorf("repaired after %s while the switch hangs", took)
		}
	}
	applies := table.Count()
	f.Source.Send(true, drivertest.PodOn("b", "node1"))
	eventually.True(t, "policy is changed while the switch hangs", func() bool { return table.Count() > applies })
	watch := stopwatch.Start(t)
	s := f.Status()
	if took := watch.Lap(t); took.Net() > 100*time.Millisecond {
		t.Errorf("status took %s while the switch hangs", took)
	}
	if len(s.Running) == 0 || s.Running[0].Stage != "openflow" || s.Programmed != 1 || s.Observed != 3 {
		t.Errorf("running %+v, programmed %d of %d", s.Running, s.Programmed, s.Observed)
	}
	if err := f.queue.ask(t.Context(), func() {
		if len(f.stages.shared.backlog) == 0 {
			t.Error("no update waits for the switch")
		}
	}); err != nil {
		t.Fatal(err)
	}
	if sw.Seen != before {
		t.Error("the switch got a pod before its turn")
	}
}

// A later stage must not program an update before policy: an update that comes while the
// stages run is programmed by the next cycle, policy first.
func TestForwardingNeverOvertakesPolicy(t *testing.T) {
	table, sw := drivertest.NewTable(t), drivertest.NewHanging(t)
	slow := backend.Stage{Name: "openflow", Timeout: 20 * time.Millisecond, Apply: sw.Apply}
	f := startWith(t, Config{Managers: drivertest.ManagersOf(sw), Stages: []backend.Stage{table.Stage(), slow}})
	f.begin(t)
	<-sw.Entered
	sw.SetHangs(true)
	f.Source.Send(true, drivertest.PodOn("a", "node1"))
	<-sw.Entered
	f.Attach("a")
	f.Source.Send(true, drivertest.PodOn("b", "node1"))
	sw.SetHangs(false)
	if err := programmed(t, f, model.PodID{Namespace: "x", Name: "a"}); err != nil {
		t.Fatal(err)
	}
	if len(sw.Updates) != len(table.Updates) {
		t.Errorf("the switch received %d updates, policy of %d", len(sw.Updates), len(table.Updates))
	}
}

func TestFightIsThrottledAndTold(t *testing.T) {
	table, log := drivertest.NewTable(t), &drivertest.LogBuffer{}
	f := startWith(t, Config{Stages: []backend.Stage{table.WatchedStage()}, Log: log.Logger()})
	f.begin(t)
	changed := <-table.Changed
	table.Set(func() {
		table.OnApply = func() {
			table.Repaired = []tables.Repair{foreignRule()}
			changed()
		}
	})
	changed()
	eventually.True(t, "many repairs", func() bool { return f.Status().Repairs.Total > 30 })
	table.Set(func() { table.OnApply = nil })
	table.Mu.Lock()
	defer table.Mu.Unlock()
	// The loop's starts are 10 ms apart, the goroutines' only nearly so.
	repairs := table.Applies[1:]
	if took, least := repairs[len(repairs)-1].Sub(repairs[0]), f.cfg.Throttle*time.Duration(len(repairs)-2); took < least {
		t.Errorf("%d repairs in %s, which is less than %s", len(repairs), took, least)
	}
	if n := len(log.Lines("repaired a foreign change")); n != fightRepairs {
		t.Errorf("%d repairs were logged, want %d", n, fightRepairs)
	}
	if lines := log.Lines("keeps changing"); len(lines) != 1 || !strings.Contains(lines[0], "pid 77") {
		t.Errorf("the fight was logged as %q", lines)
	}
	if n := len(f.Status().Repairs.Last); n != keptRepairs {
		t.Errorf("%d repairs are kept, want %d", n, keptRepairs)
	}
}

// A flushed table has a chain for every policy.
func TestManyRepairsAtOnceDoNotFloodTheLog(t *testing.T) {
	r, log := newRepairs(), &drivertest.LogBuffer{}
	var all []tables.Repair
	for i := range 3000 {
		all = append(all, tables.Repair{Object: "chain", Name: fmt.Sprint("pin-", i), What: "1 rule missing", By: "nft (pid 7)", Noticed: time.Now()})
	}
	r.note(log.Logger(), "nftables", all, time.Now())
	if n := len(log.Lines("pid 7")); n != loggedRepairs+1 || len(log.Lines("more=2980")) != 1 {
		t.Errorf("%d lines were logged", n)
	}
	if s := r.status(); s.Total != 3000 || len(s.Last) != keptRepairs {
		t.Errorf("%d repairs, %d kept", s.Total, len(s.Last))
	}
	r.note(log.Logger(), "nftables", all[:1], time.Now().Add(2*fightWindow))
	if len(r.recent) != 1 {
		t.Errorf("%d objects are remembered", len(r.recent))
	}
}

func TestRepairThatFailsIsRetriedAndHoldsBack(t *testing.T) {
	table, others := drivertest.NewTable(t), &drivertest.Stages{Fail: map[string]error{}}
	f := startWith(t, Config{Stages: []backend.Stage{table.WatchedStage(), others.Stage("openflow", false)}})
	f.begin(t)
	changed := <-table.Changed
	table.Set(func() { table.Err = errors.New("no buffer space") })
	before := table.Count()
	changed()
	eventually.True(t, "the repair is tried again", func() bool { return table.Count() > before+3 })
	if s := f.Status(); !strings.Contains(s.LastApply.Error, "nftables: no buffer space") {
		t.Errorf("last apply %+v", s.LastApply)
	}
	if n := len(others.Log()); n != 1 {
		t.Errorf("a later stage ran %d times, want the 1 of the first pass", n)
	}
	table.Set(func() { table.Err = nil })
	eventually.True(t, "the failure is over", func() bool { return f.Status().LastApply.Error == "" })
	if n := len(others.Log()); n != 2 {
		t.Errorf("a later stage ran %d times, want 2", n)
	}
}

// A repair that fails while the switch hangs does not wait for the switch to
// be tried again.
func TestFailedRepairIsRetriedWhileSwitchHangs(t *testing.T) {
	table, sw := drivertest.NewTable(t), drivertest.NewHanging(t)
	f := startWith(t, Config{
		Managers: drivertest.ManagersOf(sw),
		Stages:   []backend.Stage{table.WatchedStage(), {Name: "openflow", Timeout: time.Minute, Apply: sw.Apply}},
	})
	f.begin(t)
	changed := <-table.Changed
	<-sw.Entered
	sw.SetHangs(true)
	f.Source.Send(true, drivertest.PodOn("a", "node1"))
	<-sw.Entered
	table.Set(func() { table.Err = errors.New("no buffer space") })
	before := table.Count()
	changed()
	eventually.True(t, "the repair is tried again", func() bool { return table.Count() > before+2 })
	if s := f.Status(); !strings.Contains(s.LastApply.Error, "nftables: no buffer space") {
		t.Errorf("last apply %+v", s.LastApply)
	}
	table.Set(func() { table.Err = nil })
	eventually.True(t, "the failure is over", func() bool { return f.Status().LastApply.Error == "" })
	if n := len(f.Status().Running); n != 1 {
		t.Errorf("%d stages run, want the switch that hangs", n)
	}
}

func TestOnlyUnwatchedStagesAreReadAtResync(t *testing.T) {
	table, plain, partly := drivertest.NewTable(t), drivertest.NewTable(t), drivertest.NewTable(t)
	other, overlooking := plain.Stage(), partly.WatchedStage()
	other.Name = "netlink"
	overlooking.Name, overlooking.WatchIncomplete = "iptables", true
	var told atomic.Int32
	module := Module{OnResync: func() { told.Add(1) }}
	f := startWith(t, Config{Stages: []backend.Stage{table.WatchedStage(), other, overlooking}, Timing: Timing{Resync: 5 * time.Millisecond}, Modules: []Module{module}})
	f.begin(t)
	for _, read := range []*drivertest.Table{plain, partly} {
		eventually.True(t, "a stage that does not notice everything is invalidated", func() bool {
			read.Mu.Lock()
			defer read.Mu.Unlock()
			return read.Invalidated > 2
		})
	}
	eventually.True(t, "the modules are told of each resync", func() bool { return told.Load() > 2 })
	table.Mu.Lock()
	defer table.Mu.Unlock()
	if table.Invalidated != 0 {
		t.Errorf("the watched stage was invalidated %d times", table.Invalidated)
	}
}

func TestWatchThatFailsIsStartedAgain(t *testing.T) {
	table := drivertest.NewTable(t)
	stage := table.Stage()
	attempts := make(chan struct{}, 100)
	stage.Watch = func(ctx context.Context, changed func()) error {
		attempts <- struct{}{}
		if len(attempts) < 3 {
			return errors.New("no socket")
		}
		return table.Watch(ctx, changed)
	}
	f := startWith(t, Config{Stages: []backend.Stage{stage}})
	f.begin(t)
	select {
	case changed := <-table.Changed:
		tamper(t, table, changed)
	case <-time.After(eventually.Patience):
		t.Fatal("Watch was not started again")
	}
}

// A Watch that fails does not end the one beside it. The stage is read at every resync
// meanwhile.
func TestWatchThatFailsFailsAlone(t *testing.T) {
	table := drivertest.NewTable(t)
	stage := table.Stage()
	attempts, started := make(chan struct{}, 100), 0
	stage.Watch = func(ctx context.Context, changed func()) error {
		started++
		return table.Watch(ctx, changed)
	}
	stage.WatchToo = func(context.Context, func()) error {
		attempts <- struct{}{}
		return errors.New("no socket")
	}
	f := startWith(t, Config{Stages: []backend.Stage{stage}, Timing: Timing{Resync: 5 * time.Millisecond}})
	f.begin(t)
	changed := <-table.Changed
	for range 3 {
		<-attempts
	}
	tamper(t, table, changed)
	if started != 1 {
		t.Errorf("the other Watch was started %d times", started)
	}
	eventually.True(t, "the stage is read at the resync", func() bool {
		table.Mu.Lock()
		defer table.Mu.Unlock()
		return table.Invalidated > 0
	})
}

// A notice of a stage that shares its managers does not wait for the retry of a cycle that
// has failed.
func TestNoticeDoesNotWaitForRetry(t *testing.T) {
	host := drivertest.NewTable(t)
	stage := host.WatchedStage()
	stage.Managers = nil
	f := startWith(t, Config{Stages: []backend.Stage{stage}, Timing: Timing{RetryMin: time.Minute, RetryMax: time.Minute}})
	f.begin(t)
	changed := <-host.Changed
	host.Set(func() { host.Err = errors.New("file exists") })
	changed()
	eventually.True(t, "the stage has failed", func() bool { return missing(t, f) != "" })
	host.Set(func() { host.Err = nil })
	changed()
	eventually.True(t, "the agent is ready", func() bool { return missing(t, f) == "" })
}
