package felixlike

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/denied"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/rules"
)

// Denials is how a backend tells of what it denies. What it programs for that
// follows from model.DenialsUpdate.
type Denials struct {
	// Check returns why the dataplane cannot report, if so, before it is told to.
	Check func(ctx context.Context) error
	// Listen calls got of each report until ctx ends, and closes ended then, or when
	// there come no more.
	Listen func(ctx context.Context, got func(denied.Report)) (ended <-chan struct{}, err error)
	// Skipped returns a number that grows with each denied packet which is not
	// reported, for there are too many. It may be nil.
	Skipped func(ctx context.Context) (uint64, error)
	// Refused returns why the dataplane does not report though it was told to, if the
	// stage does not tell by what is set aside. It may be nil.
	Refused func() error
}

// drops is who follows what policy denies: the dataplane reports for as long as
// there is somebody. All share what is reported.
type drops struct {
	// turn is held by who begins or ends to follow.
	turn    chan struct{}
	session *session

	mu        sync.Mutex
	followers map[*follower]struct{}
}

func newDrops() *drops {
	return &drops{turn: make(chan struct{}, 1), followers: map[*follower]struct{}{}}
}

// Limits of what is kept for those who are slow.
const (
	// maxReports is what may wait to be given names.
	maxReports = 4096
	// maxWaiting is what may wait for a follower to take it.
	maxWaiting = 1024
	// gather is how long reports wait for others, so that they are given names together.
	gather = 20 * time.Millisecond
	// endWithin is how long the end of following may take before nobody waits for it
	// any more: the dataplane is put right whenever it can be.
	endWithin = 10 * time.Second
	// followWithin is the same for the beginning.
	followWithin = 20 * time.Second
)

// follower is one of them.
type follower struct {
	drops chan control.Drop
	// missed counts what the follower was too slow for; guarded by drops.mu.
	missed uint64
	// failed has why there comes no more.
	failed chan error
}

// Drops implements control.Agent.
func (d *Driver) Drops(ctx context.Context, alive time.Duration, got func(*control.Drop) error) error {
	f := &follower{drops: make(chan control.Drop, maxWaiting), failed: make(chan error, 1)}
	if err := d.beginFollowing(ctx, f); err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endWithin)
		defer cancel()
		if err := d.endFollowing(ctx, f); err != nil && !errors.Is(err, errStopped) {
			d.log.Warn("denied packets may be reported for longer than somebody follows them", "error", err)
		}
	}()
	if err := got(nil); err != nil {
		return err
	}
	tick := time.NewTicker(alive)
	defer tick.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			return nil
		case <-d.stopped:
			return errStopped
		case err := <-f.failed:
			return err
		case drop := <-f.drops:
			err = got(&drop)
		case <-tick.C:
			err = got(nil)
		}
		if err == nil {
			err = d.drops.tellMissed(f, got)
		}
		if err != nil {
			return err
		}
	}
}

// tellMissed tells a follower what it was too slow for.
func (s *drops) tellMissed(f *follower, got func(*control.Drop) error) error {
	s.mu.Lock()
	missed := f.missed
	f.missed = 0
	s.mu.Unlock()
	if missed == 0 {
		return nil
	}
	return got(&control.Drop{At: time.Now(), NotShown: missed})
}

// tell hands drops to all followers.
func (s *drops) tell(all []control.Drop) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for f := range s.followers {
		for _, drop := range all {
			select {
			case f.drops <- drop:
			default:
				f.missed += max(1, drop.NotShown)
			}
		}
	}
}

// fail tells all followers that there comes no more.
func (s *drops) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for f := range s.followers {
		select {
		case f.failed <- err:
		default: // told already
		}
	}
}

// take takes the turn, and returns what gives it back.
func (s *drops) take(ctx context.Context) (release func(), err error) {
	select {
	case s.turn <- struct{}{}:
		return func() { <-s.turn }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// beginFollowing adds a follower. The first one has the dataplane report.
func (d *Driver) beginFollowing(ctx context.Context, f *follower) error {
	ctx, cancel := context.WithTimeout(ctx, followWithin)
	defer cancel()
	release, err := d.drops.take(ctx)
	if err != nil {
		return err
	}
	defer release()
	if d.drops.session == nil {
		s, err := d.newSession(ctx)
		if err != nil {
			return err
		}
		d.drops.session = s
	}
	d.drops.mu.Lock()
	defer d.drops.mu.Unlock()
	d.drops.followers[f] = struct{}{}
	return nil
}

// endFollowing takes a follower away. With the last one the dataplane ceases to
// report.
func (d *Driver) endFollowing(ctx context.Context, f *follower) error {
	release, err := d.drops.take(ctx)
	if err != nil {
		return err
	}
	defer release()
	d.drops.mu.Lock()
	delete(d.drops.followers, f)
	left := len(d.drops.followers)
	d.drops.mu.Unlock()
	if left > 0 || d.drops.session == nil {
		return nil
	}
	d.drops.session.stop()
	d.drops.session = nil
	return d.setReported(ctx, false)
}

// setReported has the dataplane report what policy denies, or cease to, and waits
// until it does.
func (d *Driver) setReported(ctx context.Context, reported bool) error {
	var noted uint64
	if err := d.ask(ctx, func() {
		d.update(model.DenialsUpdate{Reported: reported})
		noted = d.tracker.noted
	}); err != nil {
		return err
	}
	_, err := d.wait(ctx, func() (bool, error) {
		r := d.decides()
		return r != nil && r.programmed >= noted && !r.running, nil
	})
	if err != nil {
		return fmt.Errorf("report what policy denies: %w", err)
	}
	return nil
}

// reportsRefused returns why the dataplane does not report, if what would is set
// aside: then it drops all the same.
func (d *Driver) reportsRefused(ctx context.Context, b Backend) error {
	if b.Denials.Refused != nil {
		return b.Denials.Refused()
	}
	var refused error
	err := d.ask(ctx, func() {
		for _, r := range d.quarantine.refused[d.backend.Stage.Name] {
			for _, direction := range model.Directions() {
				if r.Object == "chain" && r.Name == rules.DeniedChain(direction) {
					refused = fmt.Errorf("the kernel refuses what reports: %s", r.Reason)
				}
			}
		}
	})
	return errors.Join(err, refused)
}

// session is a time in which somebody follows.
type session struct {
	cancel context.CancelFunc
	done   chan struct{}
	// reports wait to be given names; guarded by mu is what did not fit.
	reports chan denied.Report
	mu      sync.Mutex
	lost    uint64
}

func (s *session) stop() {
	s.cancel()
	<-s.done
}

// newSession has the dataplane report, and begins to listen before that.
func (d *Driver) newSession(ctx context.Context) (*session, error) {
	var b Backend
	changing := false
	if err := d.ask(ctx, func() { b, changing = d.backend, d.handover != nil }); err != nil {
		return nil, err
	}
	switch {
	case changing:
		return nil, errors.New("the backend is being changed: try again when that is over")
	case b.Denials.Listen == nil:
		return nil, fmt.Errorf("backend %s does not tell what it denies", b.Name)
	}
	if err := b.Denials.Check(ctx); err != nil {
		return nil, fmt.Errorf("what backend %s denies cannot be followed here: %w", b.Name, err)
	}
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s := &session{cancel: cancel, done: make(chan struct{}), reports: make(chan denied.Report, maxReports)}
	ended, err := b.Denials.Listen(running, s.put)
	if err != nil {
		cancel()
		return nil, fmt.Errorf("follow what backend %s denies: %w", b.Name, err)
	}
	if err := errors.Join(d.setReported(ctx, true), d.reportsRefused(ctx, b)); err != nil {
		cancel()
		<-ended
		return nil, errors.Join(err, d.setReported(context.WithoutCancel(ctx), false))
	}
	go func() {
		defer close(s.done)
		d.serve(running, s, b, ended)
	}()
	return s, nil
}

// put takes a report from whoever listens.
func (s *session) put(r denied.Report) {
	s.mu.Lock()
	s.lost += r.Lost
	s.mu.Unlock()
	if r.Packet == nil {
		return
	}
	r.Packet = append([]byte(nil), r.Packet...)
	select {
	case s.reports <- r:
	default:
		s.mu.Lock()
		s.lost++
		s.mu.Unlock()
	}
}

// takeLost returns how many reports were lost since it was asked last.
func (s *session) takeLost() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	lost := s.lost
	s.lost = 0
	return lost
}

// serve gives reports names and hands them to the followers, until the session ends.
func (d *Driver) serve(ctx context.Context, s *session, b Backend, ended <-chan struct{}) {
	defer func() { <-ended }()
	names := &dropNames{}
	skipped := &skips{read: b.Denials.Skipped}
	skipped.begin(ctx)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		var all []denied.Report
		select {
		case <-ctx.Done():
			return
		case <-ended:
			d.drops.fail(fmt.Errorf("backend %s does not report any more what it denies", b.Name))
			<-ctx.Done()
			return
		case r := <-s.reports:
			all = s.gather(r)
		case <-tick.C:
			changed := false
			if d.ask(ctx, func() { changed = d.backend.Name != b.Name }) == nil && changed {
				d.drops.fail(errors.New("the backend has changed: follow again"))
				<-ctx.Done()
				return
			}
		}
		out, err := d.named(ctx, names, all)
		if err != nil {
			continue // the agent ends
		}
		skipped.note(len(all))
		if n := s.takeLost() + skipped.more(ctx, len(all) == 0); n > 0 {
			out = append(out, control.Drop{At: time.Now(), NotShown: n})
		}
		d.drops.tell(out)
	}
}

// gather returns a report with those that come with it.
func (s *session) gather(first denied.Report) []denied.Report {
	all := []denied.Report{first}
	end := time.NewTimer(gather)
	defer end.Stop()
	for len(all) < maxReports {
		select {
		case r := <-s.reports:
			all = append(all, r)
		case <-end.C:
			return all
		}
	}
	return all
}

// skips asks for what was not reported, after so many reports that there may be such.
type skips struct {
	read func(context.Context) (uint64, error)
	// seen counts the reports since it was asked last, told is what it said then.
	seen int
	told uint64
	// flood tells that something had been skipped.
	flood bool
}

func (s *skips) note(reports int) { s.seen += reports }

// more returns what was skipped since it was asked last. It looks in moments of
// quiet, which come every second.
func (s *skips) more(ctx context.Context, quiet bool) uint64 {
	if s.read == nil || !quiet || s.seen < rules.ReportsPerSecond && !s.flood {
		return 0
	}
	s.seen = 0
	total, err := s.read(ctx)
	if err != nil {
		return 0
	}
	more := total - min(s.told, total) // it begins anew when somebody has flushed it
	s.told, s.flood = total, more > 0
	return more
}

// begin notes what was skipped before.
func (s *skips) begin(ctx context.Context) {
	if s.read != nil {
		s.told, _ = s.read(ctx)
	}
}

// dropNames is a view of the model, for as long as that stays the same.
type dropNames struct {
	view  *denied.View
	noted uint64
}

// named says of packets whose they are and who has denied them.
func (d *Driver) named(ctx context.Context, names *dropNames, all []denied.Report) ([]control.Drop, error) {
	if len(all) == 0 {
		return nil, nil
	}
	err := d.ask(ctx, func() {
		if names.view == nil || names.noted != d.tracker.noted {
			names.view, names.noted = d.view(), d.tracker.noted
		}
		names.view.Closed = d.closedPods()
	})
	if err != nil {
		return nil, err
	}
	out := make([]control.Drop, 0, len(all))
	for _, r := range all {
		drop, err := names.view.Drop(r)
		if err != nil {
			d.log.Debug("a denied packet cannot be read", "error", err)
			continue
		}
		out = append(out, drop)
	}
	return out, nil
}

// view returns what is known now. It runs in the loop.
func (d *Driver) view() *denied.View {
	v := denied.NewView(d.engine.PodAddresses(), d.tracker.attachments, d.tracker.nodes, d.cfg.Node, d.tracker.host.Addresses)
	v.Endpoints = maps.Clone(d.tracker.endpoints)
	for _, e := range v.Endpoints {
		if len(e.Ingress.Admin)+len(e.Ingress.Baseline)+len(e.Egress.Admin)+len(e.Egress.Baseline) == 0 {
			continue
		}
		// Only these tiers have rules that deny, and what has them is looked into whole.
		v.Policies, v.Groups = maps.Clone(d.tracker.policies), map[model.GroupID][]model.Member{}
		for _, u := range d.engine.Snapshot() {
			if u, ok := u.(model.GroupUpdate); ok {
				v.Groups[u.Group.ID] = u.Added
			}
		}
		break
	}
	return v
}

// closedPods tells which attached pods are closed, and why. It runs in the loop.
func (d *Driver) closedPods() map[model.PodID]string {
	closed := maps.Clone(d.quarantine.view().closed)
	for id := range d.tracker.attachments {
		if d.tracker.endpoints[id] == nil {
			closed[id] = unknownPod
		}
	}
	return closed
}
