package election

import (
	"context"
	"hash/fnv"
	"maps"
	"net/netip"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// sweeper deletes Leases of addresses that no Egress has, if no node is left to do so: the Egress was deleted while no node held the address,
// or while the node with the address was dead.
type sweeper struct {
	// due is when this node may look at such a Lease.
	due map[netip.Addr]time.Time
	// left has the owners of addresses whose Leases this node has left without a node, because the Egress was there. If it goes, this node
	// need not wait: it knows the Egress, and no later one has the same owner.
	left map[netip.Addr]string
}

// look notes the Leases without an Egress, and returns one that is due.
func (s *sweeper) look(v view, node string, t Timing, next *schedule) (found netip.Addr, any bool) {
	if !v.settled {
		return found, false
	}
	maps.DeleteFunc(s.due, func(a netip.Addr, _ time.Time) bool { return !v.orphaned(a, node) })
	maps.DeleteFunc(s.left, func(a netip.Addr, owner string) bool {
		l := v.leases[a]
		return l.Owner != owner || l.Holder != "" && l.Holder != node
	})
	for _, a := range slices.SortedFunc(maps.Keys(v.leases), netip.Addr.Compare) {
		if !v.orphaned(a, node) {
			continue
		}
		at, noted := s.due[a]
		if !noted {
			if at = next.now; s.left[a] == "" {
				at = at.Add(t.Orphan + spread(a, node, t.Orphan))
			}
			s.due[a] = at
		}
		if next.due(at) && !any {
			found, any = a, true
		}
	}
	return found, any
}

// spread returns a time below a limit, another one on each node, so that not all nodes act at once.
func spread(a netip.Addr, node string, limit time.Duration) time.Duration {
	h := fnv.New64a()
	h.Write([]byte(a.String() + " " + node))
	return time.Duration(h.Sum64() % uint64(max(limit, 1)))
}

// orphaned reports whether no Egress has the address of a Lease, and it is not this node that deletes it as the holder.
func (v *view) orphaned(a netip.Addr, node string) bool {
	l, there := v.leases[a]
	_, wanted := v.wanted[a]
	return there && l.Holder != node && !wanted && !v.used[a] && (l.Owner == "" || v.allocated[a] != l.Owner)
}

// sweep deletes a Lease without an Egress, unless it has changed or its node is alive. As for taking an address, the node is dead if its
// Lease is the same as before, for long enough, after the Lease of the address was read.
func (e *elector) sweep(ctx context.Context, a netip.Addr, v view) error {
	ctx, cancel := context.WithTimeout(ctx, e.Timing.Request)
	defer cancel()
	e.sweeper.due[a] = time.Now().Add(e.Timing.Expiry + time.Second)
	l, err := e.Leases.Get(ctx, addressLease(a).Name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if contentOf(l) != v.leases[a] {
		return errOutdated
	}
	if holder := l.Holder(); holder != "" {
		if dead, err := e.peers.dead(ctx, e.Leases, e.Timing, holder); err != nil || !dead {
			return err
		}
	}
	if err := e.Leases.Delete(ctx, l); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	e.Log.Info("this node has deleted the Lease of an address that no Egress has", "address", a)
	return nil
}
