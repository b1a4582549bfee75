package vswitchd

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// receiveBuffer is the receive buffer of each packet socket of the userspace datapath,
// in bytes. It holds some 5,000 small packets: one second of 1,000 new connections a
// second. The kernel's default (net.core.rmem_default) holds 280. It overflows when
// ovs-vswitchd's main thread computes flows or reads OpenFlow instead of packets.
const receiveBuffer = 4 << 20

// WidenBuffers gives the packet sockets of the userspace datapath a receive buffer for
// bursts, and returns how many it changed. Call it again for new ports: they have new
// sockets. ovs-vswitchd has no setting for this, and net.core.rmem_default is for the
// whole machine. So WidenBuffers duplicates the sockets by pidfd_getfd(2), which needs
// the daemon's process id and the right to trace it.
func (c *Client) WidenBuffers() (widened int, err error) {
	if c.datapathType != userspace {
		return 0, nil
	}
	pid, err := c.process()
	if err != nil {
		return 0, fmt.Errorf("receive buffers: %w", err)
	}
	dir := fmt.Sprintf("/proc/%d", pid)
	process, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return 0, fmt.Errorf("ovs-vswitchd: receive buffers: open process %d: %w", pid, err)
	}
	defer unix.Close(process)
	files, err := os.ReadDir(dir + "/fd")
	if err != nil {
		return 0, fmt.Errorf("ovs-vswitchd: receive buffers: %w", err)
	}
	for _, f := range files {
		number, err := strconv.Atoi(f.Name())
		if target, unread := os.Readlink(dir + "/fd/" + f.Name()); err != nil || unread != nil || !strings.HasPrefix(target, "socket:") {
			continue
		}
		done, err := widen(process, number)
		if err != nil {
			return widened, fmt.Errorf("ovs-vswitchd: receive buffer of socket %d: %w", number, err)
		}
		if done {
			widened++
		}
	}
	return widened, nil
}

// process returns the daemon's process id. It fails if the daemon is in another process
// namespace, where the id means another process or none.
func (c *Client) process() (int, error) {
	pid, err := c.pid()
	if err != nil {
		return 0, err
	}
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	if errors.Is(err, os.ErrNotExist) {
		return 0, fmt.Errorf("ovs-vswitchd: no process %d in this process namespace: %w", pid, ErrNotRunning)
	}
	if err != nil || strings.TrimSpace(string(name)) != "ovs-vswitchd" {
		return 0, fmt.Errorf("ovs-vswitchd: process %d is another one: the daemon is in another process namespace", pid)
	}
	return pid, nil
}

// packetNice is the nice value that distributions start ovs-vswitchd with (ovs-ctl(8)).
const packetNice = -10

// PreferPackets gives ovs-vswitchd's main thread, which moves the packets of the
// userspace datapath, priority over other threads. Among these are the revalidators:
// after every change and every learned flow they check all cached flows, and would take
// half of the processors in a burst.
//
// If the kernel groups processes by session (sched(7), autogroup), a thread's nice value
// counts within its session alone, and the daemon has its own. Then the session gets the
// priority too. In a container the cgroup's CPU weight takes the session's place.
func (c *Client) PreferPackets() error {
	if c.datapathType != userspace {
		return nil
	}
	pid, err := c.process()
	if err == nil {
		err = unix.Setpriority(unix.PRIO_PROCESS, pid, packetNice)
	}
	if err == nil {
		err = preferSession(pid)
	}
	if err != nil {
		return fmt.Errorf("priority of packets: %w", err)
	}
	return nil
}

// preferSession gives a process's session priority over others, if the kernel groups
// processes by session and the session is the process's own.
func preferSession(pid int) error {
	if session, err := unix.Getsid(pid); err != nil || session != pid {
		return err
	}
	path, nice := fmt.Sprintf("/proc/%d/autogroup", pid), strconv.Itoa(packetNice)
	have, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) || strings.HasSuffix(strings.TrimSpace(string(have)), " nice "+nice) {
		return nil // no CONFIG_SCHED_AUTOGROUP, or done
	}
	if err == nil {
		err = os.WriteFile(path, []byte(nice), 0)
	}
	if errors.Is(err, unix.EAGAIN) {
		return nil // without CAP_SYS_ADMIN the kernel accepts ten writes a second; the next call tries again
	}
	return err
}

// widen widens a socket of a process, and reports whether it did: it is a packet
// socket with a smaller buffer.
func widen(process, number int) (bool, error) {
	fd, err := unix.PidfdGetfd(process, number, 0)
	if errors.Is(err, unix.EBADF) {
		return false, nil // closed meanwhile
	}
	if err != nil {
		return false, err
	}
	defer unix.Close(fd)
	domain, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	if err != nil || domain != unix.AF_PACKET {
		return false, err
	}
	have, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF)
	if err != nil || have >= receiveBuffer {
		return false, err
	}
	// The kernel doubles the value (socket(7)).
	return true, unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, receiveBuffer/2)
}
