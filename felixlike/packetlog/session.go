package packetlog

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/felixlike/cluster"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/denied"
	"github.com/felixlike/felixlike/felixlike/policy/judge"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/policyflows"
	"github.com/felixlike/felixlike/rules"
)

// session is one subscription to the dataplane's reports of denied packets. All followers
// share it.
type session struct {
	cancel context.CancelFunc
	done   chan struct{}
	// reports wait for names. lost counts those that did not fit, guarded by mu.
	reports chan denied.Report
	mu      sync.Mutex
	lost    uint64
	// flushes asks for all reports that wait to be sent to the followers. The channel that it gets is closed then.
	flushes chan chan struct{}
	// failed is closed when no more reports will come.
	failed chan struct{}
}

func (s *session) stop() {
	s.cancel()
	<-s.done
}

// flush returns when the followers have what came before, or the session or ctx ends.
func (s *session) flush(ctx context.Context) {
	sent := make(chan struct{})
	select {
	case s.flushes <- sent:
	case <-s.failed:
		return
	case <-ctx.Done():
		return
	}
	select {
	case <-sent:
	case <-ctx.Done():
	}
}

// hasFailed reports whether no more reports will come.
func (s *session) hasFailed() bool {
	select {
	case <-s.failed:
		return true
	default:
		return false
	}
}

// newSession starts to listen, and then makes the dataplane report.
func (d *Denied) newSession(ctx context.Context) (*session, error) {
	var b backend.Backend
	var cannot error
	if err := d.view.Do(ctx, func() { b, cannot = d.view.Enforcing() }); err != nil {
		return nil, err
	}
	if cannot != nil {
		return nil, cannot
	}
	if err := b.Denials().Check(ctx); err != nil {
		err = fmt.Errorf("the packets that backend %s denies cannot be followed here: %w", b.Name(), err)
		return nil, errors.Join(err, d.setReported(ctx, false))
	}
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s := &session{cancel: cancel, done: make(chan struct{}), reports: make(chan denied.Report, maxReports), flushes: make(chan chan struct{}), failed: make(chan struct{})}
	ended, err := b.Denials().Listen(running, s.put)
	if err != nil {
		cancel()
		return nil, errors.Join(fmt.Errorf("follow the packets that backend %s denies: %w", b.Name(), err), d.setReported(ctx, false))
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

// put takes a report from the listener.
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

// takeLost returns the number of reports lost since the last call.
func (s *session) takeLost() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	lost := s.lost
	s.lost = 0
	return lost
}

// serve adds names to reports and sends them to the followers, until the session ends.
func (d *Denied) serve(ctx context.Context, s *session, b backend.Backend, ended <-chan struct{}) {
	defer func() { <-ended }()
	names := &dropNames{}
	skipped := &skips{read: b.Denials().Skipped, limit: rules.ReportsPerSecond}
	skipped.begin(ctx)
	var took time.Duration
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	fail := func(err error) {
		close(s.failed)
		d.stream.fail(err)
		<-ctx.Done()
	}
	for {
		var all []denied.Report
		var sent chan struct{}
		select {
		case <-ctx.Done():
			return
		case <-ended:
			fail(fmt.Errorf("backend %s does not report denied packets any more", b.Name()))
			return
		case sent = <-s.flushes:
			all = s.waiting()
		case r := <-s.reports:
			all, sent = s.gather(ctx, r, gather, func(waited time.Duration) bool {
				return waited < min(took*namesShare, longGather) && d.stream.patient()
			})
		case <-tick.C:
			if err := d.over(ctx, b); err != nil && ctx.Err() == nil {
				fail(err)
				return
			}
		}
		began := time.Now()
		out, err := d.named(ctx, names, all)
		if err == nil { // else the agent ends
			if len(all) > 0 {
				took = time.Since(began)
			}
			skipped.note(len(all))
			if n := s.takeLost() + skipped.more(ctx, len(all) == 0, d.stream.patient()); n > 0 {
				out = append(out, control.Drop{At: time.Now(), NotShown: n})
			}
			d.stream.send(out)
		}
		if sent != nil {
			close(sent)
		}
	}
}

// over returns why a session with a backend is over, or nil.
func (d *Denied) over(ctx context.Context, b backend.Backend) error {
	changed := false
	if d.view.Do(ctx, func() { changed = d.view.Backend().Name() != b.Name() }) == nil && changed {
		return errors.New("the backend has changed: follow again")
	}
	return d.reportsRefused(ctx, b)
}

// waiting returns the reports that wait.
func (s *session) waiting() (all []denied.Report) {
	for {
		select {
		case r := <-s.reports:
			all = append(all, r)
		default:
			return all
		}
	}
}

// gather returns a report together with those that follow within a time, and for as long as more, unless it is nil, returns true. It ends
// with a flush, which the caller answers.
func (s *session) gather(ctx context.Context, first denied.Report, within time.Duration, more func(waited time.Duration) bool) (all []denied.Report, flush chan struct{}) {
	all = []denied.Report{first}
	began := time.Now()
	tick := time.NewTicker(within)
	defer tick.Stop()
	for len(all) < maxReports {
		select {
		case <-ctx.Done():
			return all, nil
		case flush = <-s.flushes:
			return append(all, s.waiting()...), flush
		case r := <-s.reports:
			all = append(all, r)
		case <-tick.C:
			if more == nil || !more(time.Since(began)) {
				return all, nil
			}
		}
	}
	return all, nil
}

// skips counts the packets that the kernel did not report because of its rate limit.
type skips struct {
	read func(context.Context) (uint64, error)
	// limit is the number of reports from which on some may have been skipped.
	limit int
	// seen counts the reports since the last read of the counter, last is its value then.
	seen int
	last uint64
	// flood is set if the last read found skipped packets. at is the time of that read.
	flood bool
	at    time.Time
}

// skipsEvery is the least time between two reads of the counter while all followers are patient: a read may dump a table.
const skipsEvery = 30 * time.Second

func (s *skips) note(reports int) { s.seen += reports }

// more returns the number of packets skipped since the last read. It reads the counter only at
// a tick (quiet), and only after reports at the limit's rate or a flood.
func (s *skips) more(ctx context.Context, quiet, patient bool) uint64 {
	if s.read == nil || !quiet || s.seen < s.limit && !s.flood || patient && time.Since(s.at) < skipsEvery {
		return 0
	}
	s.seen, s.at = 0, time.Now()
	total, err := s.read(ctx)
	if err != nil {
		return 0
	}
	more := total - min(s.last, total) // the counter restarts after a flush of the table
	s.last, s.flood = total, more > 0
	return more
}

// begin reads the counter's first value.
func (s *skips) begin(ctx context.Context) {
	if s.read != nil {
		s.last, _ = s.read(ctx)
	}
}

// dropNames is a view of the model, valid until the model changes.
type dropNames struct {
	view     *denied.View
	revision uint64
	// services are the ports of Services by their addresses, and Services by their cluster IPs without a port. It is nil if no report has asked for them.
	services map[address]string
}

// address is one of a Service. That of a node port is unspecified.
type address struct {
	netip.AddrPort
	protocol model.Protocol
}

// named adds pods and policies to the reports.
func (d *Denied) named(ctx context.Context, names *dropNames, all []denied.Report) ([]control.Drop, error) {
	if len(all) == 0 {
		return nil, nil
	}
	var ordered []model.Update
	var ports []*model.ServicePort
	err := d.view.Do(ctx, func() {
		if names.view == nil || names.revision != d.view.Attempted() {
			names.view, ordered = d.cluster()
			names.revision, names.services = d.view.Attempted(), nil
		}
		names.view.Closed = d.closed()
		if names.services == nil && slices.ContainsFunc(all, func(r denied.Report) bool { return r.Service != "" }) {
			ports = slices.Collect(maps.Values(d.view.Model().ServicePorts))
		}
	})
	if err != nil {
		return nil, err
	}
	if ordered != nil {
		names.view.Judge = judge.New() // beside the loop: 90,000 members take 17 ms
		for _, u := range ordered {
			names.view.Judge.OnUpdate(u)
		}
	}
	if ports != nil {
		names.services = addressesOf(ports)
	}
	out := make([]control.Drop, 0, len(all))
	for _, r := range all {
		if r.Service != "" {
			r.ServicePort = names.service(r.Packet)
		}
		drop, err := names.view.Drop(r)
		if err != nil {
			d.view.Log().Debug("a denied packet cannot be read", "error", err)
			continue
		}
		out = append(out, drop)
	}
	return out, nil
}

func addressesOf(ports []*model.ServicePort) map[address]string {
	all := make(map[address]string, 2*len(ports))
	for _, p := range ports {
		for i := range p.Frontends {
			f := &p.Frontends[i]
			all[address{netip.AddrPortFrom(f.Addr, f.Port), p.ID.Protocol}] = p.ID.String()
			if f.Kind == model.ClusterIP {
				all[address{AddrPort: netip.AddrPortFrom(f.Addr, 0)}] = p.ID.Namespace + "/" + p.ID.Name
			}
		}
	}
	return all
}

// service returns the port of a Service that a packet goes to, the Service of a cluster IP without this port, "" if it is of none any more.
func (n *dropNames) service(packet []byte) string {
	p, err := denied.Parse(packet)
	if err != nil {
		return ""
	}
	unspecified := netip.IPv4Unspecified()
	if p.Destination.Is6() {
		unspecified = netip.IPv6Unspecified()
	}
	for _, to := range []address{
		{netip.AddrPortFrom(p.Destination, p.Port), p.Protocol},
		{netip.AddrPortFrom(unspecified, p.Port), p.Protocol},
		{AddrPort: netip.AddrPortFrom(p.Destination, 0)},
	} {
		if name, found := n.services[to]; found {
			return name
		}
	}
	return ""
}

// cluster returns a view of the current model, without its Judge, and the updates for it if it needs one. It runs in
// the loop.
func (d *Denied) cluster() (v *denied.View, ordered []model.Update) {
	v = denied.NewView(d.view.Policy().PodAddresses(), d.view.Model().Attachments, d.view.Model().Nodes, d.view.Node(), d.view.Model().Host.Addresses)
	v.Endpoints = maps.Clone(d.view.Model().Endpoints)
	if v.Host = d.view.Model().HostPolicies; !v.Host.Empty() {
		ordered = d.view.Policy().Snapshot()
		for _, p := range v.Host.Policies {
			ordered = append(ordered, model.PolicyUpdate{Policy: p})
		}
		return v, ordered
	}
	for _, e := range v.Endpoints {
		if len(e.Ingress.Admin)+len(e.Ingress.Baseline)+len(e.Egress.Admin)+len(e.Egress.Baseline) == 0 {
			continue
		}
		// Only these tiers have rules that deny; to find such a rule, the view needs all
		// policies and groups.
		return v, d.view.Policy().Snapshot()
	}
	return v, nil
}

// closed returns the reasons why attached pods are closed in a direction, for closed pods
// with drops that are reported. It runs in the loop.
func (d *Denied) closed() map[denied.Way]string {
	closed := map[denied.Way]string{}
	for id := range d.view.Model().Attachments {
		if d.view.Model().Endpoints[id] == nil {
			for _, direction := range model.Directions() {
				closed[denied.Way{Pod: id, Direction: direction}] = cluster.UnknownPod
			}
		}
	}
	// A drop-only replacement drops packets without a report. So reported packets of pods
	// with closed chains were denied for other reasons.
	for _, r := range d.view.Refused() {
		for _, direction := range model.Directions() {
			if r.Object != policyflows.Object || r.Rule != direction.String() {
				continue
			}
			for _, name := range r.Closed {
				if id, err := control.ParsePod(name); err == nil {
					closed[denied.Way{Pod: id, Direction: direction}] = r.Name + " is quarantined: " + r.Reason
				}
			}
		}
	}
	return closed
}
