package driver

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/felixlike/driver/drivertest"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/eventually"
)

// panicking is a manager and a stage that panic on demand.
type panicking struct {
	*drivertest.Table
	onUpdate func(model.Update)
}

func (p *panicking) OnUpdate(u model.Update) {
	p.onUpdate(u)
	p.Table.OnUpdate(u)
}

// TestPanicInAStage: a panic is a failure of its stage, which reads everything again and
// recovers when the cause is gone. Later stages are programmed meanwhile.
func TestPanicInAStage(t *testing.T) {
	log := &drivertest.LogBuffer{}
	table, s := drivertest.NewTable(t), &drivertest.Stages{Fail: map[string]error{}}
	table.OnApply = func() { panic("nobody expects it") }
	stage := table.Stage()
	stage.Required = false
	f := startWith(t, Config{Stages: []backend.Stage{stage, s.Stage("openflow", false)}, Log: slog.New(slog.NewTextHandler(log, nil))})
	f.AttachmentsSynced()
	f.Source.Send(true, drivertest.Node("node1", "10.10.0.0/24"))
	eventually.True(t, "the panic is reported as the stage's failure", func() bool {
		return strings.Contains(f.Status().LastApply.Error, "nftables: panic: nobody expects it")
	})
	eventually.True(t, "the other stage is programmed", func() bool { return len(s.Log()) > 0 })
	if err := f.Alive(); err != nil {
		t.Error(err)
	}
	eventually.True(t, "it panics again", func() bool { return len(log.Lines("a stage has panicked")) > 2 })
	if n := len(log.Lines("goroutine ")); n != 1 {
		t.Errorf("the log has the stack %d times:\n%s", n, log.Lines(""))
	}
	if again := log.Lines("times=3"); len(again) != 1 || !strings.Contains(again[0], "stage=nftables") {
		t.Errorf("the third panic: %s", again)
	}
	table.Set(func() { table.OnApply = nil })
	if err := programmed(t, f); err != nil {
		t.Fatal(err)
	}
	if table.Invalidated == 0 {
		t.Error("the stage did not read everything again")
	}
	if len(log.Lines("TestPanicInAStage.func1")) == 0 {
		t.Errorf("the log does not name the place:\n%s", log.Lines(""))
	}
}

// TestPanicInInvalidate: a panic in Invalidate is a failure of its stage.
func TestPanicInInvalidate(t *testing.T) {
	table := drivertest.NewTable(t)
	stage := table.Stage()
	bad := true
	stage.Invalidate = func() {
		if bad {
			bad = false
			panic("nobody expects it")
		}
	}
	f := startWith(t, Config{Stages: []backend.Stage{stage}})
	f.begin(t)
	before := table.Count()
	f.queue.call(context.Background(), f.scheduler.invalidate)
	eventually.True(t, "the stage is applied again", func() bool { return table.Count() > before })
}

// TestPanicInAManager: the manager's desired state is lost. Its stage keeps the
// programmed state, other stages go on, and the agent reports that it needs a restart.
func TestPanicInAManager(t *testing.T) {
	table, s := drivertest.NewTable(t), &drivertest.Stages{Fail: map[string]error{}}
	p := &panicking{Table: table, onUpdate: func(u model.Update) {
		if n, ok := u.(model.NodeUpdate); ok && n.Node.Name == "node2" {
			panic("nobody expects node2")
		}
	}}
	stage := table.Stage()
	stage.Managers, stage.Required = drivertest.ManagersOf(p), false
	f := startWith(t, Config{Stages: []backend.Stage{stage, s.Stage("openflow", false)}})
	f.begin(t)
	applies := table.Count()
	f.Source.Send(true, drivertest.Node("node2", "10.10.1.0/24"))
	eventually.True(t, "the panic is reported as the stage's failure", func() bool {
		return strings.Contains(f.Status().LastApply.Error, "nftables: panic: nobody expects node2")
	})
	eventually.True(t, "the agent asks to be restarted", func() bool {
		err := f.Alive()
		return err != nil && strings.Contains(err.Error(), "stage nftables")
	})
	if now := table.Count(); now != applies {
		t.Errorf("the stage was applied %d times by a manager that had panicked", now-applies)
	}
}

// TestPanicInAWatch: the Watch is started again.
func TestPanicInAWatch(t *testing.T) {
	table := drivertest.NewTable(t)
	stage := table.WatchedStage()
	first := true
	stage.Watch = func(ctx context.Context, changed func()) error {
		if first {
			first = false
			panic("nobody expects it")
		}
		return table.Watch(ctx, changed)
	}
	f := startWith(t, Config{Stages: []backend.Stage{stage}})
	f.begin(t)
	<-table.Changed
}
