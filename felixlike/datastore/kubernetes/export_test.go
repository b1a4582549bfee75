package kubernetes

import (
	"context"
	"log/slog"
	"net"
	"time"

	"k8s.io/apimachinery/pkg/types"
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
