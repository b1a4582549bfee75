package manifests

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/model"
)

// Parse reads the objects of one text as a Source reads a file. The suffix of its name says whether it is
// YAML or JSON. Objects with a problem are not among the events.
func Parse(name string, data []byte) ([]datastore.Event, []model.Problem) {
	read := parse(name, data, false)
	problems := slices.Concat(read.problems, read.unidentified)
	var events []datastore.Event
	for _, e := range read.entries {
		problems = append(problems, e.problems...)
		if e.object != nil {
			events = append(events, value{object: e.object, source: name}.event(e.key))
		}
	}
	sortProblems(problems)
	return events, problems
}

// ParseFile reads a file, or all manifests of a directory, once. Unlike a Source it
// fails if any of them cannot be read.
func ParseFile(path string) ([]datastore.Event, []model.Problem, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, nil, err
	}
	names := []string{path}
	if info.IsDir() {
		if names, err = manifestNames(path, func(string) bool { return false }); err != nil {
			return nil, nil, err
		}
		for i, name := range names {
			names[i] = filepath.Join(path, name)
		}
	}
	var events []datastore.Event
	var problems []model.Problem
	for _, name := range names {
		data, _, err := read(name, time.Now())
		if err != nil {
			return nil, nil, fmt.Errorf("read manifests: %s: %w", name, err)
		}
		some, wrong := Parse(name, data)
		events, problems = append(events, some...), append(problems, wrong...)
	}
	return events, problems, nil
}
