package rootsocket

import (
	"context"
	"fmt"
	"net"
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
	pid, _, err := credentials(raw)
	if err != nil {
		return 0, fmt.Errorf("find the process behind the socket: %w", err)
	}
	return pid, nil
}
