package egresselection

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

	mu     sync.Mutex
	wanted map[netip.Addr]model.Candidacy
	// holders are those of the last report.
	holders map[netip.Addr]string
	// leased reports that there is an address with an elected holder.
	leased bool
	woken  chan struct{}
}

// New returns an election that has not started. watch are the Leases that o.Leases reads.
func New(o Options, watch dynamic.ResourceInterface) *Election {
	return &Election{elector: newElector(o), watch: watch, woken: make(chan struct{}, 1)}
}

// Wanted takes all Egresses. This node may hold those of which it is a candidate.
func (e *Election) Wanted(all []model.EgressAddress) {
	wanted, leased := map[netip.Addr]model.Candidacy{}, false
	for _, a := range all {
		leased = leased || a.Leased
		if a.Leased && a.Candidacy != nil {
			wanted[a.Address] = *a.Candidacy
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.wanted, e.leased = wanted, leased
	wake(e.woken)
}

// patience is how long Run waits for the first listing before it reports that there are no holders.
const patience = 10 * time.Second

// Run takes part until ctx ends. It reports the holders of all addresses, after each change. Before the first Egress with an elected holder it
// asks the API server for nothing. It returns nil: nothing of it ends an agent.
func (e *Election) Run(ctx context.Context, report func(map[netip.Addr]string)) error {
	for !e.needed() {
		select {
		case <-ctx.Done():
			return nil
		case <-e.woken:
		}
	}
	waiting := time.AfterFunc(patience, func() { report(map[netip.Addr]string{}) })
	defer waiting.Stop()
	said := leases.Said{Log: e.elector.Log, What: "read the Leases of the addresses of Egresses", Effect: effect}
	changed := make(chan struct{}, 1)
	store, end := leases.Watch(ctx, e.watch, addressLeases, &said, func() { wake(changed) })
	defer end()
	if store == nil {
		return nil
	}
	waiting.Stop()
	last := e.read(store)
	report(last)
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
		if now := e.read(store); !maps.Equal(last, now) {
			last = now
			report(now)
		}
	}
}

func (e *Election) needed() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.leased
}

// read takes the holders from the store.
func (e *Election) read(store cache.Store) map[netip.Addr]string {
	now := holdersIn(store)
	e.mu.Lock()
	e.holders = now
	e.mu.Unlock()
	wake(e.woken)
	return now
}

// elect lets the elector do what it has to do, until ctx ends.
func (e *Election) elect(ctx context.Context) {
	for ctx.Err() == nil {
		e.mu.Lock()
		wanted, holders := e.wanted, e.holders
		e.mu.Unlock()
		wait := e.elector.step(ctx, wanted, holders)
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

// holdersIn returns the holder of each address that has one.
func holdersIn(store cache.Store) map[netip.Addr]string {
	all := map[netip.Addr]string{}
	for _, o := range store.List() {
		if u, ok := o.(*unstructured.Unstructured); ok {
			l := leases.Decode(u)
			if a := addressOf(l); a.IsValid() && l.Holder() != "" {
				all[a] = l.Holder()
			}
		}
	}
	return all
}
