package election

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/felixlike/felixlike/felixlike/leases"
	"github.com/felixlike/felixlike/internal/backoff"
)

// effect is that of a failure.
const effect = "packets that need an address without a node are dropped"

// elector is a node in the elections. Its methods are for one goroutine.
type elector struct {
	Options
	session session
	// held are the addresses of which this node has written the Lease in this session, with the time.
	held map[netip.Addr]time.Time
	// free is since when nobody has had an address.
	free map[netip.Addr]time.Time
	// foreign are the addresses that another host had when this node asked.
	foreign map[netip.Addr]foreign
	peers   peers
	// again is when an action that has failed may be tried again. Renewals have a time of their own.
	again   time.Time
	sweeper sweeper
	said    leases.Said
}

func newElector(o Options) *elector {
	return &elector{
		Options: o, held: map[netip.Addr]time.Time{}, free: map[netip.Addr]time.Time{}, foreign: map[netip.Addr]foreign{}, peers: peers{seen: map[string]sight{}},
		sweeper: sweeper{due: map[netip.Addr]time.Time{}, left: map[netip.Addr]string{}},
		said:    leases.Said{Log: o.Log, What: "elect the nodes with the addresses of Egresses", Effect: effect},
	}
}

// foreign says when this node asks again whether another host has an address. The wait doubles, so that such addresses do not delay others.
type foreign struct {
	at   time.Time
	wait time.Duration
}

// step does one thing if there is something to do, and returns when to look again.
func (e *elector) step(ctx context.Context, v view) time.Duration {
	now := time.Now()
	if e.session.over(now) {
		e.lose()
	}
	// Somebody else has written the Lease of an address; the driver has removed the address.
	maps.DeleteFunc(e.held, func(a netip.Addr, taken time.Time) bool {
		return v.leases[a].Holder != e.Node && now.Sub(taken) > e.Timing.Expiry
	})
	maps.DeleteFunc(e.free, func(a netip.Addr, _ time.Time) bool { return v.leases[a].Holder != "" })
	maps.DeleteFunc(e.foreign, func(a netip.Addr, f foreign) bool { return now.Sub(f.at) > e.Timing.Orphan })
	mine, candidates, others := e.sort(v)
	next := schedule{now: now, wait: time.Hour}
	take, found := netip.Addr{}, false
	for _, a := range candidates {
		if at := e.takeable(a, v, now); !at.IsZero() && next.due(at) && !found {
			take, found = a, true
		}
	}
	orphan, orphaned := e.sweeper.look(v, e.Node, e.Timing, &next)
	paused := now.Before(e.again)
	unwanted := slices.IndexFunc(mine, func(a netip.Addr) bool { return v.unwanted(a, e.Node) })
	switch {
	case (len(mine) > 0 || found) && next.due(e.session.next):
		e.renew(ctx)
	case paused && (unwanted >= 0 || found || others > 0 || orphaned):
		next.due(e.again)
		return next.wait
	case unwanted >= 0:
		e.done(ctx, e.release(ctx, mine[unwanted], v.allocated[mine[unwanted]]))
	case found && e.session.alive():
		e.done(ctx, e.take(ctx, take, v))
	case others > 0 && next.due(e.peers.polled.Add(e.poll(v.wanted))):
		e.done(ctx, e.peers.poll(ctx, e.Leases, e.Timing, v.leases))
	case orphaned:
		e.done(ctx, e.sweep(ctx, orphan, v))
	default:
		return next.wait
	}
	return 0
}

// sort returns the addresses of this node, those that it may take, and how many of these others have.
func (e *elector) sort(v view) (mine, candidates []netip.Addr, others int) {
	for a, l := range v.leases {
		if _, held := e.held[a]; l.Holder == e.Node && !held {
			mine = append(mine, a)
		}
	}
	mine = slices.AppendSeq(mine, maps.Keys(e.held))
	for a := range v.wanted {
		if _, held := e.held[a]; held {
			continue
		}
		candidates = append(candidates, a)
		if holder := v.leases[a].Holder; holder != "" && holder != e.Node {
			others++
		}
	}
	slices.SortFunc(mine, netip.Addr.Compare)
	slices.SortFunc(candidates, netip.Addr.Compare)
	return mine, candidates, others
}

// takeable returns when this node may try to take an address; the zero time if it does not know.
func (e *elector) takeable(a netip.Addr, v view, now time.Time) time.Time {
	w, holder := v.wanted[a], v.leases[a].Holder
	stagger := time.Duration(w.Rank) * e.Timing.Stagger
	if f := e.foreign[a]; now.Before(f.at) {
		return f.at
	}
	if w.owner != "" && !v.settled {
		return time.Time{}
	}
	switch holder {
	case e.Node: // of a session before this one
		return now
	case "":
		if e.free[a].IsZero() {
			e.free[a] = now
		}
		return e.free[a].Add(stagger)
	}
	if s, known := e.peers.seen[holder]; known {
		return s.expires().Add(stagger)
	}
	return time.Time{}
}

// poll returns the time between two looks at the Leases of other nodes.
func (e *elector) poll(wanted map[netip.Addr]wish) time.Duration {
	most := 0
	for _, c := range wanted {
		most = max(most, c.Of)
	}
	return max(e.Timing.Poll, time.Duration(most)*e.Timing.PerCandidate)
}

// done notes how an action went.
func (e *elector) done(ctx context.Context, err error) {
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || errors.Is(err, errOutdated) {
		// Another node was faster, or the Lease was read too early. The watch brings the new one.
		e.again = time.Now().Add(e.Timing.Retry / 4)
		return
	}
	e.said.Note(ctx, err)
	if err != nil {
		e.again = time.Now().Add(e.Timing.Retry)
	}
}

// renew renews the Lease of this node, which extends the session or begins one.
func (e *elector) renew(ctx context.Context) {
	began := time.Now()
	err := e.session.renew(ctx, e.Leases, e.Node, e.Timing)
	e.said.Note(ctx, err)
	if err != nil {
		return
	}
	if e.session.over(time.Now()) {
		e.lose()
	}
	e.session.extend(began, e.Timing.Valid)
	if len(e.held) > 0 {
		e.hold()
	}
}

// hold lets the kernel have the addresses until the session is over.
func (e *elector) hold() {
	if err := e.Kernel.Hold(slices.SortedFunc(maps.Keys(e.held), netip.Addr.Compare), e.session.until); err != nil {
		e.Log.Warn("cannot keep the addresses of Egresses on this node: it is tried again", "error", err)
	}
}

// lose ends the session. The kernel ends the time of the addresses.
func (e *elector) lose() {
	if len(e.held) > 0 {
		e.Log.Warn("this node has given the addresses of Egresses up: it could not renew its Lease", "addresses", slices.SortedFunc(maps.Keys(e.held), netip.Addr.Compare))
	}
	clear(e.held)
	e.session.until = time.Time{}
}

// errOutdated is that of an action which does not fit to Leases that this node has not seen yet.
var errOutdated = errors.New("the Leases of addresses have changed")

// take writes this node into the Lease of an address, if the node there is dead, and then holds the address.
func (e *elector) take(ctx context.Context, a netip.Addr, v view) error {
	ctx, cancel := context.WithTimeout(ctx, e.Timing.Request)
	defer cancel()
	l, err := e.Leases.Get(ctx, addressLease(a).Name)
	if apierrors.IsNotFound(err) {
		l, err = addressLease(a), nil
	}
	if err != nil {
		return err
	}
	w, before := v.wanted[a], l.Holder()
	if before != "" && before != e.Node {
		if dead, err := e.peers.dead(ctx, e.Leases, e.Timing, before); err != nil || !dead {
			return err
		}
	}
	if err := e.Kernel.Probe(a); err != nil {
		wait := backoff.Next(e.foreign[a].wait, e.Timing.Renew, e.Timing.Orphan)
		e.foreign[a] = foreign{time.Now().Add(wait), wait}
		if w.claim {
			err = errors.Join(err, e.skip(ctx, l))
		}
		return err
	}
	delete(e.foreign, a)
	if w.owner != "" {
		if contentOf(l).Owner != v.leases[a].Owner {
			return errOutdated
		}
		if w.claim {
			if err := e.unallocated(ctx, w); err != nil {
				return err
			}
		}
		allocate(l, w.owner, w.pool)
	}
	l.Hold(e.Node, e.Timing.Expiry)
	if err := e.Leases.Put(ctx, l); err != nil {
		return err
	}
	if e.session.over(time.Now()) {
		return errors.New("the API server took too long")
	}
	e.held[a] = time.Now()
	delete(e.free, a)
	e.hold()
	if before != e.Node {
		e.Log.Info("this node takes the address of an Egress", "address", a, "from", cmp.Or(before, "nobody"))
	}
	return nil
}

// skip leaves an address of a pool that another host has without an Egress. While it has a Lease, Egresses get other addresses first; without an
// Egress, the Lease is deleted after some time (sweeper), and the address is tried again.
func (e *elector) skip(ctx context.Context, l *leases.Lease) error {
	if l.Version != "" {
		return nil // no other address is free
	}
	return e.Leases.Put(ctx, l)
}

// unallocated returns an error if an Egress has an address of its pool.
func (e *elector) unallocated(ctx context.Context, w wish) error {
	all, err := e.Leases.List(ctx, labelOwner+"="+w.owner)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(all, func(l *leases.Lease) bool { return contentOf(l).Pool == w.pool }) {
		return errOutdated
	}
	return nil
}

// release removes an address from this node, and then its Lease. If the address has been allocated to an owner, the Lease stays without a node.
func (e *elector) release(ctx context.Context, a netip.Addr, owner string) error {
	ctx, cancel := context.WithTimeout(ctx, e.Timing.Request)
	defer cancel()
	delete(e.held, a)
	if err := e.Kernel.Release(a); err != nil {
		return err
	}
	l, err := e.Leases.Get(ctx, addressLease(a).Name)
	switch {
	case err != nil || l.Holder() != e.Node:
	case owner != "" && contentOf(l).Owner == owner:
		l.Hold("", e.Timing.Expiry)
		e.sweeper.left[a] = owner
		err = e.Leases.Put(ctx, l)
	default:
		err = e.Leases.Delete(ctx, l)
	}
	if err == nil || apierrors.IsNotFound(err) {
		e.Log.Info("this node has given the address of an Egress up", "address", a)
		return nil
	}
	return err
}

// schedule finds the next time at which something is due.
type schedule struct {
	now  time.Time
	wait time.Duration
}

// due reports whether a time has come. If it has not, the schedule waits for it.
func (s *schedule) due(at time.Time) bool {
	left := at.Sub(s.now)
	if left > 0 {
		s.wait = min(s.wait, left)
	}
	return left <= 0
}
