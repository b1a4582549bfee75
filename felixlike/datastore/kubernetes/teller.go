package kubernetes

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"log/slog"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/model"
)

const (
	// lookEvery is how often problems are looked at. One that is not there at the
	// next look was a passing one: nobody is told.
	lookEvery = 5 * time.Second
	// repeatEvery is how often users are told of what lasts. API servers keep Events
	// for an hour.
	repeatEvery = 30 * time.Minute
	// speakers is how many nodes tell of what all know, and standIn how long each
	// waits for the one before it. What two of them tell has one name: the API
	// server keeps one.
	speakers = 3
	standIn  = 20 * time.Second
	// atOnce and perLook bound how many Events are written: a thousand bad policies
	// are not a thousand requests of every node.
	atOnce  = 25
	perLook = 5
)

// Tell tells users of problems, as Events, until ctx ends. Look returns all that
// there are now.
func (s *Source) Tell(ctx context.Context, look func(context.Context) ([]datastore.Notice, error)) error {
	t := newTeller(s.node, s, s.clients.events, s.log)
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		notices, err := look(ctx)
		if err != nil {
			return nil // the agent is stopping
		}
		t.tell(ctx, notices, time.Now())
	}
}

// objects tells of the objects of the cluster.
type objects interface {
	// uid returns the UID of an object if it is known.
	uid(model.ObjectRef) (types.UID, bool)
	// nodes returns the names of all nodes.
	nodes() []string
}

// teller decides what is told when.
type teller struct {
	node    string
	objects objects
	writer  writer
	log     *slog.Logger
	// told has what is known of each problem, by the name of its Event.
	told map[string]*telling
	// left is how many Events may be written now.
	left int
	// refused tells that the last write was refused.
	refused bool
}

// telling is a problem that lasts, or may.
type telling struct {
	// due is when it is to be told next; first tells that it was not told yet.
	due   time.Time
	first bool
	// own tells that the Event is to be written by this node whatever others do.
	own   bool
	count int32
}

// tell writes the Events that are due.
func (t *teller) tell(ctx context.Context, notices []datastore.Notice, now time.Time) {
	t.left = min(t.left+perLook, atOnce)
	var nodes []string
	there := map[string]bool{}
	for _, n := range notices {
		uid, known := t.objects.uid(n.Object)
		if !known {
			continue
		}
		name := t.name(n, uid)
		if there[name] {
			continue
		}
		there[name] = true
		state := t.told[name]
		if state == nil {
			if nodes == nil {
				nodes = t.objects.nodes()
			}
			state = &telling{first: true}
			t.told[name] = state
			rank := t.rank(n, name, nodes)
			state.own = rank == 0
			state.due = now.Add(lookEvery/2 + time.Duration(rank)*standIn)
			if rank >= speakers {
				state.due = time.Time{}
			}
			continue
		}
		if !state.due.IsZero() && !state.due.After(now) && t.left > 0 {
			t.left--
			t.write(ctx, n, uid, name, state, now)
		}
	}
	for name := range t.told {
		if !there[name] {
			delete(t.told, name)
		}
	}
}

// write writes an Event, and sees to it that it stays.
func (t *teller) write(ctx context.Context, n datastore.Notice, uid types.UID, name string, state *telling, now time.Time) {
	e := eventOf(n, uid, name, t.node, now)
	var err error
	if state.own && !state.first {
		err = t.writer.repeat(ctx, e, state.count+1, now)
	} else {
		err = t.writer.create(ctx, e)
	}
	if err != nil {
		// It is tried again at the next look.
		t.log.Log(ctx, t.level(), "cannot tell users of a problem", "event", e.Name, "error", err)
		t.refused = true
		return
	}
	t.refused = false
	state.first = false
	state.count++
	state.due = now.Add(repeatEvery)
}

// level returns how loud a failure is told: once, it is worth knowing.
func (t *teller) level() slog.Level {
	if t.refused {
		return slog.LevelDebug
	}
	return slog.LevelWarn
}

// name returns the name of the Event: the same for the same problem, on all nodes
// that know it, and in every life of an agent.
func (t *teller) name(n datastore.Notice, uid types.UID) string {
	h := sha256.New()
	for _, part := range []string{n.Object.String(), string(uid), n.Kind, n.Field, n.Reason} {
		h.Write([]byte(part))
		h.Write([]byte{0})
	}
	if n.Known == datastore.KnownHere {
		h.Write([]byte(t.node))
	}
	// A name has at most 253 bytes.
	return n.Object.Name[:min(len(n.Object.Name), 200)] + "." + hex.EncodeToString(h.Sum(nil)[:8])
}

// rank returns how many other nodes are to tell before this one does. What some
// know, the first one that does tells.
func (t *teller) rank(n datastore.Notice, name string, nodes []string) int {
	if n.Known != datastore.KnownToAll {
		return 0
	}
	mine, before := weight(t.node, name), 0
	for _, other := range nodes {
		if other != t.node && weight(other, name) < mine {
			before++
		}
	}
	return before
}

// weight orders the nodes, for each problem in another way.
func weight(node, name string) uint64 {
	sum := sha256.Sum256([]byte(node + "\x00" + name))
	return binary.BigEndian.Uint64(sum[:])
}

func newTeller(node string, o objects, events rest.Interface, log *slog.Logger) *teller {
	return &teller{node: node, objects: o, writer: writer{events}, log: log, told: map[string]*telling{}, left: atOnce}
}

// uid implements objects.
func (s *Source) uid(ref model.ObjectRef) (types.UID, bool) {
	k := slices.IndexFunc(s.kinds[:], func(k *kind) bool { return k.name.String() == ref.Kind })
	if k < 0 {
		return "", false
	}
	s.state.mu.Lock()
	defer s.state.mu.Unlock()
	uid, known := s.state.stores[k].uids[key{ref.Namespace, ref.Name}]
	return uid, known
}

// nodes implements objects.
func (s *Source) nodes() []string {
	s.state.mu.Lock()
	defer s.state.mu.Unlock()
	var all []string
	for k := range s.state.stores[kindNode].records {
		all = append(all, k.name)
	}
	return all
}
