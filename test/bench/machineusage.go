package bench

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/internal/namespace"
	"github.com/felixlike/felixlike/test/bench/worker"
)

// machineUsage is what has been used up to a moment.
type machineUsage struct {
	at time.Time
	// cpus is how many processors there are, idle how long they had nothing to do,
	// all together; time that other guests of the host had counts as idle.
	cpus int
	idle time.Duration
	// inSwitch is the CPU time of ovs-vswitchd, inTraffic that of this process.
	inSwitch, inTraffic time.Duration
	// packets is what an interface has sent and received.
	packets uint64
}

// machineNow reads the part of it that is the machine's.
func machineNow() (machineUsage, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return machineUsage{}, err
	}
	u, err := parseStat(string(text))
	u.at = time.Now()
	return u, err
}

// usageNow reads all of it. The interface is that of the pod in the namespace.
func usageNow(ns *namespace.Namespace, vswitchd int) (machineUsage, error) {
	u, err := machineNow()
	if err != nil {
		return u, err
	}
	inSwitch, err := worker.Switch{PID: vswitchd}.CPU()
	if err != nil {
		return u, err
	}
	u.inSwitch = inSwitch.Switch
	var self unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &self); err != nil {
		return u, fmt.Errorf("usage of this process: %w", err)
	}
	u.inTraffic = time.Duration(self.Utime.Nano() + self.Stime.Nano())
	err = ns.Do(func() error {
		link, err := netlink.LinkByName(podInterface)
		if err != nil {
			return fmt.Errorf("interface %s: %w", podInterface, err)
		}
		if s := link.Attrs().Statistics; s != nil {
			u.packets = s.RxPackets + s.TxPackets
		}
		return nil
	})
	return u, err
}

// userHZ is the unit of /proc/stat, the same in all of Linux (proc(5)).
const userHZ = 100

// parseStat reads the processors and their idle time from the text of /proc/stat
// (proc(5)). The idle time is used rather than the times of work, since the kernel
// notes when a processor goes to sleep and wakes up, but takes samples of what
// it works for.
func parseStat(text string) (machineUsage, error) {
	var u machineUsage
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) < 9 || !strings.HasPrefix(fields[0], "cpu") {
			continue
		}
		if fields[0] != "cpu" {
			u.cpus++
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
	if u.cpus == 0 {
		return u, fmt.Errorf("/proc/stat tells of no processor: %.80q", text)
	}
	return u, nil
}

// worked returns how long the processors have worked since then, all together.
func (u machineUsage) worked(then machineUsage) time.Duration {
	// The clock of idle time ticks in hundredths of a second: it may be ahead.
	return max(0, time.Duration(u.cpus)*u.at.Sub(then.at)-(u.idle-then.idle))
}

// since adds to a sample what was used from then until now.
func (u machineUsage) since(then machineUsage, s *sample) {
	s.cpu = u.worked(then)
	s.inSwitch, s.inTraffic = u.inSwitch-then.inSwitch, u.inTraffic-then.inTraffic
	s.packets = u.packets - then.packets
}
