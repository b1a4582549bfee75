// Package confdir looks at the container runtime's directory of network configurations.
// Runtimes take the first file by name. If that is another CNI's, new pods get its
// network, and no policy of felixlike applies to them.
//
// It names such files, watches for them (Watcher) and, with the setting exclusive, renames
// them so that the runtime ignores them, and renames them back. It touches no other file, and
// knows neither Kubernetes nor policy. It is tested with inotify on real directories.
package confdir

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/felixlike/felixlike/internal/files"
)

// Own is the default file name of felixlike's network configuration.
const Own = "05-felixlike.conflist"

// disabled is appended to the name of a configuration that runtimes must ignore.
const disabled = ".felixlike-disabled"

// Files are the network configurations of a directory, by name.
type Files struct {
	// Before are other CNIs' files with names before ours, After those with names after it.
	Before, After []string
	// Own is set if our configuration is there.
	Own bool
}

// Read lists the configurations that runtimes read. own is our file's name. A file that
// mentions felixlike counts as ours too: a meta plugin such as Multus delegates to it.
func Read(dir, own string) (Files, error) {
	var f Files
	entries, err := os.ReadDir(dir) // sorted
	if err != nil {
		return f, fmt.Errorf("network configurations: %w", err)
	}
	for _, e := range entries {
		switch name := e.Name(); {
		case e.IsDir() || !isConfig(name):
		case name == own, delegates(filepath.Join(dir, name)):
			f.Own = true
		case !f.Own && name < own:
			f.Before = append(f.Before, name)
		default:
			f.After = append(f.After, name)
		}
	}
	return f, nil
}

// maxConfig is far above the size of a network configuration, in bytes.
const maxConfig = 1 << 20

// delegates reports whether a configuration mentions felixlike: its plugin, or the file
// of its configuration.
func delegates(path string) bool {
	text, err := files.Read(path, maxConfig)
	return err == nil && bytes.Contains(text, []byte("felixlike"))
}

// isConfig reports whether runtimes read a file of that name as a configuration.
func isConfig(name string) bool {
	switch filepath.Ext(name) {
	case ".conf", ".conflist", ".json":
		return true
	}
	return false
}

// Taken returns the other CNI's configuration that runtimes use instead of ours, or "".
func (f Files) Taken() string {
	switch {
	case len(f.Before) > 0:
		return f.Before[0]
	case !f.Own && len(f.After) > 0:
		return f.After[0]
	}
	return ""
}

// disable renames a configuration so that runtimes ignore it. It replaces an older disabled
// file of that name: its CNI wrote the newer one last.
func disable(dir, name string) error {
	path := filepath.Join(dir, name)
	if err := os.Rename(path, path+disabled); err != nil {
		return fmt.Errorf("disable network configuration: %w", err)
	}
	return nil
}

// GiveBack renames the disabled configurations back, and returns their names. It leaves a
// configuration disabled if a new file has its name.
func GiveBack(dir string) ([]string, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*"+disabled))
	if err != nil {
		return nil, fmt.Errorf("disabled network configurations: %w", err)
	}
	var back []string
	var errs []error
	for _, path := range paths {
		now := strings.TrimSuffix(path, disabled)
		// Unlike a rename, a link never replaces a file.
		err := os.Link(path, now)
		if errors.Is(err, os.ErrExist) {
			continue
		}
		if err == nil {
			err = os.Remove(path)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("enable network configuration: %w", err))
			continue
		}
		back = append(back, filepath.Base(now))
	}
	return back, errors.Join(errs...)
}
