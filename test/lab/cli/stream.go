package cli

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/felixlike/felixlike/internal/namespace"
)

// patience bounds a stream's wait for its connection, and for an echo.
const patience = 5 * time.Second

// stream is a connection that carries data all the time.
type stream struct {
	conn net.Conn
	done chan struct{}

	mu      sync.Mutex
	trips   int
	slowest time.Duration
	err     error
}

// openStream connects to a pod's server and begins.
func openStream(from *namespace.Namespace, to netip.AddrPort) (*stream, error) {
	s := &stream{done: make(chan struct{})}
	err := from.Do(func() (err error) {
		s.conn, err = net.DialTimeout("tcp", to.String(), patience)
		return err
	})
	if err != nil {
		return nil, err
	}
	go s.run()
	return s, nil
}

func (s *stream) run() {
	defer close(s.done)
	block := make([]byte, 64)
	for trip := byte(0); ; trip++ {
		block[0] = trip
		start := time.Now()
		err := s.conn.SetDeadline(start.Add(patience))
		if err == nil {
			_, err = s.conn.Write(block)
		}
		if err == nil {
			_, err = io.ReadFull(s.conn, block)
		}
		if err == nil && block[0] != trip {
			err = fmt.Errorf("sent %d, got %d back", trip, block[0])
		}
		s.mu.Lock()
		if s.err = err; err != nil {
			s.mu.Unlock()
			return
		}
		s.trips++
		s.slowest = max(s.slowest, time.Since(start))
		s.mu.Unlock()
		time.Sleep(time.Millisecond) // leave the processor to the probes
	}
}

// since returns the round trips since the last call, and the slowest of them.
func (s *stream) since() (trips int, slowest time.Duration, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	trips, slowest = s.trips, s.slowest
	s.trips, s.slowest = 0, 0
	return trips, slowest, s.err
}

func (s *stream) close() error {
	err := s.conn.Close()
	<-s.done
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}
