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
)

const (
	// askEvery is the time between two questions of a watchdog, and the time that a daemon
	// has for the answer. Daemons that work answer within milliseconds.
	askEvery = time.Second
	// hangsAfter is the time without an answer after which a daemon hangs, if all its
	// threads sleep.
	hangsAfter = 10 * time.Second
	// spinsAfter is the time without an answer after which a daemon hangs, if its main
	// thread sleeps, or if the main thread has used that much CPU time.
	spinsAfter = time.Minute
)

// watchdog kills a daemon that hangs, so that it is restarted. A daemon that does not
// answer because it lacks a processor, or waits for the disk, does not hang: a restart
// would cost more of both.
type watchdog struct {
	process *process
	// socket takes questions in JSON-RPC 1.0 (RFC 7047, ovs-appctl(8)); method is one that
	// every daemon answers.
	socket, method string
	log            *slog.Logger
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
		err := w.ask()
		if err == nil {
			s = silence{}
			continue
		}
		now, readErr := readActivity(w.process.pid())
		if readErr != nil {
			continue // it has just ended
		}
		s.add(time.Now(), now)
		why := s.hangs()
		switch {
		case why != "":
			w.log.Error("daemon hangs: it is killed and started again", "daemon", w.process.name, "reason", why, "error", err)
			_ = w.process.cmd.Process.Kill() // fails only if it has ended
			return
		case s.lasted() > hangsAfter && !s.warned:
			s.warned = true
			w.log.Warn("daemon does not answer, but lacks a processor or waits for the disk: it is not restarted", "daemon", w.process.name, "since", s.lasted().Round(time.Second))
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
	// holds it.
	main, others bool
	// used is the CPU time of the main thread.
	used time.Duration
}

// silence is a time in which a daemon has not answered.
type silence struct {
	began, last time.Time
	// used is the CPU time of the main thread when the silence began, and since then.
	usedBefore, used time.Duration
	// main and others report that the threads were active at any look.
	main, others, warned bool
}

func (s *silence) add(at time.Time, a activity) {
	if s.began.IsZero() {
		s.began, s.usedBefore = at, a.used
	}
	s.last, s.used = at, a.used-s.usedBefore
	s.main, s.others = s.main || a.main, s.others || a.others
}

func (s *silence) lasted() time.Duration { return s.last.Sub(s.began) }

// hangs returns why the daemon hangs, or "".
func (s *silence) hangs() string {
	lasted := s.lasted().Round(time.Second)
	switch {
	case !s.main && !s.others && s.lasted() >= hangsAfter:
		return fmt.Sprintf("no answer for %s, and all its threads sleep", lasted)
	case !s.main && s.lasted() >= spinsAfter:
		return fmt.Sprintf("no answer for %s, and its main thread sleeps", lasted)
	case s.used >= spinsAfter:
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
