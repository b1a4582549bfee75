package kubernetes

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
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
	// servedPoll is how often an API server that has no ServiceCIDRs is asked
	// again: it may have been upgraded.
	servedPoll = 10 * time.Minute
	// forbiddenPoll is how often one is asked again that does not let us read them.
	forbiddenPoll = time.Minute
)

// retry is how long a reflector waits before it tries again. Policy is as old as
// the outage is long, so it waits less than client-go's half a minute.
func retry() wait.Backoff {
	return wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: 1, Steps: 10, Cap: 8 * time.Second}
}

// Options are what a Source is made of.
type Options struct {
	// Config says how to reach the API server.
	Config *rest.Config
	// Node is this node's name; it tells of the problems of its own pods.
	Node string
	Log  *slog.Logger
}

// Source reads the objects of a cluster. It is a datastore.Source.
type Source struct {
	node    string
	clients *clients
	kinds   [kinds]*kind
	state   *state
	log     *slog.Logger
	syncs   chan chan<- uint64
	ended   chan struct{}
}

// New returns a source that does not read yet. It fails if the configuration is
// none; that the API server is away is no failure.
func New(o Options) (*Source, error) {
	c, err := newClients(o.Config)
	if err != nil {
		return nil, err
	}
	return &Source{
		node: o.Node, clients: c, kinds: c.kinds(o.Node), state: newState(), log: o.Log,
		syncs: make(chan chan<- uint64), ended: make(chan struct{}),
	}, nil
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
	for _, k := range s.kinds {
		reading.Go(func() { s.read(ctx, k) })
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
	log := s.log.With("resource", k.name.resource().Resource)
	from := &source{kind: k, state: s.state, reconnects: &s.clients.reconnects, log: log}
	if k.name == kindServiceCIDR && !s.served(ctx, from) {
		return
	}
	logger := klogger(log)
	backoff := retry()
	reflector := cache.NewReflectorWithOptions(
		&cache.ListWatch{ListWithContextFunc: from.listAny, WatchFuncWithContext: from.Watch},
		&item{}, s.state.stores[k.name],
		cache.ReflectorOptions{Name: k.name.String(), Logger: &logger, Backoff: &backoff},
	)
	reflector.WatchListPageSize = pageSize
	reflector.RunWithContext(klog.NewContext(ctx, logger))
}

// served returns once the API server serves the kind, or false when ctx ends.
// Until then there are no objects of it, which is known as well as a list: what
// else there is does not wait.
//
// An API server that has just begun forbids everything until it has read its roles.
// So that is believed only of one that let all other kinds be read before.
func (s *Source) served(ctx context.Context, from *source) bool {
	backoff := retry()
	for {
		roles := s.othersSynced(from.name)
		_, err := from.list(ctx, metav1.ListOptions{Limit: 1})
		pause := servedPoll
		switch {
		case err == nil:
			return true
		case ctx.Err() != nil:
			return false
		case apierrors.IsNotFound(err):
			from.note(ctx, nil)
			s.absent(from.name)
			s.log.Info("the API server has no ServiceCIDRs: backend openflow needs the setting serviceCIDRs where pods use Services")
		case apierrors.IsForbidden(err) && roles:
			from.note(ctx, err)
			s.absent(from.name)
			pause = forbiddenPoll
		default:
			from.note(ctx, err)
			pause = backoff.Step()
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(pause):
		}
	}
}

// othersSynced reports whether all other kinds have been read.
func (s *Source) othersSynced(k kindName) bool {
	s.state.mu.Lock()
	defer s.state.mu.Unlock()
	for other, store := range s.state.stores {
		if kindName(other) != k && !store.synced {
			return false
		}
	}
	return true
}

// absent notes that there are no objects of a kind.
func (s *Source) absent(k kindName) {
	s.state.mu.Lock()
	defer s.state.mu.Unlock()
	s.state.stores[k].syncedLocked(true)
}
