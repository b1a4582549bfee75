package felixlike

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/model"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

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

// begin makes the driver program its first state.
func (f *fixture) begin(t *testing.T, events ...datastore.Event) {
	t.Helper()
	f.attachmentsSynced()
	f.source.send(true, append([]datastore.Event{node("node1", "10.10.0.0/24")}, events...)...)
	if err := programmed(t, f); err != nil {
		t.Fatal(err)
	}
}

// patience bounds waits for expected events. It is no limit of their duration.
const patience = 30 * time.Second

// eventually polls until the condition holds.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !condition(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %s", patience, what)
		}
	}
}

func TestPeerWithoutTunnelAddressIsNamed(t *testing.T) {
	f := start(t)
	f.attachmentsSynced()
	peer := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node2"}, Spec: corev1.NodeSpec{PodCIDRs: []string{"10.10.1.0/24"}}}
	peer.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "fd00::2"}}
	f.source.send(true, node("node1", "10.10.0.0/24"), datastore.NodeSet{Node: peer})
	if err := programmed(t, f); err != nil {
		t.Fatal(err)
	}
	problems := f.Status().Problems
	if len(problems) != 1 || problems[0].Object.Name != "node2" || problems[0].Field != "status.addresses" {
		t.Errorf("problems %v", problems)
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
	ctx, cancel := context.WithTimeout(t.Context(), patience)
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

func TestNothingIsProgrammedBeforeAllIsKnown(t *testing.T) {
	f := start(t)
	f.source.send(false, node("node1", "10.10.0.0/24"))
	notProgrammed(t, f, "first batch, listing incomplete")
	f.source.send(true)
	notProgrammed(t, f, "attachments unknown")
	f.attachmentsSynced()
	if err := programmed(t, f); err != nil {
		t.Fatal(err)
	}
	if got, want := f.recorded.log(), []string{"netlink", "nftables", "openflow"}; !slices.Equal(got, want) {
		t.Errorf("applied %v, want %v once, in order", got, want)
	}
}

func TestOwnNodeMissingIsReported(t *testing.T) {
	f := start(t)
	f.attachmentsSynced()
	f.source.send(true, node("node2", "10.10.1.0/24"))
	notProgrammed(t, f, "own node unknown")
	problems := f.Status().Problems
	if len(problems) != 1 || problems[0].Object.Name != "node1" {
		t.Errorf("problems %v", problems)
	}
}

func TestOwnNodeLostKeepsPolicyGoing(t *testing.T) {
	f := start(t)
	f.attachmentsSynced()
	f.source.send(true, node("node1", "10.10.0.0/24"))
	if err := programmed(t, f); err != nil {
		t.Fatal(err)
	}
	f.source.send(true, datastore.NodeDeleted{Name: "node1"}, podOn("a", "node1"))
	if err := programmed(t, f); err != nil {
		t.Fatalf("changes are not programmed without this node's object: %v", err)
	}
	if p := f.Status().Problems; len(p) != 1 || p[0].Object.Name != "node1" {
		t.Errorf("problems %v", p)
	}
	f.source.send(true, node("node1", "10.10.0.0/24"))
	if p := f.Status().Problems; len(p) != 0 {
		t.Errorf("problems left: %v", p)
	}
}

func TestStageThatHangsIsCutOff(t *testing.T) {
	hung := backend.Stage{Name: "openflow", Timeout: 10 * time.Millisecond, Apply: func(ctx context.Context) (backend.Applied, error) {
		<-ctx.Done()
		return backend.Applied{}, ctx.Err()
	}}
	if _, err := hung.Run(t.Context()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
}

func TestRequiredStageHoldsBackLaterOnes(t *testing.T) {
	f := start(t)
	f.recorded.setFailure("nftables", errors.New("refused"))
	f.attachmentsSynced()
	f.source.send(true, node("node1", "10.10.0.0/24"))
	eventually(t, "the apply is tried again", func() bool { return len(f.recorded.log()) >= 6 })
	if got := f.recorded.log(); slices.Contains(got, "openflow") {
		t.Errorf("applied %v: flows must wait for policy", got)
	}
	if s := f.Status(); !strings.Contains(s.LastApply.Error, "nftables: refused") || s.Programmed != 0 {
		t.Errorf("status %+v", s)
	}
	f.recorded.setFailure("nftables", nil)
	if err := programmed(t, f); err != nil {
		t.Fatal(err)
	}
	if s := f.Status(); s.LastApply.Error != "" || s.Programmed != 1 {
		t.Errorf("after recovery: %+v", s)
	}
}

func TestSyncWaitsForPods(t *testing.T) {
	f := start(t)
	id := model.PodID{Namespace: "x", Name: "a"}
	f.attachmentsSynced()
	f.source.send(true, node("node1", "10.10.0.0/24"), podOn("a", "node1"))
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := f.Sync(ctx, []model.PodID{id}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a pod without an interface is programmed: %v", err)
	}
	f.attach("a")
	if err := programmed(t, f, id); err != nil {
		t.Fatal(err)
	}
	if e := f.Status().Endpoints; len(e) != 1 || e[0].State != control.EndpointProgrammed {
		t.Errorf("endpoints %+v", e)
	}
	f.attach("stranger")
	closed := func() bool {
		return slices.ContainsFunc(f.Status().Endpoints, func(e control.Endpoint) bool {
			return e.Name == "stranger" && e.State == control.EndpointClosed
		})
	}
	eventually(t, "a pod that the datastore does not know is closed", closed)
}

func TestProblemsNameTheFileAndGo(t *testing.T) {
	f := start(t)
	f.attachmentsSynced()
	bad := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "bad"}}
	bad.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{{IPBlock: &networkingv1.IPBlock{CIDR: "10.0.0.0/99"}}}}}
	f.source.send(true, node("node1", "10.10.0.0/24"), datastore.NetworkPolicySet{Policy: bad, Source: "bad.yaml"})
	if err := programmed(t, f); err != nil {
		t.Fatal(err)
	}
	problems := f.Status().Problems
	if len(problems) != 1 || problems[0].Source != "bad.yaml" || !strings.Contains(problems[0].Field, "spec.ingress[0].from[0].ipBlock") {
		t.Fatalf("problems %v", problems)
	}
	f.source.send(true, datastore.NetworkPolicyDeleted{Namespace: "x", Name: "bad"})
	if err := programmed(t, f); err != nil {
		t.Fatal(err)
	}
	if problems := f.Status().Problems; len(problems) != 0 {
		t.Errorf("problems left: %v", problems)
	}
}

func TestProblemsNameClusterNetworkPolicies(t *testing.T) {
	f := start(t)
	f.attachmentsSynced()
	bad := &v1alpha2.ClusterNetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "bad"}}
	bad.Spec.Tier, bad.Spec.Priority = v1alpha2.AdminTier, -1
	f.source.send(true, node("node1", "10.10.0.0/24"), datastore.ClusterNetworkPolicySet{Policy: bad, Source: "bad.yaml"})
	if err := programmed(t, f); err != nil {
		t.Fatal(err)
	}
	problems := f.Status().Problems
	if len(problems) == 0 || problems[0].Source != "bad.yaml" || problems[0].Object.String() != "ClusterNetworkPolicy bad" {
		t.Fatalf("problems %v", problems)
	}
	served, err := f.Objects(t.Context())
	if err != nil || len(served.ClusterPolicies) != 1 || served.ClusterPolicies[0].Name != "bad" {
		t.Errorf("served %v, %v", served.ClusterPolicies, err)
	}
	f.source.send(true, datastore.ClusterNetworkPolicyDeleted{Name: "bad"})
	if err := programmed(t, f); err != nil {
		t.Fatal(err)
	}
	if problems := f.Status().Problems; len(problems) != 0 {
		t.Errorf("problems left: %v", problems)
	}
}

func TestHostNetworkPodsAreNamed(t *testing.T) {
	f := start(t)
	f.attachmentsSynced()
	onHost := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "proxy"}, Spec: corev1.PodSpec{NodeName: "node1", HostNetwork: true}}
	all := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "all"}}
	f.source.send(true, node("node1", "10.10.0.0/24"), datastore.PodSet{Pod: onHost}, datastore.NetworkPolicySet{Policy: all, Source: "all.yaml"})
	if err := programmed(t, f); err != nil {
		t.Fatal(err)
	}
	problems := f.Status().Problems
	if len(problems) != 1 || problems[0].Source != "all.yaml" || !strings.Contains(problems[0].Reason, "x/proxy") {
		t.Fatalf("problems %v", problems)
	}
	f.source.send(true, datastore.PodDeleted{ID: model.PodID{Namespace: "x", Name: "proxy"}})
	if problems := f.Status().Problems; len(problems) != 0 {
		t.Errorf("problems left: %v", problems)
	}
}
