package node

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/felixlike/felixlike/model"
)

const (
	// strangersEvery is the time between two reads of the counters.
	strangersEvery = 10 * time.Second
	// strangersShown is how long status shows packets that were dropped.
	strangersShown = time.Minute
)

// Strangers says that the tunnel guard drops packets of the tunnel. A node that sends from another address than its own is cut off in that way,
// and does not know it.
type Strangers struct {
	node string
	read func(ctx context.Context) (map[string]uint64, error)

	mu sync.Mutex
	// total is the last sum; known says that there is one. rises are the last ones.
	total uint64
	known bool
	rises []rise
}

// rise is how many packets were dropped between two reads.
type rise struct {
	at      time.Time
	packets uint64
}

// NewStrangers returns the watch of a node's drops, by their sums.
func NewStrangers(node string, read func(ctx context.Context) (map[string]uint64, error)) *Strangers {
	return &Strangers{node: node, read: read}
}

// Run reads until ctx ends.
func (s *Strangers) Run(ctx context.Context) error {
	for wait := time.Second; ; { // until the bridge is there
		limited, cancel := context.WithTimeout(ctx, strangersEvery)
		if sums, err := s.read(limited); err == nil { // the Watcher reports a switch that does not answer
			s.add(sums[droppedStranger], time.Now())
			wait = strangersEvery
		}
		cancel()
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// add takes a sum. The first one may be of packets of long ago.
func (s *Strangers) add(total uint64, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known && total > s.total {
		s.rises = append(s.rises, rise{now, total - s.total})
	}
	s.total, s.known = total, true
	s.forget(now)
}

// forget drops the rises that status shows no longer.
func (s *Strangers) forget(now time.Time) {
	s.rises = slices.DeleteFunc(s.rises, func(r rise) bool { return now.Sub(r.at) > strangersShown })
}

// Problems returns what status says.
func (s *Strangers) Problems(now time.Time) []model.Problem {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget(now)
	packets := uint64(0)
	for _, r := range s.rises {
		packets += r.packets
	}
	if packets == 0 {
		return nil
	}
	return []model.Problem{{Object: model.NodeRef(s.node), Reason: fmt.Sprintf("packets of the tunnel that were dropped in the last minute: %d. Their outer source is no node's address, or "+
		"that node does not have their inner source. Check that each node sends tunnel packets from its InternalIP", packets)}}
}
