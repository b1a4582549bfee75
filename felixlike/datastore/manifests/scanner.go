package manifests

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/model"
)

// scanner compares the directory with its last reading.
type scanner struct {
	dir string
	// services has Services and EndpointSlices read.
	services bool
	files    map[string]*file
	cluster  cluster
	problems []model.Problem
	copies   *copies
	// restored is the state of the last agent, until the directory was read for the first time.
	restored cluster
}

// scan is the result of one look at the directory.
type scan struct {
	events   []datastore.Event
	problems []model.Problem
	// waiting reports that a file is too young to be believed.
	waiting bool
	// err is the failure to read the directory itself.
	err error
	// unknown are the files of which no version was ever read in full, outdated counts those of which
	// a former version is in force.
	unknown  []string
	outdated int
}

// newScanner returns a scanner that begins with the last good versions of files that there are copies of; copies
// may be nil.
func newScanner(dir string, services bool, copies *copies) *scanner {
	s := &scanner{dir: dir, services: services, files: copies.load(), cluster: cluster{}, copies: copies}
	s.restored, _ = combine(s.sorted(), cluster{})
	return s
}

// sorted returns the files by name.
func (s *scanner) sorted() []*file {
	sorted := make([]*file, 0, len(s.files))
	for _, name := range slices.Sorted(maps.Keys(s.files)) {
		sorted = append(sorted, s.files[name])
	}
	return sorted
}

// scan looks at every file; force reads even those that look unchanged.
func (s *scanner) scan(force bool) scan {
	names, err := manifestNames(s.dir, func(name string) bool { return s.files[name] != nil })
	if err != nil {
		return s.unreadable(err)
	}
	changed, waiting := s.forget(names), false
	var renewed []string
	for _, name := range names {
		old := s.files[name]
		if old == nil {
			old = &file{name: name, services: s.services}
		}
		now := old.refresh(filepath.Join(s.dir, name), force)
		switch {
		case now == nil:
			changed = changed || s.files[name] != nil
			delete(s.files, name)
		case now != s.files[name]:
			changed = true
			s.files[name] = now
			renewed = append(renewed, name)
		}
		waiting = waiting || now != nil && now.waiting
	}
	result := scan{waiting: waiting}
	if changed {
		before := s.cluster
		if s.restored != nil {
			before, s.restored = s.restored, nil
		}
		var after cluster
		after, s.problems = combine(s.sorted(), before)
		result.events = changes(s.cluster, after)
		s.cluster = after
	}
	s.copies.keep(s.files, renewed, changed, s.cluster)
	result.problems = slices.Concat(s.copies.problems(), s.problems)
	s.count(&result)
	return result
}

// count notes the files that are not known, and the outdated ones.
func (s *scanner) count(result *scan) {
	for _, f := range s.sorted() {
		switch {
		case f.unknown():
			result.unknown = append(result.unknown, f.name)
		case f.readError != "" || f.merged:
			result.outdated++
		}
	}
}

// unreadable keeps everything: a directory that is not there is no statement
// about objects.
func (s *scanner) unreadable(err error) scan {
	reason := err.Error()
	var pathError *fs.PathError
	if errors.As(err, &pathError) {
		reason = pathError.Err.Error()
	}
	if len(s.cluster) > 0 {
		reason += "; the former content stays in force"
	}
	problems := append([]model.Problem{{
		Source: s.dir, Object: model.ObjectRef{Kind: "directory", Name: s.dir}, Reason: "cannot be read: " + reason,
	}}, s.problems...)
	result := scan{problems: problems, err: fmt.Errorf("manifests: %w", err)}
	s.count(&result)
	return result
}

// forget drops files that are gone and reports whether there were any.
func (s *scanner) forget(names []string) bool {
	before := len(s.files)
	maps.DeleteFunc(s.files, func(name string, _ *file) bool {
		_, exists := slices.BinarySearch(names, name)
		return !exists
	})
	return len(s.files) != before
}

// manifestNames lists the files that are looked at, sorted. A directory in the place of a known file is one.
func manifestNames(dir string, known func(string) bool) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if isManifest(e.Name()) && (!e.IsDir() || known(e.Name())) {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// isManifest reports whether a file with that name is read. Hidden files belong to editors and to writers
// that rename them later.
func isManifest(name string) bool {
	if strings.HasPrefix(name, ".") {
		return false
	}
	switch filepath.Ext(name) {
	case ".yaml", ".yml", ".json":
		return true
	}
	return false
}
