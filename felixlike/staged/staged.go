// Package staged judges new connections by staged policies (annotation felixlike.io/enforce: "no"), which are not enforced. Nothing of it is in the
// dataplane: connections that the enforced policies allowed are read from connection tracking, which keeps entries of ended ones for a while.
//
//	loop: model.StagedUpdate --> the judge, made of the model when the first policy is staged
//	look: the connections, from the kernel or the switch --> those not seen before --> judged in the loop, in parts --> counts
//
// It is tested with made-up connections under a driver here, and with packets in test/e2e.
package staged

import (
	"context"
	"errors"
	"net/netip"
	"reflect"
	"slices"
	"time"

	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/driver"
	"github.com/felixlike/felixlike/felixlike/ends"
	"github.com/felixlike/felixlike/felixlike/metrics"
	"github.com/felixlike/felixlike/felixlike/policy/judge"
	"github.com/felixlike/felixlike/internal/panics"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/conntrack"
)

// Connections are those that the enforcement point has allowed (carry.Carrier).
type Connections interface {
	// Begun lists those of pods, also ended ones that still have an entry, from the kernel or the switch.
	Begun(ctx context.Context, inSwitch bool) ([]conntrack.Connection, error)
}

const (
	// DefaultInterval is the time between two looks at the connections, unless looks take longer than 2 % of it. No entry of an ended connection goes
	// earlier than ten seconds after its end (nf_conntrack_tcp_timeout_close).
	DefaultInterval = 5 * time.Second
	// restFactor is how much longer than a look the pause after it is.
	restFactor = 50
	// part is the number of connections that are judged in the loop at once: it takes below a millisecond.
	part = 64
	// maxPods bounds the pods that a policy's counts name.
	maxPods = 256
	// maxFlows bounds the connections that a policy's counts keep, the newest.
	maxFlows = 64
	// unreadLooks is for how many looks a connection that was not read again, after an error, is not new.
	unreadLooks = 10
	// remembered is how long the counts of a policy without a pod here are kept. maxRemembered bounds these policies.
	remembered    = time.Hour
	maxRemembered = 256
)

// Staged judges connections by staged policies. All fields but the channel belong to the loop.
type Staged struct {
	view        *driver.View
	connections Connections
	services    []netip.Prefix
	interval    time.Duration
	changed     chan struct{}

	// judge is nil while no policy is staged.
	judge     *judge.Judge
	policies  map[model.PolicyID]*counted
	endpoints map[model.PodID]*model.Endpoint
	last      *control.StagedLook
	// absent are the policies that selected a pod here before: a pod may be replaced by another one.
	absent map[model.PolicyID]*counted
	// number counts the connections that were judged.
	number uint64
}

// counted is a staged policy with what it would have denied.
type counted struct {
	policy *model.Policy
	since  time.Time
	// counts is false until a look has seen the connections that are older than the policy.
	counts    bool
	evaluated uint64
	pods      map[model.PodID]*control.StagedPod
	others    uint64
	flows     map[flow]*control.StagedFlow
	// evaluatedIn and deniedIn are the newest connections that it has counted, by number: both ends may be pods here.
	evaluatedIn, deniedIn uint64
	// left is when the policy had no pod here any more.
	left time.Time
}

// New judges what connections lists; nil if the node has no list of them. services are the prefixes of Service addresses in the settings. interval is the
// time between looks.
func New(v *driver.View, connections Connections, services []netip.Prefix, interval time.Duration) *Staged {
	return &Staged{view: v, connections: connections, services: services, interval: interval, changed: make(chan struct{}, 1), policies: map[model.PolicyID]*counted{}, absent: map[model.PolicyID]*counted{}}
}

// Module returns the module.
func (s *Staged) Module() driver.Module {
	m := driver.Module{OnUpdate: s.onUpdate, Status: func(to *control.Status) { to.Staged = s.status() }, Measure: func(to *metrics.State) { to.StagedDenied = s.denied() }}
	if s.connections != nil {
		m.Run = s.run
	}
	return m
}

func (s *Staged) onUpdate(u model.Update, _ uint64) {
	if u, ok := u.(model.StagedUpdate); ok {
		s.set(u)
		return
	}
	if s.judge == nil {
		return
	}
	s.judge.OnUpdate(u)
	if u, ok := u.(model.PolicyRemove); ok && s.policies[u.ID] != nil { // it is staged, and is enforced no more
		s.judge.OnUpdate(model.PolicyUpdate{Policy: s.policies[u.ID].policy})
	}
}

// set replaces the staged policies. Those that stay as they are keep their counts.
func (s *Staged) set(u model.StagedUpdate) {
	if len(u.Policies) == 0 {
		s.leave(nil)
		s.judge, s.endpoints, s.policies = nil, nil, map[model.PolicyID]*counted{}
		return
	}
	if s.judge == nil {
		s.judge = judge.New()
		for _, u := range s.view.Policy().Snapshot() { // of 90,000 members it takes 20 ms
			s.judge.OnUpdate(u)
		}
	}
	now := map[model.PolicyID]*counted{}
	for _, p := range u.Policies {
		c := s.policies[p.ID]
		if c == nil && s.absent[p.ID] != nil {
			c = s.absent[p.ID]
			delete(s.absent, p.ID)
			s.wake()
		}
		if c == nil || c.policy != p && !reflect.DeepEqual(c.policy, p) {
			c = &counted{since: time.Now(), pods: map[model.PodID]*control.StagedPod{}, flows: map[flow]*control.StagedFlow{}}
			s.wake()
		}
		c.policy, now[p.ID] = p, c
		s.judge.OnUpdate(model.PolicyUpdate{Policy: p})
	}
	s.leave(now)
	for id := range s.policies {
		if _, enforced := s.view.Model().Policies[id]; now[id] == nil && !enforced {
			s.judge.OnUpdate(model.PolicyRemove{ID: id})
		}
	}
	s.policies, s.endpoints = now, map[model.PodID]*model.Endpoint{}
	for _, e := range u.Endpoints {
		s.endpoints[e.ID] = e
	}
}

// leave keeps the counts of policies that are not among those of now, unless they are enforced.
func (s *Staged) leave(now map[model.PolicyID]*counted) {
	for id, c := range s.absent {
		if time.Since(c.left) > remembered || s.view.Model().Policies[id] != nil {
			delete(s.absent, id)
		}
	}
	for id, c := range s.policies {
		if now[id] == nil && s.view.Model().Policies[id] == nil && len(s.absent) < maxRemembered {
			c.left, c.counts = time.Now(), false
			s.absent[id] = c
		}
	}
}

func (s *Staged) wake() {
	select {
	case s.changed <- struct{}{}:
	default: // it will look anyway
	}
}

// run looks at the connections while policies are staged, until ctx ends.
func (s *Staged) run(ctx context.Context) error {
	seen := map[key]int{}
	var rest <-chan time.Time
	var earliest time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.changed:
		case <-rest:
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Until(earliest)):
		}
		began, staged := time.Now(), false
		err := panics.Guard(func() (err error) {
			staged, err = s.look(ctx, &seen)
			return err
		})
		if err != nil && ctx.Err() == nil {
			s.view.Panicked(err).Warn("connections are not judged by staged policies", "error", err)
		}
		took := time.Since(began)
		earliest = time.Now().Add(restFactor * took)
		if rest = nil; staged || err != nil {
			rest = time.After(max(s.interval, restFactor*took))
		} else {
			clear(seen)
		}
	}
}

// key tells connections apart, the same at both enforcement points.
type key struct {
	from, to               netip.Addr
	protocol               uint8
	sourcePort, port, icmp uint16
}

// look judges the connections that are not in seen: those of the look before, each with the number of looks since it was read. It reports whether
// policies are staged.
func (s *Staged) look(ctx context.Context, seen *map[key]int) (staged bool, err error) {
	begun := time.Now() // a policy that is staged later counts from the next look
	var at *ends.Site
	var old []*counted
	if err := s.view.Do(ctx, func() {
		if staged = s.judge != nil; staged {
			at = ends.Look(s.view, s.services)
		}
		for _, c := range s.policies {
			if !c.counts {
				old = append(old, c)
			}
		}
	}); err != nil || at == nil {
		return staged, err
	}
	began := time.Now()
	all, unread := s.connections.Begun(ctx, at.InSwitch)
	known, added := make(map[key]int, len(all)), all[:0]
	for i := range all {
		from, to, port := at.Of(&all[i])
		k := key{from, to, all[i].Original.Protocol, all[i].Original.SrcPort, port, all[i].Original.ICMPID}
		_, twice := known[k]
		if _, old := (*seen)[k]; !twice && !old && at.Judged(from, to) && from != to {
			added = append(added, all[i])
		}
		known[k] = 0
	}
	if unread != nil { // what was not read is not new at the next look
		for k, looks := range *seen {
			if _, read := known[k]; !read && looks < unreadLooks {
				known[k] = looks + 1
			}
		}
	}
	*seen = known
	for some := range slices.Chunk(added, part) {
		if err := s.view.Do(ctx, func() { s.count(at, some) }); err != nil {
			return true, err
		}
	}
	return true, errors.Join(unread, s.view.Do(ctx, func() {
		for _, c := range old {
			c.counts = unread == nil
		}
		s.last = &control.StagedLook{At: begun, Took: time.Since(began), Connections: len(known), New: len(added)}
		if unread != nil {
			s.last.Error = unread.Error()
		}
	}))
}
