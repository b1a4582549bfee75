package kubernetes

import (
	"context"
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/model"
)

// Recorder is a recorder without the clock.
type Recorder struct{ *recorder }

// NewRecorder returns a recorder of a node.
func NewRecorder(node string, o interface {
	UID(model.ObjectRef) (types.UID, bool)
	Nodes() []string
}, events rest.Interface,
) *Recorder {
	return &Recorder{newRecorder(node, exported{o}, events, slog.New(slog.DiscardHandler))}
}

// RecorderOf returns the recorder of a source's node, with the objects of the source.
func RecorderOf(s *Source, events rest.Interface) *Recorder {
	return &Recorder{newRecorder(s.node, s, events, slog.New(slog.DiscardHandler))}
}

// Look has the recorder record the notices of one moment.
func (r *Recorder) Look(ctx context.Context, notices []datastore.Notice, now time.Time) {
	r.record(ctx, notices, now)
}

type exported struct {
	o interface {
		UID(model.ObjectRef) (types.UID, bool)
		Nodes() []string
	}
}

func (e exported) uid(r model.ObjectRef) (types.UID, bool) { return e.o.UID(r) }
func (e exported) nodes() []string                         { return e.o.Nodes() }

// Dialer returns the dialer of the connections to the API server.
func Dialer() *net.Dialer { return dialer() }

// WatchFirst returns the first watch of NetworkPolicies, which begins with all of them, as
// the reflector sees it; w is the API server's watch.
func WatchFirst(ctx context.Context, w watch.Interface) (watch.Interface, error) {
	all := true
	k := &kind{name: kindPolicy, trim: trimPolicy, watch: func(context.Context, metav1.ListOptions) (watch.Interface, error) { return w, nil }}
	s := &source{kind: k, state: newState(), reconnects: &atomic.Uint64{}, log: slog.New(slog.DiscardHandler)}
	return s.Watch(ctx, metav1.ListOptions{SendInitialEvents: &all})
}

// Whole reports whether an object of a watch has all of it, which the store needs behind
// the first list.
func Whole(o runtime.Object) bool { return o.(*item).data != nil }

// AskEvery sets the interval between two looks for absent kinds.
func (s *Source) AskEvery(d time.Duration) {
	for _, o := range s.offers {
		o.every = d
	}
}
