package ovsdaemon

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/internal/backoff"
)

const (
	// askEvery is the time between two questions of a watchdog, and the time that a daemon
	// has for the answer. Daemons that work answer within milliseconds.
	askEvery = time.Second
	// hangsAfter is the time without an answer after which a daemon hangs, if all its
	// threads sleep.
	hangsAfter = 10 * time.Second
	// spinsAfter is the time without an answer after which a daemon hangs, if its main
	// thread sleeps while others work, or if the main thread has used that much CPU time.
	spinsAfter = time.Minute
	// hangMax bounds both times. They double while the daemon hangs again within soonAfter
	// of its start: a restart does not help then, and costs more than it gives.
	hangMax   = 5 * time.Minute
	soonAfter = 10 * time.Minute
)

// watchdog kills a daemon that hangs, so that it is restarted. A daemon that does not
// answer because it lacks a processor, or waits for the disk, does not hang: a restart
// would cost more of both.
type watchdog struct {
	process *process
	// socket takes questions in JSON-RPC 1.0 (RFC 7047, ovs-appctl(8)); method is one that
	// every daemon answers.
	socket, method string
	patience       patience
	log            *slog.Logger
}

// patience is the time that a daemon may be without an answer: hangsAfter and spinsAfter,
// or more after earlier hangs.
type patience struct{ asleep, busy time.Duration }

func newPatience(hangs int) patience {
	return patience{asleep: backoff.After(hangs+1, hangsAfter, hangMax), busy: backoff.After(hangs+1, spinsAfter, hangMax)}
}

// watch asks until the process ends.
func (w watchdog) watch() {
	var s silence
	tick := time.NewTicker(askEvery)
	defer tick.Stop()
	for {
		select {
		case <-w.process.ended:
			return
		case <-tick.C:
		}
		asked := time.Now()
		err := w.ask()
		if err == nil {
			s = silence{}
			continue
		}
		now, readErr := readActivity(w.process.pid())
		if readErr != nil || time.Since(asked) > 3*askEvery {
			continue // the daemon has just ended, or this process was held up itself
		}
		s.add(now)
		why := s.hangs(w.patience)
		switch {
		case why != "":
			w.log.Error("daemon hangs: it is killed and started again", "daemon", w.process.name, "reason", why, "error", err)
			w.process.hung.Store(true)
			_ = w.process.cmd.Process.Kill() // fails only if it has ended
			return
		case s.lasted() > w.patience.asleep && !s.warned:
			s.warned = true
			w.log.Warn("daemon does not answer, but its threads run, lack a processor or wait for the disk: it is not restarted yet", "daemon", w.process.name, "since", s.lasted())
		}
	}
}

// ask asks a question and waits for the answer.
func (w watchdog) ask() error {
	conn, err := net.DialTimeout("unix", w.socket, askEvery)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(askEvery)); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(conn, `{"id":0,"method":%q,"params":[]}`, w.method); err != nil {
		return err
	}
	var answer json.RawMessage
	return json.NewDecoder(conn).Decode(&answer)
}

// activity is what the threads of a daemon do at a moment.
type activity struct {
	// main and others report that the main thread, or another one, neither sleeps nor is
	// stopped by a signal: it runs, waits for a processor or for the disk, or a debugger
	// holds it. disk reports that a thread waits for the disk.
	main, others, disk bool
	// used is the CPU time of the main thread. delayed is the time that all threads have
	// waited for a processor.
	used, delayed time.Duration
}

// silence is a time in which a daemon has not answered.
type silence struct {
	// looks counts the questions without an answer. Two of them are at least askEvery apart.
	looks int
	// before is the activity at the first look. used and delayed are the times since then.
	before        activity
	used, delayed time.Duration
	// main, others and disk report what was seen at any look.
	main, others, disk, warned bool
}

func (s *silence) add(a activity) {
	if s.looks == 0 {
		s.before = a
	}
	s.looks++
	s.used, s.delayed = a.used-s.before.used, a.delayed-s.before.delayed
	s.main, s.others, s.disk = s.main || a.main, s.others || a.others, s.disk || a.disk
}

// lasted returns the time without an answer, at least.
func (s *silence) lasted() time.Duration { return time.Duration(max(s.looks-1, 0)) * askEvery }

// hangs returns why the daemon hangs, or "".
func (s *silence) hangs(p patience) string {
	lasted := s.lasted()
	switch {
	case !s.main && !s.others && lasted >= p.asleep:
		return fmt.Sprintf("no answer for %s, and all its threads sleep", lasted)
	case !s.main && !s.disk && s.delayed < lasted/10 && lasted >= p.busy:
		return fmt.Sprintf("no answer for %s, and its main thread sleeps", lasted)
	case s.used >= p.busy:
		return fmt.Sprintf("no answer for %s, in which its main thread used %s of CPU time", lasted, s.used.Round(time.Second))
	}
	return ""
}

// userHZ is the unit of CPU times in /proc (proc(5)), the same in all of Linux.
const userHZ = 100

// readActivity reads the states of all threads (proc_pid_stat(5)).
func readActivity(pid int) (activity, error) {
	var a activity
	paths, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil || len(paths) == 0 {
		return a, errors.Join(err, fs.ErrNotExist)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
			continue // the thread has ended
		}
		if err != nil {
			return a, err
		}
		// The name in parentheses may contain anything.
		fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
		const state, utime, stime = 0, 11, 12
		if len(fields) <= stime {
			return a, fmt.Errorf("%s: %q", path, text)
		}
		active := fields[state] != "S" && fields[state] != "T"
		a.disk = a.disk || fields[state] == "D"
		delayed, err := readDelay(filepath.Dir(path))
		if err != nil {
			return a, err
		}
		a.delayed += delayed
		if filepath.Base(filepath.Dir(path)) != strconv.Itoa(pid) {
			a.others = a.others || active
			continue
		}
		a.main = active
		for _, i := range []int{utime, stime} {
			n, err := strconv.ParseInt(fields[i], 10, 64)
			if err != nil {
				return a, fmt.Errorf("%s: %w", path, err)
			}
			a.used += time.Duration(n) * (time.Second / userHZ)
		}
	}
	return a, nil
}

// readDelay returns the time that a thread has waited for a processor: the second number
// of its schedstat (Documentation/scheduler/sched-stats.rst), in nanoseconds.
func readDelay(thread string) (time.Duration, error) {
	text, err := os.ReadFile(thread + "/schedstat")
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return 0, nil // the thread has ended
	}
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(text))
	if len(fields) < 2 {
		return 0, fmt.Errorf("%s/schedstat: %q", thread, text)
	}
	n, err := strconv.ParseInt(fields[1], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s/schedstat: %w", thread, err)
	}
	return time.Duration(n), nil
}
