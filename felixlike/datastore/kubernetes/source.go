package kubernetes

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/model"
)

const (
	// gather is the least time between two batches. A change after a quiet time is
	// delivered at once, a storm in parts.
	gather = 10 * time.Millisecond
	// pageSize is how many objects are asked for at once, where they do not come as
	// a stream.
	pageSize = 500
	// forbiddenPoll is how often one is asked again that does not let us read them.
	forbiddenPoll = time.Minute
)

// retry is how long a reflector waits before it tries again. Policy is as old as
// the outage is long, so it waits less than client-go's half a minute.
func retry() wait.Backoff {
	return wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: 1, Steps: 10, Cap: 8 * time.Second}
}

// Options are the parameters of a Source.
type Options struct {
	// Config says how to reach the API server.
	Config *rest.Config
	// Node is this node's name; the source records Events about the problems of its pods.
	Node string
	// Servers are the API servers, host:port, that take the place of the one in Config. The first that answers is used.
	Servers []string
	// Services has Services and EndpointSlices read.
	Services bool
	// NetNamespaces has NetNamespaces, HostSubnets and EgressNetworkPolicies read, where the API server serves them.
	NetNamespaces bool
	Log           *slog.Logger
}

// Source reads the objects of a cluster. It is a datastore.Source.
type Source struct {
	node    string
	config  *rest.Config
	servers []string
	// replaced is set if servers take the place of the one in config.
	replaced bool
	clients  *clients
	kinds    kindList
	state    *state
	log      *slog.Logger
	// offers are the groups with kinds that an API server may lack.
	offers []*offer
	// appeared has an element when a kind is served that was absent.
	appeared [kinds]chan struct{}
	syncs    chan chan<- uint64
	ended    chan struct{}
}

// New returns a source that does not read yet. It fails if the configuration is
// none; that the API server is away is no failure.
func New(o Options) (*Source, error) {
	c, err := newClients(o.Config, o.Servers)
	if err != nil {
		return nil, err
	}
	s := &Source{
		node: o.Node, config: o.Config, servers: serversOf(o.Config, o.Servers), replaced: len(o.Servers) > 0, clients: c, kinds: c.kinds(o), state: newState(), log: o.Log,
		offers: newOffers(o.Log),
		syncs:  make(chan chan<- uint64), ended: make(chan struct{}),
	}
	for k, read := range s.kinds {
		s.state.stores[k].synced = read == nil
	}
	for k := range s.appeared {
		s.appeared[k] = make(chan struct{}, 1)
	}
	return s, nil
}

var errEnded = errors.New("the kubernetes source has ended")

// Run delivers the cluster's objects until ctx ends.
func (s *Source) Run(ctx context.Context, deliver func(datastore.Batch)) error {
	defer close(s.ended)
	defer s.clients.close()
	ctx, cancel := context.WithCancel(ctx)
	var reading sync.WaitGroup
	defer reading.Wait()
	defer cancel()
	for _, k := range s.kinds.read() {
		reading.Go(func() { s.read(ctx, k) })
	}
	for _, o := range s.offers {
		reading.Go(func() { o.run(ctx, s.clients, s.appear) })
	}
	b := &batches{log: s.log, deliver: deliver, faults: map[model.ObjectRef][]model.Problem{}, prefixes: map[string][]netip.Prefix{}}
	var last time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case answer := <-s.syncs:
			b.publish(s.state.take(s.kinds))
			answer <- b.revision
			continue
		case <-s.state.wake:
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Until(last.Add(gather))):
		}
		last = time.Now()
		b.publish(s.state.take(s.kinds))
	}
}

// read keeps the objects of a kind up to date until ctx ends.
func (s *Source) read(ctx context.Context, k *kind) {
	log := s.log.With("resource", k.name.plural())
	for ctx.Err() == nil {
		from := &source{kind: k, state: s.state, reconnects: &s.clients.reconnects, log: log}
		if k.name.definition().optional && !s.served(ctx, from) {
			return
		}
		s.reflect(ctx, from)
	}
}

// reflect keeps the objects of a kind up to date until ctx ends, or the API server does
// not serve the kind any more.
func (s *Source) reflect(ctx context.Context, from *source) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	from.gone = cancel
	logger := klogger(from.log)
	backoff := retry()
	reflector := cache.NewReflectorWithOptions(
		&cache.ListWatch{ListWithContextFunc: from.listAny, WatchFuncWithContext: from.Watch},
		&item{}, s.state.stores[from.name],
		cache.ReflectorOptions{Name: from.name.String(), Logger: &logger, Backoff: &backoff},
	)
	reflector.WatchListPageSize = pageSize
	reflector.RunWithContext(klog.NewContext(ctx, logger))
}

// served returns once the API server serves the kind, or false when ctx ends. Until then the kind counts as
// read and empty, so that the other kinds do not wait for it.
//
// An API server that has just begun forbids everything until it has read its roles.
// So that is believed only of one that let all other kinds be read before. It is never
// believed of a kind whose objects deny something: without them, pods would be open.
// An API server without the kind forbids it as well, so its discovery is asked then.
func (s *Source) served(ctx context.Context, from *source) bool {
	backoff := retry()
	offer := s.offer(from.name)
	for {
		roles := s.othersSynced(from.name)
		_, err := from.list(ctx, metav1.ListOptions{Limit: 1})
		denies := from.name.definition().denies
		if denies && apierrors.IsForbidden(err) && s.clients.unserved(ctx, from.name) {
			err = apierrors.NewNotFound(from.name.resource().GroupResource(), "")
		}
		var again <-chan time.Time
		switch {
		case err == nil:
			offer.note(from.name, true)
			return true
		case ctx.Err() != nil:
			return false
		case apierrors.IsNotFound(err):
			from.note(ctx, nil)
			s.state.absent(from.name)
			offer.note(from.name, false)
		case apierrors.IsForbidden(err) && roles && !denies:
			from.note(ctx, err)
			s.state.absent(from.name)
			again = time.After(wait.Jitter(forbiddenPoll, 0.5))
		default:
			from.note(ctx, err)
			again = time.After(backoff.Step())
		}
		select {
		case <-ctx.Done():
			return false
		case <-s.appeared[from.name]:
		case <-again:
		}
	}
}

// offer returns the offer of an optional kind.
func (s *Source) offer(k kindName) *offer {
	at := slices.IndexFunc(s.offers, func(o *offer) bool { return slices.Contains(o.members, k) })
	return s.offers[at]
}

// othersSynced reports whether all other kinds have been read that every cluster has.
func (s *Source) othersSynced(k kindName) bool {
	s.state.mu.Lock()
	defer s.state.mu.Unlock()
	for other, store := range s.state.stores {
		if kindName(other) != k && !kindName(other).definition().optional && !store.synced {
			return false
		}
	}
	return true
}
