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

// EachManifest calls use with each file, with the manifests of each folder, sorted, and for "-" with standard input.
func EachManifest(names []string, stdin io.Reader, use func(path string, data []byte) error) error {
	for _, name := range names {
		paths, err := manifests(name)
		if err != nil {
			return err
		}
		for _, path := range paths {
			data, err := read(path, stdin)
			if err != nil {
				return err
			}
			if path == "-" {
				path = "standard input"
			}
			if err := use(path, data); err != nil {
				return err
			}
		}
	}
	return nil
}

// manifests returns a file, or the manifests of a folder, sorted.
func manifests(name string) ([]string, error) {
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

func read(path string, stdin io.Reader) ([]byte, error) {
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
