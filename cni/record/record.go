// Package record keeps the records of attached pods in files, one an interface. It knows neither bridge nor
// kernel, and is tested through the servers of package cni.
package record

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/felixlike/felixlike/internal/files"
	"github.com/felixlike/felixlike/model"
)

// maxRecord bounds a record in bytes.
const maxRecord = 64 << 10

// Dir is the directory of the records.
type Dir string

func (d Dir) path(iface string) string { return filepath.Join(string(d), iface+".json") }

// Write replaces the record of an attachment.
func (d Dir) Write(a model.Attachment) error {
	text, err := json.Marshal(a)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(string(d), 0o700); err != nil {
		return err
	}
	next := filepath.Join(string(d), ".next")
	if err := os.WriteFile(next, text, 0o600); err != nil {
		return err
	}
	return os.Rename(next, d.path(a.Interface))
}

// Remove removes the record of an interface, if there is one.
func (d Dir) Remove(iface string) error {
	if err := os.Remove(d.path(iface)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Load returns the readable records, by interface, and the errors of the others.
func (d Dir) Load() (map[string]model.Attachment, error) {
	entries, err := os.ReadDir(string(d))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	all := map[string]model.Attachment{}
	var errs []error
	for _, e := range entries {
		name, record := strings.CutSuffix(e.Name(), ".json")
		if !record {
			continue
		}
		a, err := read(filepath.Join(string(d), e.Name()))
		if err == nil && a.Interface != name {
			err = fmt.Errorf("%s is the record of interface %q", e.Name(), a.Interface)
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		all[name] = a
	}
	return all, errors.Join(errs...)
}

func read(path string) (a model.Attachment, err error) {
	text, err := files.Read(path, maxRecord)
	if err != nil {
		return a, err
	}
	if err := json.Unmarshal(text, &a); err != nil {
		return a, fmt.Errorf("%s: %w", path, err)
	}
	return a, nil
}
