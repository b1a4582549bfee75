package manifests

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/felixlike/felixlike/model"
)

const (
	// copiesDir is the folder of the state directory that has the copies.
	copiesDir = "manifests"
	// newCopy is a copy that is being written. No manifest has this name.
	newCopy = ".new"
	// maxCopies bounds the copies of all files together.
	maxCopies = 256 << 20
	// flushTime bounds the wait for the last copies at the end.
	flushTime = 2 * time.Second
	// defaultRescan finds changes that inotify does not report (network file systems).
	defaultRescan = 10 * time.Second
)

// copies keeps the last good version of each manifest in the agent's state directory, so that a restarted
// agent has it. Run writes beside the scans: a slow disk does not delay policy.
type copies struct {
	dir, source string
	// services has Services and EndpointSlices read.
	services bool
	log      *slog.Logger
	wake     chan struct{}
	// changed gets a value after the problem changed.
	changed chan struct{}

	mu sync.Mutex
	// wanted has the versions that are not written yet, by file; nil deletes the copy.
	wanted map[string][]*version
	// held are the sums of the copies on the disk and their sizes, by file. The sum is empty if the copy is not usable.
	held    map[string]heldCopy
	problem string
	// unsynced reports that the last changes of the directory may not be on the disk. The writer alone uses it.
	unsynced bool
}

type heldCopy struct {
	sum  string
	size int
}

// newCopies returns the copies of a directory of manifests. Without a state directory there are none: it returns nil.
func newCopies(state, source string, services bool, log *slog.Logger) *copies {
	if state == "" {
		return nil
	}
	if absolute, err := filepath.Abs(source); err == nil {
		source = absolute
	}
	return &copies{
		dir: filepath.Join(state, copiesDir), source: source, services: services, log: log,
		wake: make(chan struct{}, 1), changed: make(chan struct{}, 1),
		wanted: map[string][]*version{}, held: map[string]heldCopy{},
	}
}

// load reads the copies of this directory, as files with a former content. It logs and skips a copy that cannot be used.
func (c *copies) load() map[string]*file {
	loaded := map[string]*file{}
	if c == nil {
		return loaded
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	entries, err := os.ReadDir(c.dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		c.log.Warn("the last good versions of manifests cannot be read", "dir", c.dir, "error", err)
	}
	left := int64(maxCopies)
	for _, e := range entries {
		if !isManifest(e.Name()) {
			continue
		}
		data, err := readOwn(filepath.Join(c.dir, e.Name()), left)
		left -= int64(len(data))
		var f *file
		if err == nil {
			f, err = c.decode(e.Name(), data)
		}
		c.held[e.Name()] = heldCopy{}
		if err != nil {
			c.log.Warn("the last good version of a manifest cannot be used", "file", e.Name(), "copy", filepath.Join(c.dir, e.Name()), "error", err)
			continue
		}
		if f != nil {
			loaded[f.name] = f
			c.held[e.Name()] = heldCopy{sum: sumOf(data), size: len(data)}
		}
	}
	return loaded
}

// keep asks for copies of files in the state that is in force, and deletes those of other files. Files with errors are
// written after each change: the versions that they need also depend on other files.
func (c *copies) keep(all map[string]*file, renewed []string, changed bool, now cluster) {
	if c == nil {
		return
	}
	c.mu.Lock()
	if changed {
		for name, f := range all {
			if f.faulty() {
				renewed = append(renewed, name)
			}
		}
	}
	for _, name := range renewed {
		if f := all[name]; f.readError == "" && !f.waiting && !f.unknown() {
			c.wanted[name] = f.versions(now)
		}
	}
	for name := range c.held {
		if all[name] == nil {
			c.wanted[name] = nil
		}
	}
	for name := range c.wanted {
		if all[name] == nil {
			c.wanted[name] = nil
		}
	}
	pending := len(c.wanted) > 0
	c.mu.Unlock()
	if pending {
		notify(c.wake)
	}
}

// notify wakes the reader of a channel with one place.
func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // it is awake already
	}
}

// run writes copies until ctx ends, and then those that are still wanted.
func (c *copies) run(ctx context.Context) {
	retry := time.NewTicker(defaultRescan)
	defer retry.Stop()
	for {
		select {
		case <-ctx.Done():
			c.write()
			return
		case <-c.wake:
		case <-retry.C:
		}
		c.write()
	}
}

// write writes the desired copies. A copy that cannot be written stays desired.
func (c *copies) write() {
	c.mu.Lock()
	wanted := c.wanted
	c.wanted = map[string][]*version{}
	c.mu.Unlock()
	if len(wanted) == 0 && !c.unsynced {
		return
	}
	failed, err := c.writeAll(wanted)
	problem := ""
	if err != nil {
		problem = reasonOf(err)
	}
	c.mu.Lock()
	for name, versions := range failed {
		if _, newer := c.wanted[name]; !newer {
			c.wanted[name] = versions
		}
	}
	before := c.problem
	c.problem = problem
	c.mu.Unlock()
	if problem != before {
		notify(c.changed)
	}
}

// writeAll writes and deletes copies, and returns those that failed, with the first reason.
func (c *copies) writeAll(wanted map[string][]*version) (map[string][]*version, error) {
	if err := c.makeDir(); err != nil {
		return wanted, err
	}
	failed := map[string][]*version{}
	var first error
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		did, err := c.writeOne(name, wanted[name])
		c.unsynced = c.unsynced || did
		if err != nil {
			failed[name] = wanted[name]
			first = cmp.Or(first, err)
		}
	}
	if c.unsynced {
		err := syncDir(c.dir)
		c.unsynced = err != nil
		first = cmp.Or(first, err)
	}
	return failed, first
}

// problems names a state directory that takes no copies.
func (c *copies) problems() []model.Problem {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.problem == "" {
		return nil
	}
	return []model.Problem{{
		Source: c.dir, Object: model.ObjectRef{Kind: "directory", Name: c.dir},
		Reason: "cannot keep the last good versions of manifests: " + c.problem + "; a restarted agent lacks those that were not written",
	}}
}

// notices returns the channel that signals new problems.
func (c *copies) notices() <-chan struct{} {
	if c == nil {
		return nil
	}
	return c.changed
}

// begin starts writing. The function that it returns ends it.
func (c *copies) begin() func() {
	if c == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.run(ctx)
	}()
	return func() {
		cancel()
		select {
		case <-done:
		case <-time.After(flushTime): // a disk that does not answer may not keep the agent from ending
		}
	}
}
