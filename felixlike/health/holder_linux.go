package health

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// tcpListen is the state of a socket that listens, as the kernel numbers it.
const tcpListen = 10

// holder returns the process that listens on the port of an address, or "". In a
// container the agent does not see the node's processes: then it returns the user.
func holder(address string) string {
	_, text, err := net.SplitHostPort(address)
	if err != nil {
		return ""
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return ""
	}
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		sockets, err := netlink.SocketDiagTCP(family)
		if err != nil {
			continue // the caller reports its own error
		}
		for _, s := range sockets {
			if s.State == tcpListen && uint64(s.ID.SourcePort) == port {
				return ownerOf(s.INode, s.UID)
			}
		}
	}
	return ""
}

// ownerOf names the process that has a socket open.
func ownerOf(inode, uid uint32) string {
	target := fmt.Sprintf("socket:[%d]", inode)
	descriptors, _ := filepath.Glob("/proc/[0-9]*/fd/*") // the pattern is well-formed
	for _, path := range descriptors {
		if to, err := os.Readlink(path); err != nil || to != target {
			continue
		}
		pid := strings.Split(path, "/")[2]
		name, err := os.ReadFile(filepath.Join("/proc", pid, "comm"))
		if err != nil {
			break // it has ended
		}
		return fmt.Sprintf("process %s (%s) of user %d", pid, strings.TrimSpace(string(name)), uid)
	}
	return fmt.Sprintf("a process of user %d that the agent cannot see", uid)
}
