package ovsdaemon

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
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
		{"waits for a processor", 1000, func(second int) activity {
			return activity{main: true, used: time.Duration(second) * 20 * time.Millisecond}
		}, ""},
		{"spins", 61, func(second int) activity {
			return activity{main: true, used: time.Hour + time.Duration(second)*time.Second}
		}, "used 1m0s of CPU time"},
	} {
		var s silence
		began := time.Now()
		for second := range c.looks {
			if why := s.hangs(); why != "" {
				t.Errorf("%s: hangs after %d looks: %s", c.name, second, why)
			}
			s.add(began.Add(time.Duration(second)*time.Second), c.of(second))
		}
		if got := s.hangs(); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
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

func within(t *testing.T, limit time.Duration, what string, log *logBuffer, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(limit); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain: %s\n%s", what, log)
		}
	}
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
	within(t, time.Minute, "both daemons are killed", log, func() bool { return strings.Count(log.String(), "daemon hangs") == 2 })
	within(t, time.Minute, "both daemons run again", log, func() bool { return strings.Count(log.String(), "daemon runs") == 2 })
	for _, d := range []*kept{k.db, k.vs} {
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
	for _, c := range []struct {
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
		if aside, err := os.ReadFile(d.database() + ".unreadable"); err != nil || !bytes.Equal(aside, text) {
			t.Errorf("%s: the old database is not kept: %d bytes, error %v", c.name, len(aside), err)
		}
	}
	if err := d.db.stop(); err != nil {
		t.Fatal(err)
	}
	// A missing program says nothing about the database.
	t.Run("no ovsdb-tool", func(t *testing.T) {
		t.Setenv("PATH", t.TempDir())
		if err := d.createDB(t.Context()); err == nil || d.unreadable != nil {
			t.Errorf("error %v, replaced %v", err, d.unreadable)
		}
	})
	if err := k.openDB(t.Context()); err != nil {
		t.Fatal(err)
	}
}
