package health

import (
	"fmt"
	"net"
	"strconv"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/internal/sockets"
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
		all, err := netlink.SocketDiagTCP(family)
		if err != nil {
			continue // the caller reports its own error
		}
		for _, s := range all {
			if s.State == tcpListen && uint64(s.ID.SourcePort) == port {
				return ownerOf(s.INode, s.UID)
			}
		}
	}
	return ""
}

// ownerOf names the process that has a socket open.
func ownerOf(inode, uid uint32) string {
	if p, known := sockets.Processes()[inode]; known {
		return fmt.Sprintf("process %d (%s) of user %d", p.PID, p.Name, uid)
	}
	return fmt.Sprintf("a process of user %d that the agent cannot see", uid)
}
