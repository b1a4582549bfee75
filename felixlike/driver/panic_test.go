package driver

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/eventually"
)

// panicking is a manager and a stage that panic on demand.
type panicking struct {
	*fakeTable
	onUpdate func(model.Update)
}

func (p *panicking) OnUpdate(u model.Update) {
	p.onUpdate(u)
	p.fakeTable.OnUpdate(u)
}

// TestPanicInAStage: a panic is a failure of its stage, which reads everything again and
// recovers when the cause is gone. Later stages are programmed meanwhile.
func TestPanicInAStage(t *testing.T) {
	log := &logBuffer{}
	table, s := newFakeTable(t), &recordedStages{fail: map[string]error{}}
	table.onApply = func() { panic("nobody expects it") }
	stage := table.stage()
	stage.Required = false
	f := startWith(t, Config{Stages: []backend.Stage{stage, s.stage("openflow", false)}, Log: slog.New(slog.NewTextHandler(log, nil))})
	f.attachmentsSynced()
	f.source.send(true, node("node1", "10.10.0.0/24"))
	eventually.True(t, "the panic is reported as the stage's failure", func() bool {
		return strings.Contains(f.Status().LastApply.Error, "nftables: panic: nobody expects it")
	})
	eventually.True(t, "the other stage is programmed", func() bool { return len(s.log()) > 0 })
	if err := f.Alive(); err != nil {
		t.Error(err)
	}
	eventually.True(t, "it panics again", func() bool { return len(log.lines("a stage has panicked")) > 2 })
	if n := len(log.lines("goroutine ")); n != 1 {
		t.Errorf("the log has the stack %d times:\n%s", n, log.lines(""))
	}
	if again := log.lines("times=3"); len(again) != 1 || !strings.Contains(again[0], "stage=nftables") {
		t.Errorf("the third panic: %s", again)
	}
	table.set(func() { table.onApply = nil })
	if err := programmed(t, f); err != nil {
		t.Fatal(err)
	}
	if table.invalidated == 0 {
		t.Error("the stage did not read everything again")
	}
	if len(log.lines("TestPanicInAStage.func1")) == 0 {
		t.Errorf("the log does not name the place:\n%s", log.lines(""))
	}
}

// TestPanicInInvalidate: a panic in Invalidate is a failure of its stage.
func TestPanicInInvalidate(t *testing.T) {
	table := newFakeTable(t)
	stage := table.stage()
	bad := true
	stage.Invalidate = func() {
		if bad {
			bad = false
			panic("nobody expects it")
		}
	}
	f := startWith(t, Config{Stages: []backend.Stage{stage}})
	f.begin(t)
	before := table.count()
	f.queue.call(context.Background(), f.scheduler.invalidate)
	eventually.True(t, "the stage is applied again", func() bool { return table.count() > before })
}

// TestPanicInAManager: the manager's desired state is lost. Its stage keeps the
// programmed state, other stages go on, and the agent reports that it needs a restart.
func TestPanicInAManager(t *testing.T) {
	table, s := newFakeTable(t), &recordedStages{fail: map[string]error{}}
	p := &panicking{fakeTable: table, onUpdate: func(u model.Update) {
		if n, ok := u.(model.NodeUpdate); ok && n.Node.Name == "node2" {
			panic("nobody expects node2")
		}
	}}
	stage := table.stage()
	stage.Managers, stage.Required = managersOf(p), false
	f := startWith(t, Config{Stages: []backend.Stage{stage, s.stage("openflow", false)}})
	f.begin(t)
	applies := table.count()
	f.source.send(true, node("node2", "10.10.1.0/24"))
	eventually.True(t, "the panic is reported as the stage's failure", func() bool {
		return strings.Contains(f.Status().LastApply.Error, "nftables: panic: nobody expects node2")
	})
	eventually.True(t, "the agent asks to be restarted", func() bool {
		err := f.Alive()
		return err != nil && strings.Contains(err.Error(), "stage nftables")
	})
	if now := table.count(); now != applies {
		t.Errorf("the stage was applied %d times by a manager that had panicked", now-applies)
	}
}

// TestPanicInAWatch: the Watch is started again.
func TestPanicInAWatch(t *testing.T) {
	table := newFakeTable(t)
	stage := table.watchedStage()
	first := true
	stage.Watch = func(ctx context.Context, changed func()) error {
		if first {
			first = false
			panic("nobody expects it")
		}
		return table.watch(ctx, changed)
	}
	f := startWith(t, Config{Stages: []backend.Stage{stage}})
	f.begin(t)
	<-table.changed
}
