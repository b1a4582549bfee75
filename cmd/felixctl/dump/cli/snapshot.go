package cli

import (
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/felixlike/felixlike/cmd/felixctl/dump/live"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/internal/files"
)

// DefaultSnapshots is the folder of snapshots.
const DefaultSnapshots = "/var/lib/felixlike/snapshots"

// snapshotVersion is that of the format.
const snapshotVersion = 1

// Snapshot is the state of a node at one moment, with the agent's model.
type Snapshot struct {
	Version int `json:"snapshotVersion"`
	// Name is the name of the snapshot, At its time.
	Name string    `json:"name"`
	At   time.Time `json:"at"`
	// Model is the agent's, Parts is the tools' output.
	Model *control.Model `json:"model"`
	Parts []live.Part    `json:"parts"`
}

// store is a folder of snapshots.
type store struct{ dir string }

const suffix = ".json.gz"

func (s store) path(name string) (string, error) {
	if !regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$`).MatchString(name) {
		return "", fmt.Errorf("%q cannot be the name of a snapshot: letters, digits, dots, dashes and underscores can", name)
	}
	return filepath.Join(s.dir, name+suffix), nil
}

// save writes a snapshot, whole or not at all.
func (s store) save(snapshot *Snapshot, replace bool) (string, error) {
	path, err := s.path(snapshot.Name)
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(path); err == nil && !replace {
		return "", fmt.Errorf("there is a snapshot %s already: --replace replaces it", snapshot.Name)
	}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return "", fmt.Errorf("save snapshot %s: %w", snapshot.Name, err)
	}
	file, err := os.CreateTemp(s.dir, ".new-*")
	if err != nil {
		return "", fmt.Errorf("save snapshot %s: %w", snapshot.Name, err)
	}
	defer os.Remove(file.Name())
	w := gzip.NewWriter(file)
	err = errors.Join(json.NewEncoder(w).Encode(snapshot), w.Close(), file.Close())
	if err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		return "", fmt.Errorf("save snapshot %s: %w", snapshot.Name, err)
	}
	return path, nil
}

const (
	// maxListing bounds an unpacked snapshot and a listing: several times the output
	// of the largest node. maxPacked bounds a snapshot's file.
	maxListing = 1 << 30
	maxPacked  = maxListing / 8
	// maxRatio bounds an unpacked snapshot by the size of its file, from smallSnapshot on. Snapshots are packed to a tenth
	// up to a thirtieth.
	maxRatio      = 40
	smallSnapshot = 16 << 20
)

// unpackedLimit returns how large a file of that size may become: what unpacks to much more was made to fill the memory.
func unpackedLimit(packed int64) int64 { return min(maxListing, max(smallSnapshot, maxRatio*packed)) }

// load reads a snapshot.
func (s store) load(name string) (*Snapshot, error) {
	path, err := s.path(name)
	if err != nil {
		return nil, err
	}
	file, err := files.Open(path, maxPacked)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("there is no snapshot %s in %s (felixctl snapshot list)", name, s.dir)
	}
	if err != nil {
		return nil, fmt.Errorf("read snapshot %s: %w", name, err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, fmt.Errorf("read snapshot %s: %w", name, err)
	}
	snapshot, err := unpack(file, unpackedLimit(info.Size()))
	if err != nil {
		return nil, fmt.Errorf("read snapshot %s: %w", name, err)
	}
	if snapshot.Version != snapshotVersion || snapshot.Model == nil {
		return nil, fmt.Errorf("snapshot %s has the version %d, and not %d", name, snapshot.Version, snapshotVersion)
	}
	return snapshot, nil
}

// unpack reads a snapshot of at most that many bytes.
func unpack(file io.Reader, most int64) (*Snapshot, error) {
	r, err := gzip.NewReader(file)
	if err != nil {
		return nil, err
	}
	snapshot := &Snapshot{}
	return snapshot, json.NewDecoder(files.Bounded(r, most)).Decode(snapshot)
}

// has reports whether there is a snapshot of that name.
func (s store) has(name string) bool {
	path, err := s.path(name)
	if err != nil {
		return false
	}
	_, err = os.Stat(path)
	return err == nil
}

func (s store) delete(name string) error {
	path, err := s.path(name)
	if err == nil {
		err = os.Remove(path)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("there is no snapshot %s in %s", name, s.dir)
	}
	return err
}

// list reads all snapshots, the newest last. One that cannot be read is an error,
// behind all others.
func (s store) list() ([]*Snapshot, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var all []*Snapshot
	var errs []error
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), suffix)
		if !ok {
			continue
		}
		snapshot, err := s.load(name)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		all = append(all, snapshot)
	}
	slices.SortStableFunc(all, func(a, b *Snapshot) int { return a.At.Compare(b.At) })
	return all, errors.Join(errs...)
}
