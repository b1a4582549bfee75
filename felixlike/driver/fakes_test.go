package driver

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/rules"
	"github.com/felixlike/felixlike/tables"
)

// fakeTable is a policy stage that a test controls. It has no lock for state that the driver
// uses from one goroutine at a time: the race detector and busy check this.
type fakeTable struct {
	t       *testing.T
	busy    sync.Mutex
	updates []model.Update
	// deferred is set while updates wait for CompleteDeferredWork.
	deferred bool
	// changed gets the function that the driver passed to Watch.
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
	f.updates, f.deferred = append(f.updates, u), true
}

func (f *fakeTable) CompleteDeferredWork() {
	f.enter()
	defer f.busy.Unlock()
	f.deferred = false
}

func (f *fakeTable) enter() {
	if !f.busy.TryLock() {
		f.t.Error("the policy stage is used twice at a time")
		f.busy.Lock()
	}
}

func (f *fakeTable) apply(context.Context) (backend.Applied, error) {
	f.enter()
	defer f.busy.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.deferred {
		f.t.Error("the policy stage is applied while its managers have done a part of their work")
	}
	f.applies = append(f.applies, time.Now())
	if f.onApply != nil {
		f.onApply()
	}
	a := backend.Applied{Writes: 1, Rules: 12, Elements: 34, Repaired: f.repaired, Refused: f.refused}
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
func (f *fakeTable) stage() backend.Stage {
	return backend.Stage{Name: "nftables", Required: true, Managers: managersOf(f), Apply: f.apply, Invalidate: f.invalidate}
}

func (f *fakeTable) watchedStage() backend.Stage {
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
	// entered gets a value when an Apply begins.
	entered chan struct{}
	seen    int
}

func newHanging(t *testing.T) *hanging { return &hanging{t: t, entered: make(chan struct{}, 100)} }

func (h *hanging) OnUpdate(u model.Update) {
	if !h.busy.TryLock() {
		h.t.Error("a manager gets an update while its stage runs")
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

func (h *hanging) apply(ctx context.Context) (backend.Applied, error) {
	h.busy.Lock()
	defer h.busy.Unlock()
	h.mu.Lock()
	hangs := h.hangs
	h.seen = len(h.updates)
	h.mu.Unlock()
	h.entered <- struct{}{}
	if hangs {
		<-ctx.Done()
		return backend.Applied{}, ctx.Err()
	}
	return backend.Applied{Writes: 1}, nil
}

func (h *hanging) setHangs(hangs bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.hangs = hangs
}

// fake is a backend with parts that a test sets.
type fake struct {
	name      string
	place     backend.Place
	stage     backend.Stage
	renderer  *rules.Renderer
	denials   backend.Denials
	logs      backend.Reports
	unbounded error
	fellBack  error
	remove    func() error
}

func (f *fake) Name() string                                { return f.name }
func (f *fake) Place() backend.Place                        { return f.place }
func (f *fake) Why() string                                 { return "" }
func (f *fake) Stage() backend.Stage                        { return f.stage }
func (f *fake) Renderer() *rules.Renderer                   { return f.renderer }
func (f *fake) Beside(string)                               {}
func (f *fake) Decides()                                    {}
func (f *fake) Forwarded(func(*model.Attachment) bool) bool { return false }
func (f *fake) Denials() backend.Denials                    { return f.denials }
func (f *fake) Logs() backend.Reports                       { return f.logs }
func (f *fake) Unbounded() error                            { return f.unbounded }
func (f *fake) Layout() backend.Layout                      { return backend.Layout{FellBack: f.fellBack} }
func (f *fake) Left(context.Context) (bool, error)          { return false, nil }
func (f *fake) Remove(context.Context, string) error        { return f.remove() }
func (f *fake) Close() error                                { return nil }
func (f *fake) Hits(context.Context, backend.Counted, []*model.Policy) error {
	return nil
}

// staged is a backend with another stage.
type staged struct {
	backend.Backend
	stage backend.Stage
}

func (s staged) Stage() backend.Stage { return s.stage }

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
