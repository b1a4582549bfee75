package vswitchd

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// receiveBuffer is how much each packet socket of the userspace datapath may hold:
// some 5,000 small packets, which is what 1,000 new connections a second send in
// one. The kernel's default (net.core.rmem_default) holds 280 of them, and
// ovs-vswitchd, whose main thread also computes flows and reads OpenFlow, leaves
// them there for longer than that takes.
const receiveBuffer = 4 << 20

// WidenBuffers gives the packet sockets, by which the userspace datapath receives,
// a buffer that holds a burst. It returns how many it has widened: new ports have
// new sockets. No setting of ovs-vswitchd does this, and net.core.rmem_default is
// the whole machine's, so the sockets are taken from the process for a moment. That
// needs its process id and the right to trace it.
func (c *Client) WidenBuffers() (widened int, err error) {
	if c.datapathType != userspace {
		return 0, nil
	}
	pid, err := c.pid()
	if err != nil {
		return 0, err
	}
	// In another container the daemon has another process id than it says.
	dir := fmt.Sprintf("/proc/%d", pid)
	if name, err := os.ReadFile(dir + "/comm"); err != nil || strings.TrimSpace(string(name)) != "ovs-vswitchd" {
		return 0, fmt.Errorf("ovs-vswitchd: receive buffers: process %d is not it: not in this container's process namespace", pid)
	}
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
	// The kernel doubles what it is given (socket(7)).
	return true, unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, receiveBuffer/2)
}
