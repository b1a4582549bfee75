package measure

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// CPUUsage is the CPU time of the machine up to the moment At.
type CPUUsage struct {
	At time.Time
	// CPUs is the number of processors, idle their idle time,
	// added up; the time of other guests of the host counts as idle.
	CPUs int
	idle time.Duration
}

// CPUNow reads the current CPUUsage.
func CPUNow() (CPUUsage, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return CPUUsage{}, err
	}
	u, err := parseStat(string(text))
	u.At = time.Now()
	return u, err
}

// userHZ is the unit of /proc/stat, the same in all of Linux (proc(5)).
const userHZ = 100

// parseStat reads the processors and their idle time from the text of /proc/stat
// (proc(5)). Idle time is better than the times of work: the kernel measures when a
// processor goes to sleep and wakes up, but only samples its work.
func parseStat(text string) (CPUUsage, error) {
	var u CPUUsage
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) < 9 || !strings.HasPrefix(fields[0], "cpu") {
			continue
		}
		if fields[0] != "cpu" {
			u.CPUs++
			continue
		}
		// idle, iowait, steal
		for _, i := range []int{4, 5, 8} {
			n, err := strconv.ParseInt(fields[i], 10, 64)
			if err != nil {
				return u, fmt.Errorf("/proc/stat: %w", err)
			}
			u.idle += time.Duration(n) * (time.Second / userHZ)
		}
	}
	if u.CPUs == 0 {
		return u, fmt.Errorf("/proc/stat has no processor: %.80q", text)
	}
	return u, nil
}

// Worked returns the processors' working time since then, added up. It is not
// less than known, the CPU time of the processes that the caller measured itself.
//
// The difference of idle times can be too small for two reasons. The clock of idle
// time ticks in hundredths of a second. And on a virtual machine, idle and stolen
// time overlap: a processor that wakes up and has to wait for the host counts as
// both, so that a second can have more than a second of them.
func (u CPUUsage) Worked(then CPUUsage, known time.Duration) time.Duration {
	return max(known, time.Duration(u.CPUs)*u.At.Sub(then.At)-(u.idle-then.idle))
}
