package election

import (
	"context"
	"maps"
	"net/netip"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"github.com/felixlike/felixlike/felixlike/leases"
	"github.com/felixlike/felixlike/model"
)

// Election takes part in the elections of a node.
type Election struct {
	elector *elector
	watch   dynamic.ResourceInterface

	mu   sync.Mutex
	view view
	// generation is that of the last report.
	generation uint64
	// leased reports that there is an address with an elected holder.
	leased bool
	woken  chan struct{}
}

// New returns an election that has not started. watch are the Leases that o.Leases reads.
func New(o Options, watch dynamic.ResourceInterface) *Election {
	return &Election{elector: newElector(o), watch: watch, woken: make(chan struct{}, 1)}
}

// Wanted takes all Egresses, and the generation of the Leases that they are of. This node may hold those of which it is a candidate.
func (e *Election) Wanted(all []model.EgressAddress, generation uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.leased = e.view.wishes(all)
	e.view.settled = generation == e.generation
	wake(e.woken)
}

// patience is how long Run waits for the first listing before it reports that there are no Leases.
const patience = 10 * time.Second

// Run takes part until ctx ends. It reports the Leases of all addresses, after each change. Before the first Egress with an elected holder it
// asks the API server for nothing. It returns nil: nothing of it ends an agent.
func (e *Election) Run(ctx context.Context, report func(model.EgressLeases)) error {
	for !e.needed() {
		select {
		case <-ctx.Done():
			return nil
		case <-e.woken:
		}
	}
	waiting := time.AfterFunc(patience, func() { report(model.EgressLeases{Leases: map[netip.Addr]model.EgressLease{}}) })
	defer waiting.Stop()
	said := leases.Said{Log: e.elector.Log, What: "read the Leases of the addresses of Egresses", Effect: effect}
	changed := make(chan struct{}, 1)
	store, end := leases.Watch(ctx, e.watch, addressLeases, &said, func() { wake(changed) })
	defer end()
	if store == nil {
		return nil
	}
	waiting.Stop()
	e.read(store, report)
	elected := make(chan struct{})
	defer func() { <-elected }()
	go func() {
		defer close(elected)
		e.elect(ctx)
	}()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
		e.read(store, report)
	}
}

func (e *Election) needed() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.leased
}

// read takes the Leases from the store, and reports a change.
func (e *Election) read(store cache.Store, report func(model.EgressLeases)) {
	now := leasesIn(store)
	e.mu.Lock()
	if e.generation > 0 && maps.Equal(now, e.view.leases) {
		e.mu.Unlock()
		return
	}
	e.generation++
	e.view.leases, e.view.settled = now, false
	generation := e.generation
	e.mu.Unlock()
	wake(e.woken)
	report(model.EgressLeases{Generation: generation, Leases: now})
}

// elect lets the elector do what it has to do, until ctx ends.
func (e *Election) elect(ctx context.Context) {
	for ctx.Err() == nil {
		e.mu.Lock()
		v := e.view
		e.mu.Unlock()
		wait := e.elector.step(ctx, v)
		select {
		case <-ctx.Done():
		case <-e.woken:
		case <-time.After(wait):
		}
	}
}

func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// leasesIn returns the Leases of addresses.
func leasesIn(store cache.Store) map[netip.Addr]model.EgressLease {
	all := map[netip.Addr]model.EgressLease{}
	for _, o := range store.List() {
		if u, ok := o.(*unstructured.Unstructured); ok {
			l := leases.Decode(u)
			if a := addressOf(l); a.IsValid() {
				all[a] = contentOf(l)
			}
		}
	}
	return all
}
