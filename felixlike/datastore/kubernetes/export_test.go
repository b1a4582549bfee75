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

// Teller is what tells, without the clock.
type Teller struct{ *teller }

// NewTeller returns a teller of a node.
func NewTeller(node string, o interface {
	UID(model.ObjectRef) (types.UID, bool)
	Nodes() []string
}, events rest.Interface,
) *Teller {
	return &Teller{newTeller(node, exported{o}, events, slog.New(slog.DiscardHandler))}
}

// Look has the teller look at what there is at a moment.
func (t *Teller) Look(ctx context.Context, notices []datastore.Notice, now time.Time) {
	t.tell(ctx, notices, now)
}

type exported struct {
	o interface {
		UID(model.ObjectRef) (types.UID, bool)
		Nodes() []string
	}
}

func (e exported) uid(r model.ObjectRef) (types.UID, bool) { return e.o.UID(r) }
func (e exported) nodes() []string                         { return e.o.Nodes() }

// Dialer returns what connects to the API server.
func Dialer() *net.Dialer { return dialer() }
