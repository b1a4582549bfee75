package driver

import (
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/eventually"
)

// source is a datastore that a test feeds.
type source struct {
	batches chan datastore.Batch
	// delivered answers each batch once it is in the driver's hands.
	delivered chan struct{}
	revision  uint64
	mu        sync.Mutex
}

func (s *source) Run(ctx context.Context, deliver func(datastore.Batch)) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case b := <-s.batches:
			deliver(b)
			s.delivered <- struct{}{}
		}
	}
}

func (s *source) Sync(context.Context) (uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.revision, nil
}

// send delivers events as the next revision.
func (s *source) send(inSync bool, events ...datastore.Event) {
	s.sendBatch(datastore.Batch{Events: events, InSync: inSync})
}

// sendBatch delivers a batch as the next revision.
func (s *source) sendBatch(b datastore.Batch) {
	s.mu.Lock()
	s.revision++
	b.Revision = s.revision
	s.mu.Unlock()
	s.batches <- b
	<-s.delivered
}

// recordedStages records the order of applies and fails on demand.
type recordedStages struct {
	mu      sync.Mutex
	applied []string
	fail    map[string]error
}

func (s *recordedStages) stage(name string, required bool) backend.Stage {
	return backend.Stage{Name: name, Required: required, Apply: func(context.Context) (backend.Applied, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.applied = append(s.applied, name)
		return backend.Applied{Writes: 1}, s.fail[name]
	}}
}

func (s *recordedStages) setFailure(name string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail[name] = err
	s.applied = nil
}

func (s *recordedStages) log() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.applied)
}

type fixture struct {
	*Driver
	source   *source
	recorded *recordedStages
	updates  chan func(update func(model.Update), synced func())
}

func start(t *testing.T) *fixture {
	t.Helper()
	s := &recordedStages{fail: map[string]error{}}
	f := startWith(t, Config{Stages: []backend.Stage{s.stage("netlink", false), s.stage("nftables", true), s.stage("openflow", false)}})
	f.recorded = s
	return f
}

// startWith runs a driver of that configuration, which a test feeds.
func startWith(t *testing.T, cfg Config) *fixture {
	t.Helper()
	f := &fixture{
		source:  &source{batches: make(chan datastore.Batch), delivered: make(chan struct{})},
		updates: make(chan func(func(model.Update), func())),
	}
	timing := DefaultTiming()
	timing.RetryMin, timing.RetryMax = 5*time.Millisecond, 10*time.Millisecond
	if cfg.RetryMin != 0 {
		timing.RetryMin, timing.RetryMax = cfg.RetryMin, cfg.RetryMax
	}
	if cfg.Resync != 0 {
		timing.Resync = cfg.Resync
	}
	if cfg.ReadyGrace != 0 {
		timing.ReadyGrace = cfg.ReadyGrace
	}
	if cfg.AuditEvery != 0 {
		timing.AuditEvery = cfg.AuditEvery
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Backend == nil {
		cfg.Backend = &fake{name: "fake"}
	}
	if b, ok := cfg.Backend.(*fake); ok && b.stage.Name == "" {
		b.stage = cfg.Stages[0]
	}
	cfg.Node, cfg.Datastore, cfg.Source, cfg.Timing = "node1", "fake", f.source, timing
	cfg.Attachments = func(ctx context.Context, update func(model.Update), synced func()) error {
		for {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case u := <-f.updates:
				u(update, synced)
			}
		}
	}
	f.Driver = New(cfg)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- f.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return f
}

func (f *fixture) attachmentsSynced() {
	f.updates <- func(_ func(model.Update), synced func()) { synced() }
}

func (f *fixture) attach(pod string, addresses ...string) {
	a := &model.Attachment{Pod: model.PodID{Namespace: "x", Name: pod}, Interface: "veth-" + pod}
	for _, addr := range addresses {
		a.Addresses = append(a.Addresses, netip.MustParseAddr(addr))
	}
	f.updates <- func(update func(model.Update), _ func()) { update(model.AttachmentUpdate{Attachment: a}) }
}

func (f *fixture) detach(pod string, portOnly bool) {
	f.updates <- func(update func(model.Update), _ func()) {
		update(model.AttachmentRemove{Pod: model.PodID{Namespace: "x", Name: pod}, Interface: "veth-" + pod, PortOnly: portOnly})
	}
}

// begin makes the driver program its first state.
func (f *fixture) begin(t *testing.T, events ...datastore.Event) {
	t.Helper()
	f.attachmentsSynced()
	f.source.send(true, append([]datastore.Event{node("node1", "10.10.0.0/24")}, events...)...)
	if err := programmed(t, f); err != nil {
		t.Fatal(err)
	}
}

func node(name, cidr string) datastore.Event {
	return datastore.NodeSet{Source: "nodes.yaml", Node: &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.NodeSpec{PodCIDR: cidr, PodCIDRs: []string{cidr}},
		Status:     corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.168.50.11"}}},
	}}
}

func podOn(name, node string) datastore.Event {
	return datastore.PodSet{Pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: name}, Spec: corev1.PodSpec{NodeName: node}}}
}

func programmed(t *testing.T, f *fixture, pods ...model.PodID) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), eventually.Patience)
	defer cancel()
	_, err := f.Sync(ctx, pods)
	return err
}

// notProgrammed asserts that nothing is programmed, after the loop has seen
// all that was sent to it.
func notProgrammed(t *testing.T, f *fixture, why string) {
	t.Helper()
	if s := f.Status(); s.InSync || s.Programmed != 0 {
		t.Errorf("%s: in sync %v, programmed %d", why, s.InSync, s.Programmed)
	}
	if got := f.recorded.log(); len(got) != 0 {
		t.Errorf("%s: applied %v", why, got)
	}
}
