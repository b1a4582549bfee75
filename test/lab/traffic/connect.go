package traffic

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/internal/namespace"
)

// Connect opens a TCP connection from a namespace, and from an address unless it is
// the zero Addr. Only the socket is made on the namespace's thread, so that a slow
// connect does not hold up others.
func Connect(from *namespace.Namespace, source netip.Addr, to netip.AddrPort, timeout time.Duration) (*os.File, error) {
	return ConnectFrom(from, netip.AddrPortFrom(source, 0), to, timeout)
}

// ConnectFrom is Connect from a port as well, unless it is 0.
func ConnectFrom(from *namespace.Namespace, source, to netip.AddrPort, timeout time.Duration) (*os.File, error) {
	return connect(from, source, to, timeout, func(int) time.Duration { return 0 })
}

// connect is ConnectFrom with a function that is asked at the end of the time with the source port, and returns how much more there is.
func connect(from *namespace.Namespace, source, to netip.AddrPort, timeout time.Duration, more func(port int) time.Duration) (*os.File, error) {
	domain := unix.AF_INET
	if to.Addr().Is6() {
		domain = unix.AF_INET6
	}
	fd := -1
	err := from.Do(func() (err error) {
		fd, err = unix.Socket(domain, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		return err
	})
	if err != nil {
		return nil, err
	}
	// Closing resets: source ports do not run out in TIME_WAIT.
	err = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
	if err == nil && source.IsValid() {
		err = unix.Bind(fd, sockaddr(source))
	}
	if err == nil {
		err = unix.Connect(fd, sockaddr(to))
	}
	if errors.Is(err, unix.EINPROGRESS) || errors.Is(err, unix.EINTR) {
		err = connected(fd, timeout)
		if errors.Is(err, unix.ETIMEDOUT) {
			if left := more(portOf(fd)); left > 0 {
				err = connected(fd, left)
			}
		}
	}
	if err != nil {
		return nil, errors.Join(unopenedBy(fd, err), unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), "tcp"), nil
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is6() {
		return &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
	}
	return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
}

// Unopened is the error of a connection that did not open.
type Unopened struct {
	Reason error
	// Port is the one it was to be opened from.
	Port int
}

// Error returns the reason and the source port.
func (e *Unopened) Error() string { return fmt.Sprintf("from port %d: %v", e.Port, e.Reason) }

// Unwrap returns the reason.
func (e *Unopened) Unwrap() error { return e.Reason }

func unopenedBy(fd int, err error) error { return &Unopened{Reason: err, Port: portOf(fd)} }

// portOf returns the port of a socket, or 0.
func portOf(fd int) int {
	switch local, _ := unix.Getsockname(fd); local := local.(type) {
	case *unix.SockaddrInet4:
		return local.Port
	case *unix.SockaddrInet6:
		return local.Port
	}
	return 0
}

// connected waits for the end of a connect in progress.
func connected(fd int, timeout time.Duration) error {
	deadline := time.Now().Add(timeout)
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}, int(max(time.Until(deadline), 0).Milliseconds()))
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return err
		case n == 0:
			return unix.ETIMEDOUT
		}
		code, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
		if err == nil && code != 0 {
			err = unix.Errno(code)
		}
		return err
	}
}

// Echo has a byte echoed.
func Echo(conn *os.File, timeout time.Duration) error {
	if err := conn.SetDeadline(time.Now().Add(timeout)); err != nil {
		return err
	}
	if _, err := conn.Write([]byte{'?'}); err != nil {
		return err
	}
	_, err := io.ReadFull(conn, make([]byte, 1))
	return err
}
