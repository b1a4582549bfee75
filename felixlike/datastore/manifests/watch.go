package manifests

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/fsnotify/fsnotify"
)

// watch reports events of a directory that may come and go. It follows the path, not the inode: it also
// watches a directory that replaces another one. Without inotify it reports nothing.
type watch struct {
	dir     string
	watcher *fsnotify.Watcher
	err     error
	watched os.FileInfo
}

func newWatch(dir string, log *slog.Logger) *watch {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		log.Warn("no inotify, changes are noticed by periodic scans", "error", err)
		return &watch{dir: dir, err: err}
	}
	return &watch{dir: dir, watcher: watcher}
}

func (w *watch) close() {
	if w.watcher != nil {
		w.watcher.Close()
	}
}

// ensure watches the directory that is at the path now. A missing directory is no error.
func (w *watch) ensure() error {
	if w.watcher == nil {
		return w.err
	}
	now, err := os.Stat(w.dir)
	if err != nil {
		w.drop()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	if w.watched != nil && os.SameFile(now, w.watched) && len(w.watcher.WatchList()) > 0 {
		return nil
	}
	w.drop()
	if err := w.watcher.Add(w.dir); err != nil {
		return err
	}
	w.watched = now
	return nil
}

func (w *watch) drop() {
	for _, path := range w.watcher.WatchList() {
		// It fails if the kernel has dropped the watch with its directory.
		_ = w.watcher.Remove(path)
	}
	w.watched = nil
}

// concerns reports whether an event calls for a scan: those of other files do
// not, except for the hidden link by which a mounted ConfigMap is switched.
func (w *watch) concerns(e fsnotify.Event) bool {
	name := filepath.Base(e.Name)
	return isManifest(name) || strings.HasPrefix(name, "..") || filepath.Clean(e.Name) == filepath.Clean(w.dir)
}

func (w *watch) events() <-chan fsnotify.Event {
	if w.watcher == nil {
		return nil
	}
	return w.watcher.Events
}

func (w *watch) errors() <-chan error {
	if w.watcher == nil {
		return nil
	}
	return w.watcher.Errors
}
