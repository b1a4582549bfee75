package manifests

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/felixlike/felixlike/model"
)

const (
	// maxFile bounds a file; a namespace of thousands of pods is some megabytes.
	maxFile = 64 << 20
	// clockGrain is how long a second write may leave the time of the first:
	// kernels stamp files by their tick, some file systems by the second.
	clockGrain = 2 * time.Second
	// settleTime is how long after a write a file is not believed to have lost
	// objects: its writer may have truncated it and not be done.
	settleTime = 100 * time.Millisecond
)

// stamp distinguishes versions of a file without reading them.
type stamp struct {
	mtime      time.Time
	size       int64
	device     uint64
	inode      uint64
	unreliable bool
}

// file is the known state of one file of the directory.
type file struct {
	name string
	// services has its Services and EndpointSlices read.
	services bool
	stamp    stamp
	// sum is that of the content, zero if no version has been read yet.
	sum     [sha256.Size]byte
	content content
	// readError is the reason why the newest version could not be read; the former content stays.
	readError string
	// waiting reports that the newest version has lost objects and is too young to be believed.
	waiting bool
	// restored reports that the content is from the state directory.
	restored bool
	// merged reports that objects of a former version stay, because a part of the file cannot be read.
	merged bool
	// cut reports that a part of the file cannot be read, and that no version of it was ever read in full.
	cut bool
}

// stampOf returns the stamp of a file at a moment. A file that was just written may change again with the
// same stamp.
func stampOf(info fs.FileInfo, now time.Time) stamp {
	s := stamp{mtime: info.ModTime(), size: info.Size()}
	s.device, s.inode = deviceOf(info)
	s.unreliable = now.Sub(s.mtime) < clockGrain
	return s
}

// same reports whether a file of that stamp need not be read again.
func (s stamp) same(now stamp) bool {
	return !s.unreliable && s.mtime.Equal(now.mtime) && s.size == now.size && s.device == now.device && s.inode == now.inode
}

// young reports whether the writer of that version, read after a moment, may not be done. A time in the future says nothing.
func (s stamp) young(now time.Time) bool {
	return now.Sub(s.mtime) < settleTime && !s.mtime.After(time.Now())
}

// errEmpty is the error of a file that an interrupted write, or a full disk, has emptied. It
// does not delete objects: the deletion of the file does.
var errEmpty = errors.New("the file is empty")

// refresh returns the file as it is now: f itself if nothing changed, nil if
// there is no such file. force reads it even if it looks unchanged.
func (f *file) refresh(path string, force bool) *file {
	now := time.Now()
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return f.absent(path)
	}
	if err == nil && !force && !f.waiting && f.readError == "" && f.stamp.same(stampOf(info, now)) {
		return f
	}
	data, taken, err := read(path, now)
	if errors.Is(err, fs.ErrNotExist) {
		return f.absent(path)
	}
	if err != nil {
		return f.unreadable(err)
	}
	if len(bytes.TrimSpace(data)) == 0 {
		if taken.young(now) {
			kept := *f
			kept.waiting = true
			return &kept
		}
		return f.unreadable(errEmpty)
	}
	sum := sha256.Sum256(data)
	if sum == f.sum && !f.waiting && f.readError == "" {
		f.stamp = taken
		return f
	}
	next := &file{name: f.name, services: f.services, stamp: taken, sum: sum, content: parse(f.name, data, f.services)}
	next.cut = next.content.unknown() && (f.cut || f.unread())
	next.date(now, f)
	lost := next.lostFrom(f)
	if len(lost) == 0 {
		return next
	}
	if next.content.partial() {
		next.merged = true
		next.content.entries = append(next.content.entries, lost...)
		next.content.problems = append(next.content.problems, missingOf(f.name, lost)...)
		return next
	}
	if taken.young(now) {
		kept := *f
		kept.waiting = true
		return &kept
	}
	return next
}

// reasonOf returns the text of an error without paths.
func reasonOf(err error) string {
	var pathError *fs.PathError
	if errors.As(err, &pathError) {
		return pathError.Op + ": " + pathError.Err.Error()
	}
	return err.Error()
}

// date notes when the objects were first read.
func (f *file) date(now time.Time, older *file) {
	before := make(map[key]*version, len(older.content.entries))
	for _, e := range older.content.entries {
		before[e.key] = e.version
	}
	for _, e := range f.content.entries {
		e.version.read = now.UTC().Truncate(time.Second)
		if old := before[e.key]; old != nil && sameJSON(old.document.json, e.version.document.json) {
			e.version.read = old.read
		}
	}
}

// sameJSON reports whether two values differ in spaces alone.
func sameJSON(a, b []byte) bool {
	var one, other bytes.Buffer
	return bytes.Equal(a, b) || json.Compact(&one, a) == nil && json.Compact(&other, b) == nil && bytes.Equal(one.Bytes(), other.Bytes())
}

// versions returns the versions of the objects that a restarted agent needs: of an object with an error, the
// one in force.
func (f *file) versions(now cluster) []*version {
	all := make([]*version, 0, len(f.content.entries))
	for _, e := range f.content.entries {
		if v := now[e.key]; e.object == nil && v.source == f.name && v.version != nil {
			all = append(all, v.version)
			continue
		}
		all = append(all, e.version)
	}
	return all
}

// faulty reports whether an object of the file has an error.
func (f *file) faulty() bool {
	return slices.ContainsFunc(f.content.entries, func(e entry) bool { return e.object == nil })
}

// missingOf returns a problem for each object that stays in force because a part of its file cannot be read.
func missingOf(name string, lost []entry) []model.Problem {
	var all []model.Problem
	for _, e := range lost {
		since := e.version.since()
		if since != "" {
			since += ","
		}
		all = append(all, model.Problem{
			Source: name, Object: e.key.ref(),
			Reason: "not found in the file, which cannot be read in full: the last good version" + since + " stays in force",
		})
	}
	return all
}

// restoredAt returns when the newest object was first read.
func (f *file) restoredAt() time.Time {
	var newest time.Time
	for _, e := range f.content.entries {
		if e.version.read.After(newest) {
			newest = e.version.read
		}
	}
	return newest
}

// unread reports whether no version of the file was ever read.
func (f *file) unread() bool {
	return !f.restored && f.sum == ([sha256.Size]byte{})
}

// unknown reports whether no version of the file was ever read in full.
func (f *file) unknown() bool {
	return f.cut || f.readError != "" && f.unread()
}

// absent returns nil for a file that is gone. A link to a file that is gone cannot be read.
func (f *file) absent(path string) *file {
	if _, err := os.Lstat(path); err != nil {
		return nil
	}
	return f.unreadable(errors.New("a link to a file that does not exist"))
}

// unreadable returns the file with its former content and the reason of the failure.
func (f *file) unreadable(err error) *file {
	reason := reasonOf(err)
	if f.readError == reason && !f.waiting {
		return f
	}
	next := *f
	next.readError, next.waiting = reason, false
	return &next
}

// lostFrom returns the entries of an older version that are not in f.
func (f *file) lostFrom(older *file) []entry {
	has := map[key]bool{}
	for _, e := range f.content.entries {
		has[e.key] = true
	}
	var lost []entry
	for _, e := range older.content.entries {
		if !has[e.key] {
			lost = append(lost, e)
		}
	}
	return lost
}

// problems returns those that belong to no entry.
func (f *file) problems() []model.Problem {
	all := slices.Clone(f.content.problems)
	for _, p := range f.content.unidentified {
		if f.cut {
			p.Reason += "; no version of the file was ever read in full: a policy in this part is not in force"
		}
		all = append(all, p)
	}
	if f.readError == "" {
		return all
	}
	effect := "the former content stays in force"
	switch {
	case f.unread():
		effect = "its objects are not known; policies in it are not in force"
	case f.restored && len(f.content.entries) == 0:
		effect = "the last good content, which has no objects, stays in force"
	case f.restored:
		effect = "the last good content, which was first read at " + f.restoredAt().Format(time.RFC3339) + ", stays in force"
	}
	return append(all, model.Problem{
		Source: f.name, Object: model.ObjectRef{Kind: "file", Name: f.name},
		Reason: "cannot be read: " + f.readError + "; " + effect,
	})
}

// read reads a regular file with the stamp it had before. Opening does not
// block should the name be that of a pipe.
func read(path string, now time.Time) ([]byte, stamp, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, stamp{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, stamp{}, err
	}
	if !info.Mode().IsRegular() {
		return nil, stamp{}, errors.New("not a regular file")
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, stamp{}, err
	}
	if len(data) > maxFile {
		return nil, stamp{}, fmt.Errorf("larger than %d bytes", maxFile)
	}
	return data, stampOf(info, now), nil
}
