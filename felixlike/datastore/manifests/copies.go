package manifests

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/internal/files"
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
)

// copyHeader is the first line of a copy. The other lines are copiedObjects. The names are quoted as in Go, since
// JSON has no bytes that are not UTF-8.
type copyHeader struct {
	Directory string `json:"directory"`
	File      string `json:"file"`
	// SHA256 is that of the other lines, in hexadecimal digits.
	SHA256 string `json:"sha256"`
}

// copiedObject is one object of a copy.
type copiedObject struct {
	Read   time.Time       `json:"read"`
	Object json.RawMessage `json:"object"`
	// Error says why only the identity of the object can be trusted.
	Error string `json:"error,omitempty"`
}

// copies keeps the last good version of each manifest in the agent's state directory, so that a restarted
// agent has it. Run writes beside the scans: a slow disk does not delay policy.
type copies struct {
	dir, source string
	log         *slog.Logger
	wake        chan struct{}
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
func newCopies(state, source string, log *slog.Logger) *copies {
	if state == "" {
		return nil
	}
	if absolute, err := filepath.Abs(source); err == nil {
		source = absolute
	}
	return &copies{
		dir: filepath.Join(state, copiesDir), source: source, log: log,
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

// readOwn reads a file that only this user could have written.
func readOwn(path string, most int64) ([]byte, error) {
	var info unix.Stat_t
	if err := unix.Lstat(path, &info); err != nil {
		return nil, err
	}
	if int(info.Uid) != os.Geteuid() || info.Mode&0o022 != 0 {
		return nil, errors.New("another user could have written it")
	}
	return files.Read(path, most)
}

// decode returns the file that a copy describes, or nil if it is of another directory.
func (c *copies) decode(name string, data []byte) (*file, error) {
	first, body, _ := bytes.Cut(data, []byte("\n"))
	var header copyHeader
	if err := json.Unmarshal(first, &header); err != nil {
		return nil, err
	}
	switch {
	case header.Directory != strconv.Quote(c.source):
		return nil, nil
	case header.File != strconv.Quote(name):
		return nil, fmt.Errorf("it is of %s", header.File)
	case header.SHA256 != sumOf(body):
		return nil, errors.New("its checksum is wrong")
	}
	p := &parser{file: name, seen: map[key]bool{}}
	for line := range bytes.Lines(body) {
		var o copiedObject
		if err := json.Unmarshal(line, &o); err != nil {
			return nil, err
		}
		d := document{json: o.Object}
		if o.Error != "" {
			d.err = errors.New(o.Error)
		}
		before := len(p.content.entries)
		p.document(place{number: 1, line: 1}, d)
		for i := range p.content.entries[before:] {
			v := p.content.entries[before+i].version
			v.read, v.restored = o.Read, true
		}
	}
	// Problems without an object belong to text that the copy does not have.
	return &file{name: name, content: content{entries: p.content.entries}, restored: true}, nil
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

// writeOne brings one copy to the disk, and reports whether it had to.
func (c *copies) writeOne(name string, versions []*version) (bool, error) {
	path := filepath.Join(c.dir, name)
	c.mu.Lock()
	old, others := c.held[name], 0
	for n, h := range c.held {
		if n != name {
			others += h.size
		}
	}
	c.mu.Unlock()
	if versions == nil {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return false, err
		}
		c.mu.Lock()
		delete(c.held, name)
		c.mu.Unlock()
		return true, nil
	}
	data, err := c.encode(name, versions)
	if err != nil {
		return false, err
	}
	now := heldCopy{sum: sumOf(data), size: len(data)}
	if now == old {
		return false, nil
	}
	if others+len(data) > maxCopies {
		return false, fmt.Errorf("%s: the copies would have more than %d bytes", name, maxCopies)
	}
	if err := replace(c.dir, path, data); err != nil {
		return false, err
	}
	c.mu.Lock()
	c.held[name] = now
	c.mu.Unlock()
	return true, nil
}

// encode returns the text of a copy.
func (c *copies) encode(name string, versions []*version) ([]byte, error) {
	var body bytes.Buffer
	lines := json.NewEncoder(&body)
	lines.SetEscapeHTML(false)
	for _, v := range versions {
		o := copiedObject{Read: v.read, Object: v.document.json}
		if v.document.err != nil {
			o.Error = v.document.err.Error()
		}
		if err := lines.Encode(o); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	header, err := json.Marshal(copyHeader{Directory: strconv.Quote(c.source), File: strconv.Quote(name), SHA256: sumOf(body.Bytes())})
	return slices.Concat(header, []byte("\n"), body.Bytes()), err
}

// makeDir makes the directory of the copies, for this user alone.
func (c *copies) makeDir() error {
	if err := os.MkdirAll(filepath.Dir(c.dir), 0o755); err != nil {
		return err
	}
	if err := os.Mkdir(c.dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	var info unix.Stat_t
	if err := unix.Lstat(c.dir, &info); err != nil {
		return &os.PathError{Op: "lstat", Path: c.dir, Err: err}
	}
	switch {
	case info.Mode&unix.S_IFMT != unix.S_IFDIR:
		return &os.PathError{Op: "open", Path: c.dir, Err: unix.ENOTDIR}
	case int(info.Uid) != os.Geteuid():
		return fmt.Errorf("%s belongs to another user", c.dir)
	case info.Mode&0o077 == 0:
		return nil
	}
	return os.Chmod(c.dir, 0o700)
}

// replace writes a file such that it has either the old or the new content, also after a loss of power.
func replace(dir, path string, data []byte) error {
	temporary := filepath.Join(dir, newCopy)
	f, err := os.OpenFile(temporary, os.O_CREATE|os.O_TRUNC|os.O_WRONLY|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(temporary, path)
	}
	if err != nil {
		// The first error counts; without this, a full disk would keep a part of a file.
		_ = os.Remove(temporary)
	}
	return err
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func sumOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
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

// notices returns the channel that tells of new problems.
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
