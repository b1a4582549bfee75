package measure

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// ProcessUsage is the resource use of another process.
type ProcessUsage struct {
	// CPU includes the programs that it has started and waited for.
	CPU       time.Duration
	RSS, Peak uint64
}

// ProcessUsageOf reads it (proc(5)): fields 14 to 17 of stat, in hundredths of a second,
// and the kilobytes of status.
func ProcessUsageOf(pid int) (ProcessUsage, error) {
	var u ProcessUsage
	path := fmt.Sprintf("/proc/%d/", pid)
	text, err := os.ReadFile(path + "stat")
	if err != nil {
		return u, err
	}
	// The name in brackets may hold anything.
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 15 {
		return u, fmt.Errorf("%sstat: %q", path, text)
	}
	for _, f := range fields[11:15] {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return u, fmt.Errorf("%sstat: %w", path, err)
		}
		u.CPU += time.Duration(n) * (time.Second / userHZ)
	}
	for name, into := range map[string]*uint64{"VmRSS": &u.RSS, "VmHWM": &u.Peak} {
		value := strings.TrimSuffix(field(path+"status", name), " kB")
		n, err := strconv.ParseUint(value, 10, 64)
		if err != nil {
			return u, fmt.Errorf("%sstatus: %s: %w", path, name, err)
		}
		*into = n * 1024
	}
	return u, nil
}
