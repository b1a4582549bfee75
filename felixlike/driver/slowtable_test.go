package driver

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/felixlike/driver/drivertest"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/rules"
)

// slowTable is a policy stage. Its Apply does not end before its deadline while a slow policy
// has more than two rules.
type slowTable struct {
	wanted map[string]int

	mu   sync.Mutex
	slow map[string]bool
	// misses is how many applies miss their deadline with any policy.
	misses int
	// gate holds applies back until it is closed, if it is not nil. entered counts the applies that began.
	gate    chan struct{}
	entered int
	// asked is what the newest apply was to program, with the count of rules by policy.
	asked map[string]int
	// applies are those that ended, each with the count of rules by policy.
	applies []map[string]int
}

func (s *slowTable) OnUpdate(u model.Update) {
	switch u := u.(type) {
	case model.PolicyUpdate:
		s.wanted[u.Policy.ID.String()] = len(u.Policy.Ingress)
	case model.PolicyRemove:
		delete(s.wanted, u.ID.String())
	}
}

func (s *slowTable) CompleteDeferredWork() {}

func (s *slowTable) apply(ctx context.Context) (backend.Applied, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.entered++
	s.asked = maps.Clone(s.wanted)
	if gate := s.gate; gate != nil {
		s.mu.Unlock()
		<-gate
		s.mu.Lock()
	}
	s.misses--
	for name, count := range s.wanted {
		if s.misses >= 0 || s.slow["*"] || s.slow[name] && count > 2 {
			s.mu.Unlock()
			<-ctx.Done()
			s.mu.Lock()
			return backend.Applied{}, fmt.Errorf("write the tables: %w", ctx.Err())
		}
	}
	s.applies = append(s.applies, maps.Clone(s.wanted))
	return backend.Applied{Writes: 1}, nil
}

// programmed returns the rules of the newest apply, by policy.
func (s *slowTable) programmed() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.applies[len(s.applies)-1]
}

func (s *slowTable) setSlow(names ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.slow = map[string]bool{}
	for _, name := range names {
		s.slow[name] = true
	}
}

// ruled is a policy of pod a or b with so many rules of so many ports each.
func ruled(name, pod string, count, ports int) datastore.Event {
	p := webPolicy().(datastore.NetworkPolicySet).Policy
	p.Name = name
	p.Spec.PodSelector.MatchLabels = map[string]string{"name": pod}
	p.Spec.Ingress = nil
	for range count {
		var r networkingv1.NetworkPolicyIngressRule
		for i := range ports {
			port := intstr.FromInt32(int32(2*i + 1))
			r.Ports = append(r.Ports, networkingv1.NetworkPolicyPort{Port: &port})
		}
		p.Spec.Ingress = append(p.Spec.Ingress, r)
	}
	return datastore.NetworkPolicySet{Policy: p, Source: name + ".yaml"}
}

func startSlow(t *testing.T, log *drivertest.LogBuffer, events ...datastore.Event) (*fixture, *slowTable) {
	t.Helper()
	f, table := newSlow(t, log)
	f.begin(t, append([]datastore.Event{labelled("a"), labelled("b")}, events...)...)
	f.Attach("a", "10.10.0.2")
	f.Attach("b", "10.10.0.3")
	if err := programmed(t, f, podA, podB); err != nil {
		t.Fatal(err)
	}
	return f, table
}

func newSlow(t *testing.T, log *drivertest.LogBuffer) (*fixture, *slowTable) {
	t.Helper()
	table := &slowTable{wanted: map[string]int{}}
	return startWith(t, Config{
		Stages:  []backend.Stage{{Name: "nftables", Required: true, Managers: drivertest.ManagersOf(table), Apply: table.apply, Timeout: 40 * time.Millisecond}},
		Backend: &drivertest.Backend{NameIs: "fake", RendererIs: rules.NewRenderer(model.GatewayPort, rules.NFTablesNameLength)}, Log: log.Logger(),
	}), table
}
