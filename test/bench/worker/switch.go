package worker

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/felixlike/felixlike/test/lab"
)

// Switch is an Open vSwitch that a backend programs.
type Switch struct {
	// Dir is its run directory, PID that of ovs-vswitchd.
	Dir string `json:"dir,omitempty"`
	PID int    `json:"pid,omitempty"`
}

// Bridge is the name of its bridge.
const Bridge = lab.Bridge

// Socket is the bridge's management socket, as ovs-ofctl takes it.
func (s Switch) Socket() string { return "unix:" + filepath.Join(s.Dir, Bridge+".mgmt") }

// CPU returns the CPU time of ovs-vswitchd, over all of its threads: its part of
// a change is part of the cost, as the kernel's work is with other backends.
// The scheduler's statistics (proc(5)) are used, since those of a process are in
// hundredths of a second; they do not separate user and system time.
func (s Switch) CPU() (CPU, error) {
	if s.PID == 0 {
		return CPU{}, nil
	}
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", s.PID))
	if err != nil {
		return CPU{}, err
	}
	if len(threads) == 0 {
		return CPU{}, fmt.Errorf("ovs-vswitchd, process %d: has ended, or the kernel keeps no statistics of its threads", s.PID)
	}
	var sum time.Duration
	for _, thread := range threads {
		text, err := os.ReadFile(thread)
		if errors.Is(err, os.ErrNotExist) {
			continue // it has ended meanwhile
		}
		if err != nil {
			return CPU{}, err
		}
		fields := strings.Fields(string(text))
		if len(fields) == 0 {
			return CPU{}, fmt.Errorf("%s: %q", thread, text)
		}
		ran, err := strconv.ParseInt(fields[0], 10, 64)
		if err != nil {
			return CPU{}, fmt.Errorf("%s: %w", thread, err)
		}
		sum += time.Duration(ran)
	}
	return CPU{User: sum, Switch: sum}, nil
}
