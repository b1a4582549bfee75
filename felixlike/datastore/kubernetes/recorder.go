package kubernetes

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"log/slog"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/model"
)

const (
	// lookEvery is the interval between two looks at the problems. A problem that is gone at the next look
	// gets no Event.
	lookEvery = 5 * time.Second
	// repeatEvery is the interval between two Events of a lasting problem. API servers keep Events for an
	// hour.
	repeatEvery = 30 * time.Minute
	// recorders is the number of nodes that record a problem seen by all nodes; each waits takeOver for the
	// one before it. Their Events have one name, so the API server keeps one.
	recorders = 3
	takeOver  = 20 * time.Second
	// atOnce and perLook bound how many Events are written: a thousand bad policies
	// are not a thousand requests of every node.
	atOnce  = 25
	perLook = 5
)

// RecordEvents reports problems to users, as Events, until ctx ends. Look returns all present problems.
func (s *Source) RecordEvents(ctx context.Context, look func(context.Context) ([]datastore.Notice, error)) error {
	r := newRecorder(s.node, s, s.clients.events, s.log)
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
		r.record(ctx, notices, time.Now())
	}
}

// objects knows the objects of the cluster.
type objects interface {
	// uid returns the UID of an object if it is known.
	uid(model.ObjectRef) (types.UID, bool)
	// nodes returns the names of all nodes.
	nodes() []string
}

// recorder decides when to write an Event about a problem.
type recorder struct {
	node    string
	objects objects
	writer  writer
	log     *slog.Logger
	// problems holds the state of each present problem, by the name of its Event.
	problems map[string]*problemState
	// left is how many Events may be written now.
	left int
	// refused reports that the last write was refused.
	refused bool
}

// problemState is the state of one present problem.
type problemState struct {
	// due is the time of the next Event; first reports that none was written yet.
	due   time.Time
	first bool
	// own is set if this node repeats the Event, independent of other nodes.
	own   bool
	count int32
}

// record writes the Events that are due.
func (r *recorder) record(ctx context.Context, notices []datastore.Notice, now time.Time) {
	r.left = min(r.left+perLook, atOnce)
	var nodes []string
	there := map[string]bool{}
	for _, n := range notices {
		uid, known := r.objects.uid(n.Object)
		if !known {
			continue
		}
		name := r.name(n, uid)
		if there[name] {
			continue
		}
		there[name] = true
		state := r.problems[name]
		if state == nil {
			if nodes == nil {
				nodes = r.objects.nodes()
			}
			state = &problemState{first: true}
			r.problems[name] = state
			rank := r.rank(n, name, nodes)
			state.own = rank == 0
			state.due = now.Add(lookEvery/2 + time.Duration(rank)*takeOver)
			if rank >= recorders {
				state.due = time.Time{}
			}
			continue
		}
		if !state.due.IsZero() && !state.due.After(now) && r.left > 0 {
			r.left--
			r.write(ctx, n, uid, name, state, now)
		}
	}
	for name := range r.problems {
		if !there[name] {
			delete(r.problems, name)
		}
	}
}

// write writes an Event, and sees to it that it stays.
func (r *recorder) write(ctx context.Context, n datastore.Notice, uid types.UID, name string, state *problemState, now time.Time) {
	e := eventOf(n, uid, name, r.node, now)
	var err error
	if state.own && !state.first {
		err = r.writer.repeat(ctx, e, state.count+1, now)
	} else {
		err = r.writer.create(ctx, e)
	}
	if err != nil {
		// It is tried again at the next look.
		r.log.Log(ctx, r.level(), "cannot record an Event about a problem", "event", e.Name, "error", err)
		r.refused = true
		return
	}
	r.refused = false
	state.first = false
	state.count++
	state.due = now.Add(repeatEvery)
}

// level returns Warn for the first failure and Debug for the next ones.
func (r *recorder) level() slog.Level {
	if r.refused {
		return slog.LevelDebug
	}
	return slog.LevelWarn
}

// name returns the name of the Event: the same for the same problem, on all nodes
// that know it, and in every life of an agent.
func (r *recorder) name(n datastore.Notice, uid types.UID) string {
	h := sha256.New()
	object := n.Object.Kind + " " + strings.TrimPrefix(n.Object.Namespace+"/"+n.Object.Name, "/") // as in earlier versions
	for _, part := range []string{object, string(uid), n.Kind, n.Field, n.Reason} {
		h.Write([]byte(part))
		h.Write([]byte{0})
	}
	if n.Known == datastore.KnownHere {
		h.Write([]byte(r.node))
	}
	// A name has at most 253 bytes.
	return n.Object.Name[:min(len(n.Object.Name), 200)] + "." + hex.EncodeToString(h.Sum(nil)[:8])
}

// rank returns the number of nodes that record the problem before this one. It is 0 for a problem that only
// some nodes know: the first one that writes creates the Event.
func (r *recorder) rank(n datastore.Notice, name string, nodes []string) int {
	if n.Known != datastore.KnownToAll {
		return 0
	}
	mine, before := weight(r.node, name), 0
	for _, other := range nodes {
		if other != r.node && weight(other, name) < mine {
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

func newRecorder(node string, o objects, events rest.Interface, log *slog.Logger) *recorder {
	return &recorder{node: node, objects: o, writer: writer{events}, log: log, problems: map[string]*problemState{}, left: atOnce}
}

// uid implements objects.
func (s *Source) uid(ref model.ObjectRef) (types.UID, bool) {
	k := slices.IndexFunc(s.kinds[:], func(k *kind) bool { return k != nil && k.name.String() == ref.Kind })
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
