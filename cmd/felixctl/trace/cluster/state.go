package cluster

import (
	"context"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"sync"

	reader "github.com/felixlike/felixlike/cmd/felixctl/dump/live"
	"github.com/felixlike/felixlike/cmd/felixctl/trace"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/internal/printable"
	"github.com/felixlike/felixlike/model"
)

// State is what trace reads of a node. With it, another node can follow packets through this one.
type State struct {
	Status control.Status `json:"status"`
	Model  control.Model  `json:"model"`
	Parts  []reader.Part  `json:"parts"`
	// Foreign are packets for which the firewalls of other programs were asked.
	Foreign []ForeignAnswer `json:"foreign,omitempty"`
}

// ForeignAnswer has the chains of other programs that drop a packet. The packet's own JSON is for people, and does not have all fields.
type ForeignAnswer struct {
	Source      netip.Addr           `json:"source"`
	Destination netip.Addr           `json:"destination"`
	Protocol    model.Protocol       `json:"protocol"`
	SourcePort  uint16               `json:"sourcePort"`
	Port        uint16               `json:"port"`
	In          string               `json:"in"`
	Out         string               `json:"out"`
	New         bool                 `json:"new"`
	Chains      []trace.ForeignChain `json:"chains,omitempty"`
}

func answerAbout(p trace.Forwarded, chains []trace.ForeignChain) ForeignAnswer {
	return ForeignAnswer{p.Source, p.Destination, p.Protocol, p.SourcePort, p.Port, p.In, p.Out, p.New, chains}
}

// isAbout reports whether the answer is about a packet.
func (a ForeignAnswer) isAbout(p trace.Forwarded) bool {
	about := answerAbout(p, nil)
	a.Chains = nil
	return reflect.DeepEqual(a, about)
}

// State returns what was read of the node, and what has been asked of it since.
func (n *Node) State() State {
	n.asked.Lock()
	defer n.asked.Unlock()
	return State{n.Status, n.Model, n.parts, n.asked.answers}
}

// asked are the questions to the firewalls of other programs, and their answers.
type asked struct {
	sync.Mutex
	answers []ForeignAnswer
	// unknown is set if there was a question without an answer.
	unknown bool
}

// From returns a node whose state was read elsewhere. A compromised node may have written it.
func From(s State) *Node {
	for i, p := range s.Parts {
		s.Parts[i].Text = printable.Lines(p.Text)
	}
	for _, v := range []any{&s.Status, &s.Model, s.Foreign} {
		printable.All(v)
	}
	return &Node{saved: &s}
}

// Elsewhere reports whether the node's state was read elsewhere.
func (n *Node) Elsewhere() bool { return n.saved != nil }

// Unasked reports whether the firewalls of other programs on the node were not asked about a packet.
func (n *Node) Unasked() bool {
	n.asked.Lock()
	defer n.asked.Unlock()
	return n.asked.unknown
}

// load takes over a state that was read elsewhere.
func (n *Node) load() error {
	n.Status, n.Model, n.parts = n.saved.Status, n.saved.Model, n.saved.Parts
	n.Name, n.Backend = n.Model.Node, n.Model.Backend
	if err := n.Model.Judges(); err != nil {
		return err
	}
	m := n.Model
	if slices.Contains(m.Nodes, nil) || slices.Contains(m.Policies, nil) || slices.Contains(m.Endpoints, nil) || slices.Contains(m.ServicePorts, nil) {
		return fmt.Errorf("the state of %s has null in its lists", n.Name)
	}
	return n.hold(func(p trace.Forwarded) ([]trace.ForeignChain, error) {
		for _, a := range n.saved.Foreign {
			if a.isAbout(p) {
				return a.Chains, nil
			}
		}
		n.asked.Lock()
		defer n.asked.Unlock()
		n.asked.unknown = true
		return nil, nil
	})
}

// hold parses what was read, and makes the node one that packets can be followed through.
func (n *Node) hold(foreign func(trace.Forwarded) ([]trace.ForeignChain, error)) (err error) {
	if n.Held, err = reader.Parse(n.parts); err != nil {
		return fmt.Errorf("read the state of %s: %w", n.Name, err)
	}
	n.Site = SiteOf(&n.Model, n.Held)
	n.Site.Foreign = foreign
	return nil
}

// remembered asks the firewalls of other programs, and keeps the answers for State.
func (n *Node) remembered(ctx context.Context) func(trace.Forwarded) ([]trace.ForeignChain, error) {
	var others *others
	return func(p trace.Forwarded) ([]trace.ForeignChain, error) {
		if others == nil {
			others = othersOf(n.NetNS, n.Site)
		}
		chains, err := others.dropping(ctx, p)
		if err == nil {
			n.asked.Lock()
			defer n.asked.Unlock()
			n.asked.answers = append(n.asked.answers, answerAbout(p, chains))
		}
		return chains, err
	}
}
