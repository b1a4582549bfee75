package bench

import (
	"fmt"
	"time"

	"github.com/felixlike/felixlike/internal/namespace"
	"github.com/felixlike/felixlike/test/bench/worker"
	"github.com/felixlike/felixlike/test/measure"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// machineUsage is the use of the machine up to a moment.
type machineUsage struct {
	measure.CPUUsage
	// inSwitch is the CPU time of ovs-vswitchd, inTraffic that of this process.
	inSwitch, inTraffic time.Duration
	// packets counts those that an interface has sent and received.
	packets uint64
}

// usageNow reads all of it. The interface is that of the pod in the namespace.
func usageNow(ns *namespace.Namespace, vswitchd int) (machineUsage, error) {
	cpus, err := measure.CPUNow()
	u := machineUsage{CPUUsage: cpus}
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

// since adds the use since then to a sample.
func (u machineUsage) since(then machineUsage, s *sample) {
	s.inSwitch = u.inSwitch - then.inSwitch
	s.cpu = u.Worked(then.CPUUsage, s.inSwitch+u.inTraffic-then.inTraffic)
	s.packets = u.packets - then.packets
}
