package worker

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/managers"
	"github.com/felixlike/felixlike/model"
)

// mark is a moment with the CPU time used until then.
type mark struct {
	at  time.Time
	cpu CPU
}

func (s Switch) now() mark { return mark{at: time.Now(), cpu: s.cpuTime()} }

// since returns the time and CPU between two marks.
func (m mark) since(o mark) Phase { return Phase{Wall: m.at.Sub(o.at), CPU: m.cpu.Minus(o.cpu)} }

// pass is one apply of the driver.
type pass struct {
	// updates counts the updates that the managers had seen.
	updates int
	// model is the mark at which the managers began to render, done that of the kernel's
	// commit. A repair has no model mark.
	model, done mark
	// stage is the time of the first message to the kernel.
	stage   time.Time
	applied backend.Applied
	err     error
}

// observer takes the times of every apply. It sits where the driver passes
// by: it is the first manager of the backend's stage, and around its Apply.
// The driver leaves a stage's managers alone while it runs, so no two of these
// calls come at a time.
type observer struct {
	ovs     Switch
	current pass
	passes  chan pass
	// reread makes the next apply read the kernel's state in full: the driver
	// does not ask a stage for that if it is notified of foreign changes.
	reread atomic.Bool
}

func newObserver(ovs Switch) *observer { return &observer{ovs: ovs, passes: make(chan pass, 1024)} }

// OnUpdate implements managers.Manager.
func (o *observer) OnUpdate(model.Update) { o.current.updates++ }

// CompleteDeferredWork implements managers.Manager.
func (o *observer) CompleteDeferredWork() { o.current.model = o.ovs.now() }

// around returns the stage, observed.
func (o *observer) around(s backend.Stage) backend.Stage {
	s.Managers = append([]managers.Manager{o}, s.Managers...)
	apply, invalidate := s.Apply, s.Invalidate
	s.Apply = func(ctx context.Context) (backend.Applied, error) {
		o.current.stage = time.Now()
		if o.reread.Swap(false) && invalidate != nil {
			invalidate()
		}
		applied, err := apply(ctx)
		o.current.done, o.current.applied, o.current.err = o.ovs.now(), applied, err
		select {
		case o.passes <- o.current:
		case <-ctx.Done():
		}
		return applied, err
	}
	return s
}
