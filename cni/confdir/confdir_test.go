package confdir

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/felixlike/felixlike/test/stopwatch"
)

func put(t *testing.T, dir string, names ...string) {
	t.Helper()
	for _, name := range names {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("{}"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func list(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return strings.Join(names, " ")
}

// logBuffer is a log that may be read while it is written.
type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *logBuffer) lines(part string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Count(b.text.String(), part)
}

// watching watches a directory until the test ends.
func watching(t *testing.T, dir string, exclusive bool) (*Watcher, *logBuffer) {
	t.Helper()
	log := &logBuffer{}
	w := NewWatcher(Options{Dir: dir, Own: Own, Exclusive: exclusive, Log: slog.New(slog.NewTextHandler(log, nil))})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- w.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	return w, log
}

func eventually(t *testing.T, what string, ok func() bool) time.Duration {
	t.Helper()
	watch := stopwatch.Start(t)
	for !ok() {
		if lap := watch.Lap(t); lap.Net() > lookEvery/2 || lap.Took > 6*lookEvery {
			t.Fatal("waited in vain: " + what)
		}
		time.Sleep(time.Millisecond)
	}
	return watch.Lap(t).Took
}

func TestTaken(t *testing.T) {
	for _, c := range []struct{ files, want string }{
		{Own, ""},
		{"", ""},
		{Own + " 10-calico.conflist", ""},
		{Own + " 00-other.conf", "00-other.conf"},
		{Own + " 01-b.json 00-a.conflist 10-c.conf", "00-a.conflist"},
		{Own + " 00-other.conf.felixlike-disabled 00-README 01-x.conf.bak", ""},
		{"10-calico.conflist", "10-calico.conflist"},
	} {
		dir := t.TempDir()
		put(t, dir, strings.Fields(c.files)...)
		f, err := Read(dir, Own)
		if got := f.Taken(); err != nil || got != c.want {
			t.Errorf("of %q runtimes take %q, %v; want %q", c.files, got, err, c.want)
		}
	}
}

// Another CNI's configuration is named at once, logged once, and left alone.
func TestOtherConfigurationIsNamed(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, Own, "10-behind.conf")
	w, log := watching(t, dir, false)
	put(t, dir, "00-other.conf")
	took := eventually(t, "the configuration is named", func() bool { return strings.Contains(w.Problem(), "00-other.conf instead of "+Own) })
	t.Logf("named after %s", took.Round(time.Millisecond))
	put(t, dir, "00-other.conf", "20-more.conf")
	if got := list(t, dir); got != "00-other.conf 05-felixlike.conflist 10-behind.conf 20-more.conf" {
		t.Errorf("files are %s", got)
	}
	if err := os.Remove(filepath.Join(dir, "00-other.conf")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the problem has gone", func() bool { return w.Problem() == "" })
	if n := log.lines("level=ERROR"); n != 1 {
		t.Errorf("%d lines of the log have it", n)
	}
}

// With exclusive it is renamed, however often its CNI writes it, and renamed back at the end.
func TestExclusive(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, Own, "00-first.conf", "10-behind.conf")
	w, log := watching(t, dir, true)
	want := "00-first.conf.felixlike-disabled 05-felixlike.conflist 10-behind.conf"
	eventually(t, "the first is renamed", func() bool { return list(t, dir) == want })
	put(t, dir, "00-first.conf")
	eventually(t, "it is renamed again", func() bool { return list(t, dir) == want && log.lines("renamed") == 2 })
	eventually(t, "there is no problem", func() bool { return w.Problem() == "" })
	if back, err := GiveBack(dir); err != nil || !slices.Equal(back, []string{"00-first.conf"}) {
		t.Errorf("given back: %v, %v", back, err)
	}
}

// If another CNI rewrites its configuration at once, the agent is not kept busy, and still
// reports the problem.
func TestFightOverAName(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, Own, "00-first.conf")
	w, log := watching(t, dir, true)
	shown := false
	began := time.Now()
	for time.Since(began) < 2*renameEvery+renameEvery/2 {
		put(t, dir, "00-first.conf")
		shown = shown || w.Problem() != ""
		time.Sleep(time.Millisecond)
	}
	n := log.lines("renamed")
	if took := time.Since(began); n > 2+int(took/renameEvery) {
		t.Errorf("renamed %d times in %s", n, took)
	}
	if !shown {
		t.Error("no problem was shown")
	}
	eventually(t, "the last is renamed", func() bool { return w.Problem() == "" && !strings.Contains(list(t, dir)+" ", "00-first.conf ") })
}

// A meta plugin comes before ours and delegates to it: its pods have felixlike's network.
func TestDelegatesAreOurs(t *testing.T) {
	for name, text := range map[string]string{
		"with the plugin":   `{"type": "multus", "delegates": [{"name": "k8s", "plugins": [{"type": "felixlike-cni"}]}]}`,
		"with its file":     `{"type": "multus-shim", "clusterNetwork": "/host/etc/cni/net.d/05-felixlike.conflist"}`,
		"without our files": `{"type": "felixlike-cni"}`,
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if name != "without our files" {
				put(t, dir, Own)
			}
			if err := os.WriteFile(filepath.Join(dir, "00-multus.conf"), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			put(t, dir, "10-behind.conf")
			files, err := Read(dir, Own)
			if err != nil || !files.Own || files.Taken() != "" || len(files.Before) > 0 {
				t.Errorf("%+v, %v", files, err)
			}
		})
	}
}

// Runtimes do not read a directory as a configuration.
func TestDirectoryIsNoConfiguration(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, Own)
	if err := os.Mkdir(filepath.Join(dir, "00-x.conf"), 0o700); err != nil {
		t.Fatal(err)
	}
	if files, err := Read(dir, Own); err != nil || files.Taken() != "" {
		t.Errorf("%+v, %v", files, err)
	}
}

// Giving back does not overwrite a new file with the same name.
func TestGiveBackOverwritesNothing(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "00-a.conf.felixlike-disabled", "01-b.conf.felixlike-disabled")
	if err := os.WriteFile(filepath.Join(dir, "00-a.conf"), []byte("newer"), 0o600); err != nil {
		t.Fatal(err)
	}
	back, err := GiveBack(dir)
	if err != nil || !slices.Equal(back, []string{"01-b.conf"}) {
		t.Errorf("given back: %v, %v", back, err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "00-a.conf"))
	if err != nil || string(text) != "newer" {
		t.Errorf("the newer one is %q, %v", text, err)
	}
}

// Without ours, nothing is renamed: the node would have no network at all.
func TestExclusiveWithoutOwn(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "00-first.conf")
	w, _ := watching(t, dir, true)
	eventually(t, "the configuration is named", func() bool { return w.Problem() != "" })
	if got := list(t, dir); got != "00-first.conf" {
		t.Errorf("files are %s", got)
	}
}

// A missing directory is a problem. It may be made later.
func TestDirectoryComesLater(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "net.d")
	w := NewWatcher(Options{Dir: dir, Own: Own, Log: slog.New(slog.DiscardHandler)})
	w.look()
	if w.Problem() == "" {
		t.Error("no problem without a directory")
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	w.look()
	if text := w.Problem(); text != "" {
		t.Errorf("a problem with an empty directory: %s", text)
	}
}
