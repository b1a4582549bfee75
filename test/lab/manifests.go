package lab

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// manifestsDir is the directory that the agents watch.
type manifestsDir string

// write brings the directory to the wanted files. Each file changes at once,
// and one that is right already is not touched.
func (d manifestsDir) write(files map[string][]byte) error {
	if err := os.MkdirAll(string(d), 0o755); err != nil {
		return fmt.Errorf("manifests: %w", err)
	}
	entries, err := os.ReadDir(string(d))
	if err != nil {
		return fmt.Errorf("manifests: %w", err)
	}
	var errs []error
	for _, e := range entries {
		if _, wanted := files[e.Name()]; !wanted && !strings.HasPrefix(e.Name(), ".") {
			errs = append(errs, os.Remove(filepath.Join(string(d), e.Name())))
		}
	}
	for name, text := range files {
		path := filepath.Join(string(d), name)
		old, err := os.ReadFile(path)
		if err == nil && bytes.Equal(old, text) {
			continue
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
			continue
		}
		errs = append(errs, writeFile(path, text))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("manifests: %w", err)
	}
	return nil
}
