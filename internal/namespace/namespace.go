// Package namespace owns named network namespaces (those that `ip netns`
// lists) and the threads that work in them.
//
// A Namespace owns one operating-system thread that never leaves it. Do runs work
// inside on that thread: opening sockets, netlink requests, starting
// processes, writing sysctls. A socket that was
// opened there stays in the namespace and may be used by any goroutine. The
// package never touches the namespace of other threads. It is tested on real
// namespaces.
package namespace

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

// Dir is the folder of named namespaces' mounts; iproute2 uses the same.
const Dir = "/run/netns"

// ErrClosed is returned by Do after Close.
var ErrClosed = errors.New("network namespace is closed")

// The goroutine of main keeps the main thread. Others run on threads that end with them if they have entered a
// namespace, but the main thread never ends: it would stay in that namespace, and /proc/PID/ns/net and /proc/self
// stand for the main thread.
func init() { runtime.LockOSThread() }

// Namespace is a named network namespace with a thread inside.
type Namespace struct {
	name  string
	calls chan call
	done  chan struct{}
	close sync.Once
}

type call struct {
	fn     func() error
	result chan<- error
}

// Path returns where a namespace of that name is mounted.
func Path(name string) string { return filepath.Join(Dir, name) }

// Exists reports whether a namespace of that name is mounted.
func Exists(name string) bool {
	_, err := os.Stat(Path(name))
	return err == nil
}

// Create makes a new namespace with its loopback interface down, mounts it
// under its name and starts a thread in it.
func Create(name string) (*Namespace, error) {
	if err := share(); err != nil {
		return nil, fmt.Errorf("create namespace %s: %w", name, err)
	}
	file, err := os.OpenFile(Path(name), os.O_CREATE|os.O_EXCL|os.O_RDONLY, 0o444)
	if err != nil {
		return nil, fmt.Errorf("create namespace %s: %w", name, err)
	}
	file.Close()
	n, err := start(name, func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return err
		}
		self := fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid())
		return unix.Mount(self, Path(name), "bind", unix.MS_BIND, "")
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("create namespace %s: %w", name, err), os.Remove(Path(name)))
	}
	return n, nil
}

// Anonymous makes a new namespace without a name: it ends with its thread and
// the processes in it, however this process ends.
func Anonymous() (*Namespace, error) {
	n, err := start("anonymous", func() error { return unix.Unshare(unix.CLONE_NEWNET) })
	if err != nil {
		return nil, fmt.Errorf("create anonymous namespace: %w", err)
	}
	return n, nil
}

// Open starts a thread in an existing namespace.
func Open(name string) (*Namespace, error) {
	n, err := start(name, func() error { return enter(Path(name)) })
	if err != nil {
		return nil, fmt.Errorf("open namespace %s: %w", name, err)
	}
	return n, nil
}

// At starts a thread in the namespace that a file stands for, as a process's
// /proc/PID/ns/net. Its name is the path.
func At(path string) (*Namespace, error) {
	n, err := start(path, func() error { return enter(path) })
	if err != nil {
		return nil, fmt.Errorf("open namespace %s: %w", path, err)
	}
	return n, nil
}

// Delete unmounts and removes a namespace; it is no error if there is none.
// The kernel frees it when the last process and socket in it are gone.
func Delete(name string) error {
	if err := unmount(Path(name)); err != nil {
		return fmt.Errorf("delete namespace %s: %w", name, err)
	}
	err := os.Remove(Path(name))
	if errors.Is(err, unix.EBUSY) {
		err = removeCovered(Path(name))
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("delete namespace %s: %w", name, err)
	}
	return nil
}

// unmount removes all mounts at a path.
func unmount(path string) error {
	for {
		switch err := unix.Unmount(path, unix.MNT_DETACH); {
		case errors.Is(err, unix.EINVAL) || errors.Is(err, fs.ErrNotExist):
			return nil // nothing is
		case err != nil:
			return fmt.Errorf("unmount: %w", err)
		}
	}
}

func enter(path string) error {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Setns(fd, unix.CLONE_NEWNET)
}

// In runs fn in the namespace that an open file stands for, on a thread that ends then. It is
// for one call; a Namespace keeps its thread.
func In(fd int, fn func() error) error {
	result := make(chan error, 1)
	go func() {
		// Never unlocked, as in start.
		runtime.LockOSThread()
		if err := unix.Setns(fd, unix.CLONE_NEWNET); err != nil {
			result <- fmt.Errorf("enter the network namespace: %w", err)
			return
		}
		result <- fn()
	}()
	return <-result
}

func start(name string, prepare func() error) (*Namespace, error) {
	n := &Namespace{name: name, calls: make(chan call), done: make(chan struct{})}
	ready := make(chan error, 1)
	go func() {
		// The thread is never unlocked: it has changed its namespace and must
		// end with this goroutine rather than return to the scheduler.
		runtime.LockOSThread()
		if err := prepare(); err != nil {
			ready <- err
			return
		}
		ready <- nil
		n.serve()
	}()
	if err := <-ready; err != nil {
		return nil, err
	}
	return n, nil
}

func (n *Namespace) serve() {
	for {
		select {
		case c := <-n.calls:
			c.result <- c.fn()
		case <-n.done:
			return
		}
	}
}

// Name returns the namespace's name.
func (n *Namespace) Name() string { return n.name }

// Path returns where the namespace is mounted.
func (n *Namespace) Path() string {
	if filepath.IsAbs(n.name) {
		return n.name
	}
	return Path(n.name)
}

// Do runs fn on the namespace's thread and returns its error. Calls are
// served one after the other; fn must not call Do of the same namespace.
func (n *Namespace) Do(fn func() error) error {
	result := make(chan error, 1)
	select {
	case n.calls <- call{fn: fn, result: result}:
		return <-result
	case <-n.done:
		return fmt.Errorf("%s: %w", n.name, ErrClosed)
	}
}

// Close ends the thread. The namespace itself stays until Delete.
func (n *Namespace) Close() {
	n.close.Do(func() { close(n.done) })
}
