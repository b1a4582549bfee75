// Package traffic is the traffic during an event on the nodes: streams, servers that push,
// idle connections and new connections, which must go on, and attempts that policy denies,
// which must not get through.
//
// It sends real packets between network namespaces and knows neither labs nor
// clusters nor policy. Targets need a TCP echo server
// (test/lab/probe has one). It is tested over the loopback interface of a namespace, and used
// by the end-to-end and cluster tests.
package traffic

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/felixlike/felixlike/internal/namespace"
)

// Patience is the default bound for the arrival of data and the opening of a
// connection: the kernel sends a SYN again at least after 1, 3 and 7 seconds.
const Patience = 8 * time.Second

// Route is a way that traffic takes: from a namespace to an address where an echo
// server listens.
type Route struct {
	// Name is its name in faults.
	Name string
	From *namespace.Namespace
	To   netip.AddrPort
}

// Options choose the traffic.
type Options struct {
	// Streams are the routes with one connection that echoes blocks all the time,
	// Opened those with one new connection after the other, Denied those
	// on which no connection may open.
	Streams, Opened, Denied []Route
	// Patience bounds a stall of data; 0: the constant Patience.
	Patience time.Duration
	// Pause is the time between two blocks, new connections or attempts of a route; 0: 5 ms.
	Pause time.Duration
	// HalfOpen reports whether a server has an open connection from the client's port that the client has closed. If a reset was lost, the server
	// sends its last answer again and again, at longer and longer intervals. Until it is told that the connection is over, the way to it may
	// take a new request for one in the wrong direction. It may be nil: no connection waits for that.
	HalfOpen func(r Route, port int) bool
	// Explain returns details on a fault when it happens. It may be nil.
	Explain func(error) string
}

// Traffic is running traffic.
type Traffic struct {
	patience time.Duration
	pause    time.Duration
	halfOpen func(Route, int) bool
	explain  func(error) string
	ctx      context.Context
	cancel   context.CancelFunc
	done     sync.WaitGroup

	mu     sync.Mutex
	sum    Summary
	echoed map[string]time.Time // the last echo of each stream
	faults []error
}

// Summary counts the successful traffic.
type Summary struct {
	// Blocks counts the echoes of streams, Pushed the numbers of servers, Opened
	// the new connections, Denied the attempts that got nowhere.
	Blocks, Pushed, Opened, Denied int
	// HalfOpen counts the new connections that waited longer than Patience, for the end of a half-open one from their port.
	HalfOpen int
	// Late counts the new connections that took almost as long as Linux waits for the answer to a SYN before it sends it again (1 s, RFC 6298):
	// a packet of them was lost.
	Late int
	// Slowest is the time of the slowest new connection, Stall the longest
	// time without an echo on a stream.
	Slowest, Stall time.Duration
}

// String returns the counts as a sentence.
func (s Summary) String() string {
	return fmt.Sprintf("%d blocks echoed on streams (longest stall %s), %d numbers pushed, %d new connections (slowest %s, %d late, %d behind half-open ones), %d denied attempts",
		s.Blocks, s.Stall.Round(time.Millisecond), s.Pushed, s.Opened, s.Slowest.Round(time.Millisecond), s.Late, s.HalfOpen, s.Denied)
}

// loop repeats work until the end or its first fault. Work that has begun before the end
// must end well.
func (tr *Traffic) loop(what string, work func() error) {
	tr.done.Go(func() {
		for tr.ctx.Err() == nil {
			if err := work(); err != nil {
				tr.fault(what, err)
				return
			}
		}
	})
}

// once does some work once.
func (tr *Traffic) once(what string, work func() error) {
	tr.done.Go(func() {
		if err := work(); err != nil {
			tr.fault(what, err)
		}
	})
}

// fault records one, with the time and details.
func (tr *Traffic) fault(what string, err error) {
	err = fmt.Errorf("%s %s: %w%s", time.Now().Format("15:04:05.000"), what, err, tr.explain(err))
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.faults = append(tr.faults, err)
}

func (tr *Traffic) count(f func(*Summary)) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	f(&tr.sum)
}

// Stop ends the traffic and returns the summary, and every fault.
func (tr *Traffic) Stop() (Summary, error) {
	tr.cancel()
	tr.done.Wait()
	return tr.sum, errors.Join(tr.faults...)
}

// Summary returns the summary until now.
func (tr *Traffic) Summary() Summary {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return tr.sum
}

// EchoedSince reports whether all streams have had an echo after a time. TCP waits twice as long after each loss: a second outage
// before that adds to the first one.
func (tr *Traffic) EchoedSince(start time.Time) bool {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	for _, at := range tr.echoed {
		if !at.After(start) {
			return false
		}
	}
	return true
}

// pause waits, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
