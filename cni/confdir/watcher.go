package confdir

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/felixlike/felixlike/internal/files"
)

// lookEvery is the time between two reads of the directory without a notification. They find
// a replaced directory, and all changes while inotify does not work.
const lookEvery = 10 * time.Second

// renameEvery is the least time between two renames: another CNI may write its
// configuration again at once after each rename.
const renameEvery = time.Second

// Options configure a Watcher.
type Options struct {
	// Dir is the runtime's directory.
	Dir string
	// Own is the name of our configuration.
	Own string
	// Exclusive makes the watcher rename other CNIs' configurations that come before ours.
	Exclusive bool
	// Chained says that our configuration is a copy of another CNI's (Chained).
	Chained bool
	Log     *slog.Logger
}

// Watcher watches for configurations of other CNIs that runtimes use instead of ours.
type Watcher struct {
	o       Options
	mu      sync.Mutex
	problem string
	// polling is set after the directory could not be watched, so that this is logged once.
	polling bool
	// renamed is the time of the last rename.
	renamed time.Time
}

// NewWatcher returns a watcher; Run starts it.
func NewWatcher(o Options) *Watcher { return &Watcher{o: o} }

// Problem names the configuration that runtimes use instead of ours, and is empty if there is
// none. It may be called from any goroutine.
func (w *Watcher) Problem() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.problem
}

// Run watches until ctx ends.
func (w *Watcher) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		if err := w.watch(ctx); err != nil && !w.polling {
			w.polling = true
			w.o.Log.Warn("cannot watch the directory of network configurations: it is read from time to time only", "dir", w.o.Dir, "interval", lookEvery, "error", err)
		}
	}
	return ctx.Err()
}

// watch reads the directory now and after each notification. It returns after lookEvery.
func (w *Watcher) watch(ctx context.Context) error {
	var events chan fsnotify.Event
	var lost chan error
	notifier, err := fsnotify.NewWatcher()
	if err == nil {
		defer notifier.Close()
		err = notifier.Add(w.o.Dir)
		events, lost = notifier.Events, notifier.Errors
	}
	again := time.NewTimer(lookEvery)
	defer again.Stop()
	for {
		w.look()
		var rename <-chan time.Time
		if wait := renameEvery - time.Since(w.renamed); wait > 0 {
			rename = time.After(wait)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-again.C:
			return err
		case <-rename:
		case <-events:
		case <-lost:
		}
	}
}

// look reads the directory, and sets or clears the problem.
func (w *Watcher) look() {
	files, err := Read(w.o.Dir, w.o.Own)
	if err == nil && w.o.Exclusive && files.Own && len(files.Before) > 0 && time.Since(w.renamed) >= renameEvery {
		w.renamed = time.Now()
		err = w.disable(files.Before)
		again, errRead := Read(w.o.Dir, w.o.Own)
		files, err = again, errors.Join(err, errRead)
	}
	problem := ""
	switch taken := files.Taken(); {
	case taken != "":
		problem = fmt.Sprintf("container runtimes take network configuration %s instead of %s: new pods get the other CNI's network, "+
			"and no policy applies to them: %s", taken, w.o.Own, map[bool]string{false: "remove the other CNI, or set exclusive", true: "rename that file, so that it comes behind"}[w.o.Chained])
		if err != nil {
			problem += ": " + err.Error()
		}
	case err != nil:
		problem = err.Error()
	case w.o.Chained && files.Own:
		problem = w.outdated()
	}
	w.mu.Lock()
	before := w.problem
	w.problem = problem
	w.mu.Unlock()
	switch {
	case problem == before:
	case problem == "":
		w.o.Log.Info("container runtimes take felixlike's network configuration", "config", w.o.Own)
	default:
		w.o.Log.Error("new pods may be without policy", "problem", problem)
	}
}

// outdated returns why our configuration is not the copy that it should be, or "".
func (w *Watcher) outdated() string {
	wanted, err := Chained(w.o.Dir, w.o.Own)
	if err != nil {
		return err.Error()
	}
	have, err := files.Read(filepath.Join(w.o.Dir, w.o.Own), maxConfig)
	if err != nil {
		return err.Error()
	}
	if !bytes.Equal(have, wanted) {
		return fmt.Sprintf("another CNI's network configuration has changed since %s was made of it: delete this agent's pod, so that it is made anew", w.o.Own)
	}
	return ""
}

// disable renames the configurations.
func (w *Watcher) disable(names []string) error {
	var errs []error
	for _, name := range names {
		err := disable(w.o.Dir, name)
		if errors.Is(err, fs.ErrNotExist) {
			continue // it has gone meanwhile
		}
		errs = append(errs, err)
		if err == nil {
			w.o.Log.Warn("another CNI's network configuration was renamed", "config", name, "now", name+disabled)
		}
	}
	return errors.Join(errs...)
}
