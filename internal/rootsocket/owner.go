package rootsocket

import (
	"context"
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// Owner returns the process that listens on a unix socket, by the number that it
// has among the caller's processes: it knows itself by another one where it is in
// a container.
func Owner(ctx context.Context, path string) (int, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", path)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *unix.Ucred
	var failed error
	err = raw.Control(func(fd uintptr) { cred, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err == nil {
		err = failed
	}
	if err != nil {
		return 0, fmt.Errorf("find the process behind the socket: %w", err)
	}
	return int(cred.Pid), nil
}
