package drivertest

import (
	"context"
	"net/netip"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/model"
)

// Source is a datastore that a test feeds.
type Source struct {
	batches chan datastore.Batch
	// delivered answers each batch once it is in the driver's hands.
	delivered chan struct{}
	// ended is closed when the driver takes no more batches.
	ended    chan struct{}
	revision uint64
	mu       sync.Mutex
}

func (s *Source) Run(ctx context.Context, deliver func(datastore.Batch)) error {
	defer close(s.ended)
	for {
		select {
		case <-ctx.Done():
			return nil
		case b := <-s.batches:
			deliver(b)
			s.delivered <- struct{}{} // SendBatch waits for it, also after the end
		}
	}
}

func (s *Source) Sync(context.Context) (uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.revision, nil
}

// Send delivers events as the next revision.
func (s *Source) Send(inSync bool, events ...datastore.Event) {
	s.SendBatch(datastore.Batch{Events: events, InSync: inSync})
}

// SendBatch delivers a batch as the next revision, to a driver that has not ended.
func (s *Source) SendBatch(b datastore.Batch) {
	s.mu.Lock()
	s.revision++
	b.Revision = s.revision
	s.mu.Unlock()
	select {
	case s.batches <- b:
		<-s.delivered
	case <-s.ended:
	}
}

// Stages records the order of applies and fails on demand.
type Stages struct {
	mu      sync.Mutex
	applied []string
	Fail    map[string]error
}

func (s *Stages) Stage(name string, required bool) backend.Stage {
	return backend.Stage{Name: name, Required: required, Apply: func(context.Context) (backend.Applied, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.applied = append(s.applied, name)
		return backend.Applied{Writes: 1}, s.Fail[name]
	}}
}

func (s *Stages) SetFailure(name string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Fail[name] = err
	s.applied = nil
}

func (s *Stages) Log() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.applied)
}

// Inputs are what a driver is fed with: a datastore, and the attached pods.
type Inputs struct {
	Source  *Source
	Updates chan func(update func(model.Update), synced func())
}

func NewInputs() *Inputs {
	return &Inputs{
		Source:  &Source{batches: make(chan datastore.Batch), delivered: make(chan struct{}), ended: make(chan struct{})},
		Updates: make(chan func(func(model.Update), func())),
	}
}

// Attachments delivers what a test attaches and detaches, until ctx ends.
func (f *Inputs) Attachments(ctx context.Context, update func(model.Update), synced func()) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case u := <-f.Updates:
			u(update, synced)
		}
	}
}

func (f *Inputs) AttachmentsSynced() {
	f.Updates <- func(_ func(model.Update), synced func()) { synced() }
}

func (f *Inputs) Attach(pod string, addresses ...string) {
	a := &model.Attachment{Pod: model.PodID{Namespace: "x", Name: pod}, Interface: "veth-" + pod}
	for _, addr := range addresses {
		a.Addresses = append(a.Addresses, netip.MustParseAddr(addr))
	}
	f.Updates <- func(update func(model.Update), _ func()) { update(model.AttachmentUpdate{Attachment: a}) }
}

func (f *Inputs) Detach(pod string, portOnly bool) {
	f.Updates <- func(update func(model.Update), _ func()) {
		update(model.AttachmentRemove{Pod: model.PodID{Namespace: "x", Name: pod}, Interface: "veth-" + pod, PortOnly: portOnly})
	}
}

func Node(name, cidr string) datastore.Event {
	return datastore.NodeSet{Source: "nodes.yaml", Node: &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.NodeSpec{PodCIDR: cidr, PodCIDRs: []string{cidr}},
		Status:     corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.168.50.11"}}},
	}}
}

func PodOn(name, node string) datastore.Event {
	return datastore.PodSet{Pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: name}, Spec: corev1.PodSpec{NodeName: node}}}
}
