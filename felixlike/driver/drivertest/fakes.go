package drivertest

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/managers"
	"github.com/felixlike/felixlike/managers/grants"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/rules"
	"github.com/felixlike/felixlike/tables"
)

// Table is a policy stage that a test controls. It has no lock for state that the driver
// uses from one goroutine at a time: the race detector and busy check this.
type Table struct {
	t    *testing.T
	busy sync.Mutex
	// seen guards Updates for Received, which a test calls while the driver works.
	seen    sync.Mutex
	Updates []model.Update
	// deferred is set while updates wait for CompleteDeferredWork.
	deferred bool
	// Changed gets the function that the driver passed to Watch.
	Changed chan func()

	Mu          sync.Mutex
	Applies     []time.Time
	Invalidated int
	Err         error
	Repaired    []tables.Repair
	Refused     []tables.Refusal
	// OnApply runs in each Apply.
	OnApply func()
}

// NewTable returns a Table that reports its wrong use as errors of the test.
func NewTable(t *testing.T) *Table {
	return &Table{t: t, Changed: make(chan func(), 1)}
}

func (f *Table) OnUpdate(u model.Update) {
	f.enter()
	defer f.busy.Unlock()
	f.seen.Lock()
	defer f.seen.Unlock()
	f.Updates, f.deferred = append(f.Updates, u), true
}

func (f *Table) CompleteDeferredWork() {
	f.enter()
	defer f.busy.Unlock()
	f.deferred = false
}

// Received returns the updates of the managers so far.
func (f *Table) Received() []model.Update {
	f.seen.Lock()
	defer f.seen.Unlock()
	return slices.Clone(f.Updates)
}

func (f *Table) enter() {
	if !f.busy.TryLock() {
		f.t.Error("the policy stage is used twice at a time")
		f.busy.Lock()
	}
}

func (f *Table) Apply(context.Context) (backend.Applied, error) {
	f.enter()
	defer f.busy.Unlock()
	f.Mu.Lock()
	defer f.Mu.Unlock()
	if f.deferred {
		f.t.Error("the policy stage is applied while its managers have done a part of their work")
	}
	f.Applies = append(f.Applies, time.Now())
	if f.OnApply != nil {
		f.OnApply()
	}
	a := backend.Applied{Writes: 1, Rules: 12, Elements: 34, Repaired: f.Repaired, Refused: f.Refused}
	f.Repaired = nil
	return a, f.Err
}

func (f *Table) invalidate() {
	f.enter()
	defer f.busy.Unlock()
	f.Mu.Lock()
	defer f.Mu.Unlock()
	f.Invalidated++
}

func (f *Table) Watch(ctx context.Context, changed func()) error {
	f.Changed <- changed
	<-ctx.Done()
	return ctx.Err()
}

// Stage returns the fake as a stage, without Watch.
func (f *Table) Stage() backend.Stage {
	return backend.Stage{Name: "nftables", Required: true, Managers: ManagersOf(f), Apply: f.Apply, Invalidate: f.invalidate}
}

func (f *Table) WatchedStage() backend.Stage {
	s := f.Stage()
	s.Watch = f.Watch
	return s
}

func (f *Table) Count() int {
	f.Mu.Lock()
	defer f.Mu.Unlock()
	return len(f.Applies)
}

// Set changes the fake under its lock.
func (f *Table) Set(change func()) {
	f.Mu.Lock()
	defer f.Mu.Unlock()
	change()
}

// Hanging is a switch that hangs on demand, until its deadline, with a
// manager that may not be touched while it does.
type Hanging struct {
	t       *testing.T
	busy    sync.Mutex
	Updates []model.Update

	mu    sync.Mutex
	hangs bool
	// Entered gets a value when an Apply begins.
	Entered chan struct{}
	Seen    int
}

func NewHanging(t *testing.T) *Hanging { return &Hanging{t: t, Entered: make(chan struct{}, 100)} }

func (h *Hanging) OnUpdate(u model.Update) {
	if !h.busy.TryLock() {
		h.t.Error("a manager gets an update while its stage runs")
		return
	}
	defer h.busy.Unlock()
	h.Updates = append(h.Updates, u)
}

func (h *Hanging) CompleteDeferredWork() {
	if !h.busy.TryLock() {
		h.t.Error("a manager completes its work while its stage runs")
		return
	}
	h.busy.Unlock()
}

func (h *Hanging) Apply(ctx context.Context) (backend.Applied, error) {
	h.busy.Lock()
	defer h.busy.Unlock()
	h.mu.Lock()
	hangs := h.hangs
	h.Seen = len(h.Updates)
	h.mu.Unlock()
	h.Entered <- struct{}{}
	if hangs {
		<-ctx.Done()
		return backend.Applied{}, ctx.Err()
	}
	return backend.Applied{Writes: 1}, nil
}

func (h *Hanging) SetHangs(hangs bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.hangs = hangs
}

// Backend is a backend with parts that a test sets.
type Backend struct {
	NameIs      string
	PlaceIs     backend.Place
	StageIs     backend.Stage
	RendererIs  *rules.Renderer
	DenialsIs   backend.Denials
	LogsIs      backend.Reports
	UnboundedIs error
	FellBack    error
	// LayoutInForce and Maps are those of backend.Layout.
	LayoutInForce string
	Maps          *grants.Use
	RemoveIs      func() error
}

func (f *Backend) Name() string                       { return f.NameIs }
func (f *Backend) Place() backend.Place               { return f.PlaceIs }
func (f *Backend) Why() string                        { return "" }
func (f *Backend) Stage() backend.Stage               { return f.StageIs }
func (f *Backend) Renderer() *rules.Renderer          { return f.RendererIs }
func (f *Backend) PrepareBeside(string)               {}
func (f *Backend) Activate()                          {}
func (f *Backend) Forwarded(managers.Forwarding) bool { return false }
func (f *Backend) Denials() backend.Denials           { return f.DenialsIs }
func (f *Backend) Logs() backend.Reports              { return f.LogsIs }
func (f *Backend) Unbounded() error                   { return f.UnboundedIs }
func (f *Backend) Layout() backend.Layout {
	return backend.Layout{FellBack: f.FellBack, InForce: f.LayoutInForce, Maps: f.Maps}
}
func (f *Backend) Left(context.Context) (bool, error)   { return false, nil }
func (f *Backend) Remove(context.Context, string) error { return f.RemoveIs() }
func (f *Backend) Close() error                         { return nil }
func (f *Backend) Hits(context.Context, backend.Counted, []*model.Policy) error {
	return nil
}

// Staged is a backend with another stage.
type Staged struct {
	backend.Backend
	StageIs backend.Stage
}

func (s Staged) Stage() backend.Stage { return s.StageIs }

// LogBuffer collects log lines.
type LogBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *LogBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *LogBuffer) Lines(with string) []string {
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

func (l *LogBuffer) Logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

func ManagersOf(m ...managers.Manager) []managers.Manager { return m }
