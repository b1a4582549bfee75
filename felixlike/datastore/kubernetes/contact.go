package kubernetes

import (
	"context"
	"errors"
	"log/slog"
	"net/url"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/felixlike/felixlike/model"
)

// contact has why the last request for each kind failed, or "".
type contact [kinds]string

// reasonOf returns why a request failed. Its URL, which is in the text of the error
// and different each time, is left out.
func reasonOf(err error) string {
	var about *url.Error
	switch {
	case err == nil:
		return ""
	case errors.As(err, &about):
		err = about.Err
	}
	return err.Error()
}

// problems returns one problem for all kinds that fail for the same reason.
func (c *contact) problems() []model.Problem {
	var problems []model.Problem
	about := map[string]int{}
	for k, reason := range c {
		if reason == "" {
			continue
		}
		resource := kindName(k).plural()
		if at, same := about[reason]; same {
			problems[at].Field += ", " + resource
			continue
		}
		about[reason] = len(problems)
		problems = append(problems, model.Problem{
			Object: model.ObjectRef{Kind: "datastore", Name: "kubernetes"}, Field: resource,
			Reason: "cannot be read: " + reason + "; the known objects stay in force",
		})
	}
	return problems
}

// source is a kind's list and watch, from which a reflector reads. It records their failures.
type source struct {
	*kind
	state      *state
	reconnects *atomic.Uint64
	log        *slog.Logger
	// gone ends the reading; missing counts the lists in a row that were not found.
	gone    func()
	missing int
}

// missingLists is how many lists in a row are not found before an optional kind counts
// as removed. They take a second or more: one of several API servers may learn of a
// CustomResourceDefinition later than another.
const missingLists = 4

// List asks for all objects as they are now. The reflector would take a list
// from a cache of any age, but then an agent that restarts may go back in time.
//
// A list with a minimal version is not asked for in pages: with a limit the API server takes the minimal
// version for an exact one. After the server's restart an agent would then see the past, until etcd has
// compacted it.
func (s *source) List(ctx context.Context, o metav1.ListOptions) (*itemList, error) {
	switch o.ResourceVersion {
	case "0":
		o.ResourceVersion = ""
	case "":
	default:
		o.Limit = 0
	}
	o.FieldSelector, o.LabelSelector = s.name.fields(), s.name.labels()
	list, err := s.list(ctx, o)
	if s.missed(err) {
		s.note(ctx, nil)
		s.log.Info("the API server does not serve this kind any more: its objects are gone", "kind", s.name.String())
		s.state.absent(s.name)
		s.gone()
		return nil, err
	}
	if s.note(ctx, err); err != nil {
		return nil, err
	}
	items, err := s.items(list)
	if err != nil {
		return nil, err
	}
	for at, o := range items.Items {
		items.Items[at] = s.state.stores[s.name].ahead(ctx, o.(*item))
	}
	return items, nil
}

// missed reports whether a list says that an optional kind was removed. No other error
// says so.
func (s *source) missed(err error) bool {
	if !s.name.definition().optional || !apierrors.IsNotFound(err) {
		s.missing = 0
		return false
	}
	s.missing++
	return s.missing >= missingLists
}

func (s *source) listAny(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	l, err := s.List(ctx, o)
	if err != nil {
		return nil, err
	}
	return l, nil
}

// Watch asks for changes, or for all objects and then changes.
func (s *source) Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	o.FieldSelector, o.LabelSelector = s.name.fields(), s.name.labels()
	reconnects := s.reconnects.Load()
	streams := o.SendInitialEvents != nil && *o.SendInitialEvents
	w, err := s.watch(ctx, o)
	if err != nil {
		if !(streams && apierrors.IsInvalid(err)) { // it will list instead
			s.note(ctx, err)
		}
		return nil, err
	}
	s.note(ctx, nil)
	initial := streams
	changed := func(e watch.Event) watch.Event {
		e = s.event(e)
		i, is := e.Object.(*item)
		switch {
		case !is:
		case i.initialEnd:
			initial = false
		case initial && (e.Type == watch.Added || e.Type == watch.Modified):
			// Later objects may come here before the reflector has put the list in the
			// store. That step deletes objects that are not in the list.
			e.Object = s.state.stores[s.name].ahead(ctx, i)
		}
		return e
	}
	return newWatcher(w, changed, o.ResourceVersion, streams, func() bool {
		now := s.reconnects.Load()
		return now != reconnects || now%2 == 1
	}), nil
}

// note takes down how a request went.
func (s *source) note(ctx context.Context, err error) {
	if ctx.Err() != nil || apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return
	}
	s.state.mu.Lock()
	defer s.state.mu.Unlock()
	before, now := s.state.contact[s.name], reasonOf(err)
	s.state.contact[s.name] = now
	switch {
	case now == before:
	case now != "":
		s.log.Warn("cannot be read from the API server, the known objects stay in force", "error", now)
		s.state.changedLocked()
	default:
		s.log.Info("read from the API server again")
		s.state.changedLocked()
	}
}
