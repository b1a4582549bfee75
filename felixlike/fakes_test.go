package felixlike

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
)

// fakeTable is a policy stage that a test tampers with. Its state is not
// locked where the driver promises one user at a time: the race detector and
// busy tell.
type fakeTable struct {
	t       *testing.T
	busy    sync.Mutex
	updates []model.Update
	// changed is what the driver gave Watch.
	changed chan func()

	mu          sync.Mutex
	applies     []time.Time
	invalidated int
	err         error
	repaired    []tables.Repair
	refused     []tables.Refusal
	// onApply runs in each Apply.
	onApply func()
}

func newFakeTable(t *testing.T) *fakeTable {
	return &fakeTable{t: t, changed: make(chan func(), 1)}
}

func (f *fakeTable) OnUpdate(u model.Update) {
	f.enter()
	defer f.busy.Unlock()
	f.updates = append(f.updates, u)
}

func (f *fakeTable) CompleteDeferredWork() {
	f.enter()
	defer f.busy.Unlock()
}

func (f *fakeTable) enter() {
	if !f.busy.TryLock() {
		f.t.Error("the policy stage is used twice at a time")
		f.busy.Lock()
	}
}

func (f *fakeTable) apply(context.Context) (Applied, error) {
	f.enter()
	defer f.busy.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.applies = append(f.applies, time.Now())
	if f.onApply != nil {
		f.onApply()
	}
	a := Applied{Writes: 1, Rules: 12, Elements: 34, Repaired: f.repaired, Refused: f.refused}
	f.repaired = nil
	return a, f.err
}

func (f *fakeTable) invalidate() {
	f.enter()
	defer f.busy.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.invalidated++
}

func (f *fakeTable) watch(ctx context.Context, changed func()) error {
	f.changed <- changed
	<-ctx.Done()
	return ctx.Err()
}

// stage returns the fake as a stage, without Watch.
func (f *fakeTable) stage() Stage {
	return Stage{Name: "nftables", Required: true, Managers: managersOf(f), Apply: f.apply, Invalidate: f.invalidate}
}

func (f *fakeTable) watchedStage() Stage {
	s := f.stage()
	s.Watch = f.watch
	return s
}

func (f *fakeTable) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.applies)
}

// set changes the fake under its lock.
func (f *fakeTable) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// hanging is a switch that hangs on demand, until its deadline, with a
// manager that may not be touched while it does.
type hanging struct {
	t       *testing.T
	busy    sync.Mutex
	updates []model.Update

	mu    sync.Mutex
	hangs bool
	// entered tells that an Apply has begun.
	entered chan struct{}
	seen    int
}

func newHanging(t *testing.T) *hanging { return &hanging{t: t, entered: make(chan struct{}, 100)} }

func (h *hanging) OnUpdate(u model.Update) {
	if !h.busy.TryLock() {
		h.t.Error("a manager is told of an update while its stage runs")
		return
	}
	defer h.busy.Unlock()
	h.updates = append(h.updates, u)
}

func (h *hanging) CompleteDeferredWork() {
	if !h.busy.TryLock() {
		h.t.Error("a manager completes its work while its stage runs")
		return
	}
	h.busy.Unlock()
}

func (h *hanging) apply(ctx context.Context) (Applied, error) {
	h.busy.Lock()
	defer h.busy.Unlock()
	h.mu.Lock()
	hangs := h.hangs
	h.seen = len(h.updates)
	h.mu.Unlock()
	h.entered <- struct{}{}
	if hangs {
		<-ctx.Done()
		return Applied{}, ctx.Err()
	}
	return Applied{Writes: 1}, nil
}

func (h *hanging) setHangs(hangs bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.hangs = hangs
}

// logBuffer collects log lines.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) lines(with string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var found []string
	for line := range strings.Lines(l.b.String()) {
		if strings.Contains(line, with) {
			found = append(found, line)
		}
	}
	return found
}

func (l *logBuffer) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }
