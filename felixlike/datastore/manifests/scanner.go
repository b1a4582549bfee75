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
	dir      string
	files    map[string]*file
	cluster  cluster
	problems []model.Problem
}

// scan is the result of one look at the directory.
type scan struct {
	events   []datastore.Event
	problems []model.Problem
	// waiting reports that a file is too young to be believed.
	waiting bool
	// err is the failure to read the directory itself.
	err error
}

func newScanner(dir string) *scanner {
	return &scanner{dir: dir, files: map[string]*file{}, cluster: cluster{}}
}

// scan looks at every file; force reads even those that look unchanged.
func (s *scanner) scan(force bool) scan {
	names, err := manifestNames(s.dir)
	if err != nil {
		return s.unreadable(err)
	}
	changed, waiting := s.forget(names), false
	for _, name := range names {
		old := s.files[name]
		if old == nil {
			old = &file{name: name}
		}
		now := old.refresh(filepath.Join(s.dir, name), force)
		switch {
		case now == nil:
			changed = changed || s.files[name] != nil
			delete(s.files, name)
		case now != s.files[name]:
			changed = true
			s.files[name] = now
		}
		waiting = waiting || now != nil && now.waiting
	}
	result := scan{waiting: waiting}
	if changed {
		sorted := make([]*file, 0, len(s.files))
		for _, name := range slices.Sorted(maps.Keys(s.files)) {
			sorted = append(sorted, s.files[name])
		}
		var after cluster
		after, s.problems = combine(sorted, s.cluster)
		result.events = changes(s.cluster, after)
		s.cluster = after
	}
	result.problems = s.problems
	return result
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
	return scan{problems: problems, err: fmt.Errorf("manifests: %w", err)}
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

// manifestNames lists the files that are looked at, sorted.
func manifestNames(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if isManifest(e.Name()) && !e.IsDir() {
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
