package election

import (
	"context"
	"net/netip"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/felixlike/felixlike/felixlike/leases"
	"github.com/felixlike/felixlike/model"
)

// peers are the Leases of other nodes, as this node has seen them.
type peers struct {
	seen   map[string]sight
	polled time.Time
}

// sight is the version of a Lease, since when it has been seen, and how long it is valid. A node without a Lease has version "".
type sight struct {
	version string
	since   time.Time
	valid   time.Duration
}

// expires returns the time from which on the node has no addresses, if the Lease is still the same.
func (s sight) expires() time.Time { return s.since.Add(s.valid) }

// note takes down the Lease of a node; nil if it has none. It reports whether that was seen before.
func (p *peers) note(node string, l *leases.Lease, t Timing) bool {
	if l == nil {
		l = nodeLease(node)
	}
	if s, known := p.seen[node]; known && s.version == l.Version {
		return true
	}
	p.seen[node] = sight{version: l.Version, since: time.Now(), valid: max(t.Expiry, l.Duration(t.Expiry))}
	return false
}

// poll looks at the Leases of all nodes that hold addresses.
func (p *peers) poll(ctx context.Context, all Leases, t Timing, addresses map[netip.Addr]model.EgressLease) error {
	ctx, cancel := context.WithTimeout(ctx, t.Request)
	defer cancel()
	p.polled = time.Now()
	list, err := all.List(ctx, nodeLeases)
	if err != nil {
		return err
	}
	byName := map[string]*leases.Lease{}
	for _, l := range list {
		byName[l.Name] = l
	}
	seen := map[string]sight{}
	for _, l := range addresses {
		node := l.Holder
		if node == "" {
			continue
		}
		p.note(node, byName[nodeLease(node).Name], t)
		seen[node] = p.seen[node]
	}
	p.seen = seen
	return nil
}

// dead reports whether the Lease of a node has expired. Until the answer it may not have been renewed.
func (p *peers) dead(ctx context.Context, all Leases, t Timing, node string) (bool, error) {
	began := time.Now()
	l, err := all.Get(ctx, nodeLease(node).Name)
	if apierrors.IsNotFound(err) {
		l, err = nil, nil
	}
	if err != nil {
		return false, err
	}
	return p.note(node, l, t) && !began.Before(p.seen[node].expires()), nil
}
