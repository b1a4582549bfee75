package control

import (
	"context"
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// PID returns the number that the agent has among the caller's processes, which is
// another one than in its status where the agent is in a container.
func (c *Client) PID(ctx context.Context) (int, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", c.path)
	if err != nil {
		return 0, fmt.Errorf("agent at %s: %w", c.path, err)
	}
	defer conn.Close()
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return 0, fmt.Errorf("agent at %s: %w", c.path, err)
	}
	var cred *unix.Ucred
	var failed error
	err = raw.Control(func(fd uintptr) { cred, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err == nil {
		err = failed
	}
	if err != nil {
		return 0, fmt.Errorf("agent at %s: whose is it: %w", c.path, err)
	}
	return int(cred.Pid), nil
}
