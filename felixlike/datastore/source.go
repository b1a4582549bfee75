package datastore

import (
	"context"
	"time"

	"github.com/felixlike/felixlike/model"
)

// Batch holds the changes from one revision of a source to the next; its events belong together.
type Batch struct {
	// Revision grows by one from batch to batch.
	Revision uint64
	// Seen is when the source learned of the oldest change in the batch.
	Seen time.Time
	// Events name every object at most once: first the set objects (nodes, namespaces, pods, policies), then
	// the deleted ones, in reverse order.
	Events []Event
	// Problems is the full current list of the source's problems, sorted by source and object.
	Problems []model.Problem
	// InSync reports that everything the source holds has been delivered, up to and with this batch. It never
	// becomes false again.
	InSync bool
	// Unknown names the files that exist, and of which the source never read a version in full: policies in them may be
	// not in force. Outdated counts the files of which a former version is in force.
	Unknown  []string
	Outdated int
}

// Source delivers objects.
type Source interface {
	// Run calls deliver with one batch after the other, until ctx ends; then
	// it returns nil. It may be called once.
	Run(ctx context.Context, deliver func(Batch)) error
	// Sync looks again now. It returns a revision that contains everything that existed at the call, after
	// deliver has returned for that batch. It may be called from any goroutine but that of deliver, and waits
	// for Run to start.
	Sync(ctx context.Context) (revision uint64, err error)
}
