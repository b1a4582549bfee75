package files

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
)

// maxManifest bounds a file.
const maxManifest = 64 << 20

// Manifests returns a file, or the manifests of a folder, sorted. "-" is standard input.
func Manifests(name string) ([]string, error) {
	if name == "-" {
		return []string{name}, nil
	}
	info, err := os.Stat(name)
	if err != nil || !info.IsDir() {
		return []string{name}, err
	}
	entries, err := os.ReadDir(name)
	if err != nil {
		return nil, err
	}
	var paths []string
	for _, e := range entries {
		if !e.IsDir() && slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(e.Name())) {
			paths = append(paths, filepath.Join(name, e.Name()))
		}
	}
	if len(paths) == 0 {
		return nil, fmt.Errorf("%s: the folder has no .yaml, .yml or .json file", name)
	}
	return paths, nil
}

// ReadManifest returns the content of a file of Manifests.
func ReadManifest(path string, stdin io.Reader) ([]byte, error) {
	if path == "-" {
		return io.ReadAll(Bounded(stdin, maxManifest))
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(Bounded(f, maxManifest))
}
