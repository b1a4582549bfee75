// Package rootsocket listens on unix sockets that only root may use. One process at a
// time owns a socket.
//
// It knows no protocol. It is tested on real sockets.
package rootsocket

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
)

// Socket is the listening unix socket and the lock that makes it ours.
type Socket struct {
	*net.UnixListener
	lock *os.File
}

// Listen makes the socket. The lock, not the socket file, shows whether an agent
// lives: the kernel drops the lock when the process ends in any way. So the files of a
// dead agent are replaced, and of two agents that start at the same moment one is
// refused.
func Listen(path string) (*Socket, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("create directory: %w", err)
	}
	lock, err := acquire(path + ".lock")
	if err != nil {
		return nil, err
	}
	listener, err := bind(path)
	if err != nil {
		lock.Close()
		return nil, err
	}
	return &Socket{UnixListener: listener, lock: lock}, nil
}

// Close closes the socket, removes its file and lets the lock go. The lock's
// file stays: removing it would let two agents hold locks of that name.
func (s *Socket) Close() error {
	return errors.Join(s.UnixListener.Close(), s.lock.Close())
}

func bind(path string) (*net.UnixListener, error) {
	if err := removeStale(path); err != nil {
		return nil, err
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	// Between bind and chmod the umask decides the mode, should the directory
	// be open to others; the check of the caller's uid covers that moment.
	if err := os.Chmod(path, 0o600); err != nil {
		listener.Close()
		return nil, fmt.Errorf("restrict mode: %w", err)
	}
	return listener, nil
}

// removeStale removes a socket without a listener.
func removeStale(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("inspect: %w", err)
	}
	if info.Mode().Type() != fs.ModeSocket {
		return errors.New("the path exists and is not a socket")
	}
	conn, err := net.Dial("unix", path)
	if err == nil {
		conn.Close()
		return errors.New("another process is listening on it")
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("probe existing socket: %w", err)
	}
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("remove stale socket: %w", err)
	}
	return nil
}

// peerUID returns the uid of the process at the other end of a connection.
func peerUID(conn net.Conn) (uint32, error) {
	unixConn, ok := conn.(*net.UnixConn)
	if !ok {
		return 0, fmt.Errorf("peer of %T is not known", conn)
	}
	raw, err := unixConn.SyscallConn()
	if err != nil {
		return 0, err
	}
	_, uid, err := credentials(raw)
	return uid, err
}

// RootOnly returns a listener that closes connections of all users but root.
func RootOnly(l net.Listener) net.Listener { return rootOnly{l} }

type rootOnly struct{ net.Listener }

// Accept waits for a connection of root.
func (l rootOnly) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if uid, err := peerUID(conn); err == nil && uid == 0 {
			return conn, nil
		}
		conn.Close()
	}
}
