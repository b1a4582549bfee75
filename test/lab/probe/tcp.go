package probe

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// streamExchange connects, by TCP or by a socket of SCTP, and echoes one byte. Linux sends a lost SYN again after
// one second and not earlier, so every try is a new connection, from a
// new source port; the first that succeeds decides.
type streamExchange struct {
	flow    Flow
	answers chan<- answer

	mu     sync.Mutex
	closed bool
	files  []*os.File
}

func newStreamExchange(f Flow, answers chan<- answer) *streamExchange {
	return &streamExchange{flow: f, answers: answers}
}

func (e *streamExchange) try() error {
	fd, err := e.flow.From.socket(e.flow.Protocol, e.flow.Source)
	if err != nil {
		return err
	}
	// Closing resets the connection: neither side keeps a TIME_WAIT state and
	// connection tracking forgets it soon.
	if err := unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}); err != nil {
		unix.Close(fd)
		return fmt.Errorf("set linger: %w", err)
	}
	sent := time.Now()
	err = unix.Connect(fd, sockaddr(e.flow.Target))
	if err != nil && !errors.Is(err, unix.EINPROGRESS) {
		unix.Close(fd)
		if reason := verdict(err); reason != "" {
			report(e.answers, answer{reason: reason})
			return nil
		}
		return fmt.Errorf("connect to %s: %w", e.flow.Target, err)
	}
	file := os.NewFile(uintptr(fd), "stream")
	if !e.keep(file) {
		return file.Close()
	}
	go e.converse(file, sent)
	return nil
}

// keep remembers an open socket for close; it reports false after close.
func (e *streamExchange) keep(file *os.File) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return false
	}
	e.files = append(e.files, file)
	return true
}

// verdict returns the reason that an error of a stream stands for, or "".
func verdict(err error) string {
	switch {
	case errors.Is(err, unix.ECONNREFUSED):
		return Refused
	case errors.Is(err, unix.ECONNRESET):
		return Reset
	}
	return ""
}

func (e *streamExchange) converse(file *os.File, sent time.Time) {
	err := connected(file)
	if err == nil {
		err = echoByte(file)
	}
	if err == nil {
		report(e.answers, answer{through: true, reason: Answered, rtt: time.Since(sent)})
		return
	}
	if reason := verdict(err); reason != "" {
		report(e.answers, answer{reason: reason})
	}
	// Other errors (unreachable, timed out, closed by us) are no answer: a
	// later attempt may still get one.
}

// connected waits for the end of a connect in progress.
func connected(file *os.File) error {
	raw, err := file.SyscallConn()
	if err != nil {
		return err
	}
	var result error
	err = raw.Write(func(fd uintptr) bool {
		code, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR)
		if err != nil {
			result = err
			return true
		}
		if code != 0 {
			result = unix.Errno(code)
			return true
		}
		// The poller may wake early: a socket with a peer is connected.
		_, err = unix.Getpeername(int(fd))
		return err == nil
	})
	return errors.Join(err, result)
}

func echoByte(file *os.File) error {
	if _, err := file.Write([]byte{'?'}); err != nil {
		return err
	}
	_, err := io.ReadFull(file, make([]byte, 1))
	return err
}

func (e *streamExchange) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed = true
	for _, file := range e.files {
		file.Close()
	}
}
