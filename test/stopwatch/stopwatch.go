// Package stopwatch times what a test does on a machine that others use too. It leaves
// out the time for which the machine kept processes from running, so that a bound that
// the product promises also holds on a busy machine. On an idle one it is strict, but for
// CPU time: processes of the product that wait for each other's processors count as
// waiting too. Benchmarks find a rise of CPU time.
package stopwatch

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// tick is the sleep of the goroutine that notices late wake-ups. A wake-up
// that is late by less than tolerated does not count: an idle machine has such too.
const (
	tick      = 2 * time.Millisecond
	tolerated = 3 * time.Millisecond
)

// Watch is a running stopwatch.
type Watch struct {
	began          time.Time
	waited, stolen time.Duration

	mu     sync.Mutex
	asleep time.Time     // when the goroutine that notices late wake-ups last went to sleep
	late   time.Duration // the sum of its late wake-ups before that
}

// Start starts a stopwatch. It runs until the test ends.
func Start(t testing.TB) *Watch {
	t.Helper()
	w := &Watch{}
	ctx := t.Context()
	var err error
	if w.waited, w.stolen, err = lost(); err != nil {
		t.Fatal(err)
	}
	w.began = time.Now()
	w.asleep = w.began
	go func() {
		for ctx.Err() == nil {
			time.Sleep(tick)
			w.mu.Lock()
			w.late = w.lateUntil(time.Now())
			w.asleep = time.Now()
			w.mu.Unlock()
		}
	}()
	return w
}

// lateUntil returns the sum of the late wake-ups, with one that is overdue now. w.mu is held.
func (w *Watch) lateUntil(now time.Time) time.Duration {
	if late := now.Sub(w.asleep) - tick; late > tolerated {
		return w.late + late
	}
	return w.late
}

// Lap is a measured time.
type Lap struct {
	// Took is by the clock. Lost is the part of it for which the machine kept processes
	// from running: they waited for a processor, or the host ran another guest on it. It is
	// at least the time by which the stopwatch itself woke up late.
	Took, Lost time.Duration
}

// Lap returns the time since the start.
func (w *Watch) Lap(t testing.TB) Lap {
	t.Helper()
	took := time.Since(w.began)
	waited, stolen, err := lost()
	if err != nil {
		t.Fatal(err)
	}
	w.mu.Lock()
	late := w.lateUntil(time.Now())
	w.mu.Unlock()
	return Lap{Took: took, Lost: min(took, max(waited-w.waited+stolen-w.stolen, late))}
}

// Net is the time without what was lost.
func (l Lap) Net() time.Duration { return l.Took - l.Lost }

func (l Lap) String() string {
	return fmt.Sprintf("%s (of these %s without a processor)", l.Took.Round(10*time.Microsecond), l.Lost.Round(10*time.Microsecond))
}

// lost returns for how long processes have waited for a processor (time with several
// waiting counts once), and for how long the host has run other guests on one of ours,
// since the machine started.
func lost() (waited, stolen time.Duration, err error) {
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, 0, err
	}
	if stolen, err = parseStolen(string(stat)); err != nil {
		return 0, 0, err
	}
	pressure, err := os.ReadFile("/proc/pressure/cpu")
	if err != nil {
		return 0, stolen, nil // a kernel without this: late wake-ups and stolen time remain
	}
	waited, err = parseWaited(string(pressure))
	return waited, stolen, err
}

// parseWaited reads /proc/pressure/cpu: "some avg10=... total=MICROSECONDS".
func parseWaited(text string) (time.Duration, error) {
	line, _, _ := strings.Cut(text, "\n")
	_, total, found := strings.Cut(line, " total=")
	n, err := strconv.ParseInt(total, 10, 64)
	if !found || err != nil {
		return 0, fmt.Errorf("/proc/pressure/cpu: %q", text)
	}
	return time.Duration(n) * time.Microsecond, nil
}

// parseStolen reads the stolen time of all processors from /proc/stat (proc(5)), in
// hundredths of a second.
func parseStolen(text string) (time.Duration, error) {
	line, _, _ := strings.Cut(text, "\n")
	fields := strings.Fields(line)
	if len(fields) < 9 || fields[0] != "cpu" {
		return 0, fmt.Errorf("/proc/stat: %q", line)
	}
	n, err := strconv.ParseInt(fields[8], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("/proc/stat: %w", err)
	}
	return time.Duration(n) * (time.Second / 100), nil
}
