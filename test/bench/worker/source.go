package worker

import (
	"context"

	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/bench/workload"
)

// source stands in for the datastore and for the switch: it delivers a whole
// workload at once, and later the changes.
type source struct {
	attachments []model.Attachment
	events      []datastore.Event
	// attached is closed when the driver has all attachments: the objects come
	// second, so that the model is complete in one step.
	attached chan struct{}
	// ready is closed when the driver has everything; from then on deliver and
	// update may be called.
	ready    chan struct{}
	deliver  func(datastore.Batch)
	update   func(model.Update)
	revision uint64
}

func newSource(w workload.Workload) *source { return sourceOf(w.Attachments(), w.Events()) }

func sourceOf(attachments []model.Attachment, events []datastore.Event) *source {
	return &source{
		attachments: attachments, events: events,
		attached: make(chan struct{}), ready: make(chan struct{}),
	}
}

// Run implements datastore.Source.
func (s *source) Run(ctx context.Context, deliver func(datastore.Batch)) error {
	select {
	case <-s.attached:
	case <-ctx.Done():
		return nil
	}
	s.deliver = deliver
	s.send(s.events...)
	s.events = nil
	close(s.ready)
	<-ctx.Done()
	return nil
}

// Sync implements datastore.Source. The worker sends from one goroutine and
// waits for its own changes itself.
func (s *source) Sync(context.Context) (uint64, error) { return s.revision, nil }

// attach is the driver's AttachmentSource.
func (s *source) attach(ctx context.Context, update func(model.Update), synced func()) error {
	for i := range s.attachments {
		update(model.AttachmentUpdate{Attachment: &s.attachments[i]})
	}
	synced()
	s.update = update
	close(s.attached)
	<-ctx.Done()
	return ctx.Err()
}

// send delivers events as the next revision.
func (s *source) send(events ...datastore.Event) {
	s.revision++
	s.deliver(datastore.Batch{Revision: s.revision, Events: events, InSync: true})
}
