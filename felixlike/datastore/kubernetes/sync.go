package kubernetes

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// syncPage is how many names one page of a look at the API server has.
const syncPage = 2000

// Sync reads the API server's present objects, and waits until all of them have been delivered. It fails if
// the API server cannot be read.
//
// The version of a list is that of the whole cluster. A watch learns it only when an object of its kind
// changes, or by a bookmark a minute later. So names and versions are compared instead.
func (s *Source) Sync(ctx context.Context) (uint64, error) {
	g, gctx := errgroup.WithContext(ctx)
	for _, k := range s.kinds.read() {
		g.Go(func() error {
			there, err := s.look(gctx, k.name)
			if err == nil {
				err = s.reach(gctx, k.name, there)
			}
			if err != nil {
				return fmt.Errorf("kubernetes: %s: %w", k.name.plural(), err)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return 0, err
	}
	answer := make(chan uint64, 1)
	select {
	case s.syncs <- answer:
	case <-ctx.Done():
		return 0, ctx.Err()
	case <-s.ended:
		return 0, errEnded
	}
	select {
	case revision := <-answer:
		return revision, nil
	case <-ctx.Done():
		return 0, ctx.Err()
	case <-s.ended:
		return 0, errEnded
	}
}

// there is the API server's content of a kind at one moment.
type there struct {
	// version is that of the moment, newest that of the newest object.
	version, newest uint64
	names           map[key]bool
	// absent reports that the server does not serve the kind, or not to this agent.
	absent bool
}

// look asks the API server for the names and versions of all objects of a kind.
func (s *Source) look(ctx context.Context, k kindName) (*there, error) {
	t := &there{names: map[key]bool{}}
	absent := s.isAbsent(k)
	o := metav1.ListOptions{FieldSelector: k.fields(), LabelSelector: k.labels(), Limit: syncPage}
	for {
		page, err := s.clients.metadata.Resource(k.resource()).List(ctx, o)
		if k.definition().optional && apierrors.IsNotFound(err) || absent && apierrors.IsForbidden(err) {
			return &there{absent: true}, nil
		}
		if err != nil {
			return nil, err
		}
		if absent {
			s.appear(k)
			absent = false
		}
		t.version = number(page.ResourceVersion)
		for i := range page.Items {
			m := &page.Items[i]
			t.names[key{m.Namespace, m.Name}] = true
			t.newest = max(t.newest, number(m.ResourceVersion))
		}
		if o.Continue = page.Continue; o.Continue == "" {
			return t, nil
		}
	}
}

// appear notes that a kind is served that was absent.
func (s *Source) appear(k kindName) {
	select {
	case s.appeared[k] <- struct{}{}:
	default:
	}
}

func (s *Source) isAbsent(k kindName) bool {
	s.state.mu.Lock()
	defer s.state.mu.Unlock()
	return s.state.stores[k].absent
}

// reach waits until the store of a kind has caught up with t.
func (s *Source) reach(ctx context.Context, k kindName, t *there) error {
	for {
		s.state.mu.Lock()
		reached, moved := s.state.stores[k].knowsLocked(t), s.state.moved
		s.state.mu.Unlock()
		if reached {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		case <-s.ended:
			return errEnded
		}
	}
}

// knowsLocked reports whether the store has caught up with t: it has received t's newest change, and its
// objects that t lacks are newer.
func (s *store) knowsLocked(t *there) bool {
	if s.absent || t.absent || !s.synced {
		return s.absent && t.absent
	}
	if s.seen >= t.version {
		return true
	}
	if s.seen < t.newest {
		return false
	}
	for k, r := range s.records {
		if r.version <= t.version && !t.names[k] {
			return false
		}
	}
	return true
}
