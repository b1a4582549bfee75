package ctl

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/ovsfwd/ovsdb"
	"github.com/felixlike/felixlike/ovsfwd/vswitchd"
	"github.com/felixlike/felixlike/test/ovstest"
)

// TestArchive: the archive has the collected parts, failed ones are named, and no
// file is overwritten.
func TestArchive(t *testing.T) {
	dir := t.TempDir()
	log := filepath.Join(dir, "agent.log")
	if err := os.WriteFile(log, []byte(strings.Repeat("x", maxLog)+"the end"), 0o600); err != nil {
		t.Fatal(err)
	}
	d := newDiags()
	d.add("status.json", []byte("{}"))
	d.failed("model.json", errors.New("no answer"))
	d.logs([]string{log, filepath.Join(dir, "missing.log")})
	path := filepath.Join(dir, "node1.tar.gz")
	if err := d.save(path, io.Discard); err != nil {
		t.Fatal(err)
	}
	got := unpacked(t, path)
	if got["node1/status.json"] != "{}" || !strings.Contains(got["node1/errors.txt"], "model.json: no answer") || !strings.Contains(got["node1/errors.txt"], "missing.log") {
		t.Errorf("%q", got["node1/errors.txt"])
	}
	for name, text := range got {
		if strings.HasSuffix(name, "agent.log") && (len(text) != maxLog || !strings.HasSuffix(text, "the end")) {
			t.Errorf("%s has %d bytes", name, len(text))
		}
	}
	if err := d.save(path, io.Discard); !errors.Is(err, os.ErrExist) {
		t.Errorf("written over: %v", err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}

// TestStatisticsOfTheSwitch asks a real ovs-vswitchd for its counters, and one that has ended.
func TestStatisticsOfTheSwitch(t *testing.T) {
	b := ovstest.NewBridge(t)
	d := newDiags()
	d.statistics(t.Context(), vswitchd.New(b.Daemons.Dir(), ovsdb.DatapathNetdev))
	if len(d.errors) > 0 {
		t.Error(d.errors)
	}
	for name, part := range map[string]string{
		"switch/upcall_show.txt": "flows", "switch/dpif_show.txt": "br-int", "switch/coverage_show.txt": "Event coverage", "switch/memory_show.txt": "ports",
	} {
		if at := slices.IndexFunc(d.files, func(e entry) bool { return e.name == name }); at < 0 || !strings.Contains(string(d.files[at].data), part) {
			t.Errorf("%s is missing or lacks %q", name, part)
		}
	}
	d = newDiags()
	d.statistics(t.Context(), vswitchd.New(t.TempDir(), ovsdb.DatapathNetdev))
	if len(d.files) > 0 || len(d.errors) == 0 {
		t.Errorf("no daemon: %d files, %d errors", len(d.files), len(d.errors))
	}
}

// TestCountersOfTheProcessors: the archive has the kernel's counters of dropped packets.
func TestCountersOfTheProcessors(t *testing.T) {
	d := newDiags()
	d.versions(t.Context())
	at := slices.IndexFunc(d.files, func(e entry) bool { return e.name == "node/softnet_stat" })
	if at < 0 || len(strings.Fields(string(d.files[at].data))) < 10 {
		t.Errorf("no counters: %v", d.errors)
	}
}

func unpacked(t *testing.T, path string) map[string]string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	r := tar.NewReader(z)
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		all[h.Name] = string(data)
	}
}
