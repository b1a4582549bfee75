package ovsdaemon

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/test/eventually"
)

// TestSilenceOfADaemon has daemons that do not answer, with what their threads do at each
// look.
func TestSilenceOfADaemon(t *testing.T) {
	asleep, main, others := activity{}, activity{main: true}, activity{others: true}
	for _, c := range []struct {
		name  string
		looks int
		of    func(second int) activity
		want  string
	}{
		{"asleep, but not for long", 10, func(int) activity { return asleep }, ""},
		{"asleep", 11, func(int) activity { return asleep }, "all its threads sleep"},
		{"ran once since", 60, func(second int) activity {
			if second == 3 {
				return main
			}
			return asleep
		}, ""},
		{"main sleeps, others work", 60, func(int) activity { return others }, ""},
		{"main sleeps for a minute, others work", 61, func(int) activity { return others }, "its main thread sleeps"},
		{"main waits for others, which wait for a processor", 1000, func(second int) activity {
			return activity{others: true, delayed: time.Hour + time.Duration(second)*time.Second/2}
		}, ""},
		{"main waits for others, which wait for the disk", 1000, func(int) activity { return activity{others: true, disk: true} }, ""},
		{"waits for a processor", 1000, func(second int) activity {
			return activity{main: true, used: time.Duration(second) * 20 * time.Millisecond}
		}, ""},
		{"spins", 61, func(second int) activity {
			return activity{main: true, used: time.Hour + time.Duration(second)*time.Second}
		}, "used 1m0s of CPU time"},
	} {
		var s silence
		for second := range c.looks {
			if why := s.hangs(newPatience(0)); why != "" {
				t.Errorf("%s: hangs after %d looks: %s", c.name, second, why)
			}
			s.add(c.of(second))
		}
		if got := s.hangs(newPatience(0)); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
	if first, third, last := newPatience(0), newPatience(2), newPatience(20); first != (patience{hangsAfter, spinsAfter}) ||
		third != (patience{4 * hangsAfter, 4 * spinsAfter}) || last != (patience{hangMax, hangMax}) {
		t.Errorf("patience %v, after two hangs %v, after many %v", first, third, last)
	}
}

// logBuffer is a log that a test reads while others write it.
type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logBuffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// keep keeps daemons in a namespace until the test ends.
func keep(t *testing.T) (*keeper, *logBuffer) {
	t.Helper()
	d, _ := start(t)
	log := new(logBuffer)
	k := newKeeper(d, Hooks{Serving: func(context.Context) {}, Away: func() {}, Ending: func() {}}, slog.New(slog.NewTextHandler(log, nil)))
	k.vs.away = time.Time{}
	k.guard(k.db)
	k.guard(k.vs)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); k.run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return k, log
}

// TestHungDaemonsAreRestarted stops both daemons with SIGSTOP: both are killed and
// started again, and answer.
func TestHungDaemonsAreRestarted(t *testing.T) {
	k, log := keep(t)
	db, vswitchd := k.d.PIDs()
	for _, pid := range []int{db, vswitchd} {
		if err := unix.Kill(pid, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
	}
	eventually.True(t, "both daemons are killed", func() bool { return strings.Count(log.String(), "daemon hangs") == 2 }, log.String)
	eventually.True(t, "both daemons run again", func() bool { return strings.Count(log.String(), "daemon runs") == 2 }, log.String)
	for _, d := range []*kept{k.db, k.vs} {
		if d.hangs != 1 {
			t.Errorf("%s: %d hangs, want 1", d.name, d.hangs)
		}
		socket, method := d.question()
		if err := (watchdog{socket: socket, method: method}).ask(); err != nil {
			t.Errorf("%s: %v", d.name, err)
		}
	}
	if strings.Contains(log.String(), "is not restarted") {
		t.Errorf("a stopped daemon counts as one that lacks a processor:\n%s", log)
	}
}

// TestKillLoop kills ovs-vswitchd again and again. The first restarts come at once, and
// no later pause is above a second.
func TestKillLoop(t *testing.T) {
	k := newKeeper(&Daemons{}, Hooks{}, slog.New(slog.DiscardHandler))
	for i, want := range []time.Duration{0, 0, 0, 100, 200, 400, 800, 1000, 1000} {
		k.failed(k.vs, "ended", errors.New("killed"), restartMax)
		if got := time.Until(k.vs.next).Round(100 * time.Millisecond); got != want*time.Millisecond {
			t.Errorf("end %d: pause %s, want %s", i+1, got, want*time.Millisecond)
		}
	}
}

// TestUnreadableDatabase starts Open vSwitch on databases that ovsdb-server refuses: it
// serves an empty one, and keeps the old one.
func TestUnreadableDatabase(t *testing.T) {
	d, _ := start(t)
	var log logBuffer
	k := newKeeper(d, Hooks{}, slog.New(slog.NewTextHandler(&log, nil)))
	good, err := os.ReadFile(d.database())
	if err != nil {
		t.Fatal(err)
	}
	list := func() string {
		return command(t, "ovs-vsctl", "--no-wait", "--timeout=10", "--db=unix:"+d.DBSocket(), "list-br")
	}
	for i, c := range []struct {
		name string
		text []byte
		kept bool
	}{
		{"nothing", nil, false},
		{"no database", bytes.Repeat([]byte("x"), 5000), false},
		{"the beginning of one", good[:3000], false},
		{"another byte", bytes.Replace(good, []byte("Bridge"), []byte("Brigde"), 1), false},
		// ovsdb-server ignores a transaction that a crash has cut.
		{"half a transaction at the end", nil, true},
	} {
		command(t, "ovs-vsctl", "--no-wait", "--timeout=10", "--db=unix:"+d.DBSocket(), "--may-exist", "add-br", "br0")
		if err := d.db.kill(); err != nil {
			t.Fatal(err)
		}
		text := c.text
		if c.kept {
			now, err := os.ReadFile(d.database())
			if err != nil {
				t.Fatal(err)
			}
			text = append(now, "OVSDB JSON 200 0123\n{"...)
		}
		if err := os.WriteFile(d.database(), text, 0o600); err != nil {
			t.Fatal(err)
		}
		log.text.Reset()
		if err := k.openDB(t.Context()); err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if said := strings.Contains(log.String(), "DATABASE REPLACED"); said == c.kept || (list() == "br0\n") != c.kept {
			t.Errorf("%s: bridges %q, log %s", c.name, list(), log.String())
		}
		if c.kept {
			continue
		}
		path := d.database() + ".unreadable"
		if i > 0 {
			path += ".last"
		}
		if aside, err := os.ReadFile(path); err != nil || !bytes.Equal(aside, text) {
			t.Errorf("%s: the old database is not kept: %d bytes, error %v", c.name, len(aside), err)
		}
	}
	if err := d.db.stop(); err != nil {
		t.Fatal(err)
	}
	// A tool that fails for another reason says nothing about the database.
	for _, tool := range []struct{ name, script string }{
		{"none", ""},
		{"of a broken image", "exit 127"},
		{"killed", "kill -9 $$"},
		{"without descriptors", "echo 'ovsdb-tool: failed to create pipe (Too many open files)' >&2; exit 1"},
		{"without permission", "echo \"ovsdb-tool: I/O error: $2: open failed (Permission denied)\" >&2; exit 1"},
		{"on a broken disk", "echo \"ovsdb-tool: I/O error: $2: error reading 10 bytes starting at offset 0 (Input/output error)\" >&2; exit 1"},
	} {
		t.Run("tool "+tool.name, func(t *testing.T) {
			dir := t.TempDir()
			if tool.script != "" {
				if err := os.WriteFile(filepath.Join(dir, "ovsdb-tool"), []byte("#!/bin/sh\n"+tool.script+"\n"), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			t.Setenv("PATH", dir)
			if err := d.createDB(t.Context()); err == nil || d.unreadable != nil {
				t.Errorf("error %v, replaced %v", err, d.unreadable)
			}
		})
	}
	if err := k.openDB(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestDamagedEndAndAnotherSchema has a database of an earlier version of Open vSwitch that
// a crash has cut: ovsdb-tool does not convert it.
func TestDamagedEndAndAnotherSchema(t *testing.T) {
	if err := Available(); err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	d := &Daemons{opts: Options{Dir: filepath.Join(dir, "run"), DatabaseDir: dir, Schema: filepath.Join(dir, "schema")}}
	schema, err := os.ReadFile(Schema)
	if err != nil {
		t.Fatal(err)
	}
	version := regexp.MustCompile(`"version": "[0-9.]+"`)
	write := func(path string, text []byte) {
		t.Helper()
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(d.opts.Schema, version.ReplaceAll(schema, []byte(`"version": "1.0.0"`)))
	if err := d.createDB(t.Context()); err != nil {
		t.Fatal(err)
	}
	old, err := os.ReadFile(d.database())
	if err != nil {
		t.Fatal(err)
	}
	write(d.database(), append(old, "OVSDB JSON 200 0123\n{"...))
	write(d.opts.Schema, schema)
	if err := d.createDB(t.Context()); err != nil || d.unreadable == nil {
		t.Errorf("error %v, replaced %v", err, d.unreadable)
	}
	if out := command(t, "ovsdb-tool", "needs-conversion", d.database(), Schema); out != "no\n" {
		t.Errorf("the new database needs conversion: %s", out)
	}
}
