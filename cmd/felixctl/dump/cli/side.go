package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/felixlike/felixlike/cmd/felixctl/dump"
	"github.com/felixlike/felixlike/cmd/felixctl/dump/live"
	"github.com/felixlike/felixlike/cmd/felixctl/dump/onepod"
	"github.com/felixlike/felixlike/cmd/felixctl/dump/wanted"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/internal/files"
)

// side is one of the two that are compared.
type side struct {
	// title describes the side.
	title string
	state *dump.State
	// model is the agent's model, nil if unknown.
	model *control.Model
	// busy reports that the agent was programming: the state may be half old, half new.
	busy bool
}

// narrow leaves the part of the state that judges one pod.
func (o *side) narrow(pod string) error {
	if o.model == nil {
		return fmt.Errorf("--pod: %s has no model, which names the addresses of pods", o.title)
	}
	id, err := control.ParsePod(pod)
	if err != nil {
		return fmt.Errorf("--pod: %w", err)
	}
	if o.state, err = onepod.Of(o.state, o.model, id); err != nil {
		return fmt.Errorf("--pod: %w", err)
	}
	return nil
}

// sidesHelp explains the arguments of diff.
const sidesHelp = `  live              observed: the node's state now
  wanted            desired: the state for the agent's model
  backend:NAME      desired under another backend
  snapshot:NAME     a saved state (felixctl snapshot save NAME); NAME alone will do
  FILE, or -        output of nft list ruleset, iptables-save, ipset save or
                    ovs-ofctl dump-flows, one or several behind one another
  FOLDER            desired if these manifests were the cluster`

// sides resolves the arguments.
type sides struct {
	agent     agent
	snapshots store
	// backend is that of live state and of folders; node is the node for folders.
	backend, node string
	everything    bool
	in            io.Reader
	// asked is the agent's model, after the first question.
	asked *control.Model
}

// pair resolves both arguments. A folder takes from the other side the facts that
// manifests do not have.
func (s *sides) pair(ctx context.Context, names [2]string) (out [2]*side, err error) {
	for i, name := range names {
		if !isFolder(name) {
			if out[i], err = s.resolve(ctx, name); err != nil {
				return out, err
			}
		}
	}
	for i, name := range names {
		if isFolder(name) {
			var like *control.Model
			if other := out[1-i]; other != nil {
				like = other.model
			}
			if out[i], err = s.folder(ctx, name, like); err != nil {
				return out, err
			}
		}
	}
	return out, nil
}

func isFolder(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.IsDir()
}

func (s *sides) resolve(ctx context.Context, name string) (*side, error) {
	kind, rest, prefixed := strings.Cut(name, ":")
	switch {
	case name == "live":
		return s.live(ctx)
	case name == "wanted":
		return s.wanted(ctx, "")
	case prefixed && kind == "backend":
		return s.wanted(ctx, rest)
	case prefixed && kind == "snapshot":
		return s.snapshot(rest)
	case name == "-":
		return s.listing(name, s.in)
	}
	if _, err := os.Stat(name); err == nil {
		file, err := files.Open(name, maxListing)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		return s.listing(name, file)
	}
	if s.snapshots.has(name) {
		return s.snapshot(name)
	}
	return nil, fmt.Errorf("%q is no file, no folder and no snapshot (in %s). It may be:\n%s", name, s.snapshots.dir, sidesHelp)
}

func (s *sides) live(ctx context.Context) (*side, error) {
	r, err := s.agent.read(ctx, live.Options{Backend: s.backend, Services: true, Everything: s.everything})
	if err != nil {
		return nil, err
	}
	state, err := live.Parse(r.parts)
	if err != nil {
		return nil, err
	}
	if r.model == nil {
		return &side{title: "live (no agent runs, " + s.backend + ")", state: state}, nil
	}
	backend := cmp.Or(s.backend, r.model.Backend)
	return &side{title: fmt.Sprintf("live (%s, %s)", r.model.Node, backend), state: state, model: r.model, busy: r.busy}, nil
}

// model asks the agent, once.
func (s *sides) model(ctx context.Context) (*control.Model, error) {
	if s.asked == nil {
		m, err := s.agent.client().Model(ctx)
		if err != nil {
			return nil, err
		}
		s.asked = &m
	}
	return s.asked, nil
}

func (s *sides) wanted(ctx context.Context, backend string) (*side, error) {
	m, err := s.model(ctx)
	if err != nil {
		return nil, err
	}
	if backend == "" {
		backend = m.Backend
	}
	state, err := wanted.Of(m, backend)
	if err != nil {
		return nil, err
	}
	return &side{title: fmt.Sprintf("wanted (%s, %s)", m.Node, backend), state: state, model: m}, nil
}

func (s *sides) snapshot(name string) (*side, error) {
	saved, err := s.snapshots.load(name)
	if err != nil {
		return nil, err
	}
	state, err := live.Parse(saved.Parts)
	if err != nil {
		return nil, fmt.Errorf("snapshot %s: %w", name, err)
	}
	title := fmt.Sprintf("snapshot %s (%s, %s, %s)", name, saved.Model.Node, saved.Model.Backend, saved.At.Format(time.DateTime))
	return &side{title: title, state: state, model: saved.Model}, nil
}

func (s *sides) listing(name string, in io.Reader) (*side, error) {
	state, err := dump.Parse(files.Bounded(in, maxListing))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return &side{title: name, state: state}, nil
}

// folder computes the state for manifests. Without the other side's model it asks the
// agent, if one runs.
func (s *sides) folder(ctx context.Context, dir string, like *control.Model) (*side, error) {
	if like == nil {
		m, err := s.model(ctx)
		if err != nil && !control.NotRunning(err) {
			return nil, err
		}
		like = m
	}
	node, backend := s.node, s.backend
	if like != nil && node == "" {
		node = like.Node
	}
	if like != nil && like.Node != node {
		like = nil
	}
	if like != nil && backend == "" {
		backend = like.Backend
	}
	if node == "" || backend == "" {
		return nil, errors.New("without an agent, a folder of manifests needs --for-node and --backend")
	}
	m, problems, err := wanted.FromManifests(ctx, dir, node, like)
	if err != nil {
		return nil, err
	}
	for _, p := range problems {
		return nil, fmt.Errorf("%s: %w", dir, p)
	}
	m.Backend = backend
	state, err := wanted.Of(m, backend)
	if err != nil {
		return nil, err
	}
	return &side{title: fmt.Sprintf("%s (%s, %s)", dir, node, backend), state: state, model: m}, nil
}

// modelOr returns the side's model, or the other side's: it may know some names.
func (s *side) modelOr(other *side) *control.Model {
	if s.model != nil {
		return s.model
	}
	return other.model
}

var errNoModel = errors.New("neither side has a model with the pods to compare: use a snapshot, live, wanted or a folder of manifests")
