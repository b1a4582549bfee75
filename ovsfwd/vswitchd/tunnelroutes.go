package vswitchd

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/felixlike/felixlike/model"
)

const (
	// routesEvery is the time between two rounds of questions of a TunnelRoutes.
	routesEvery = 3 * time.Second
	// routesAsked is the number of peers that a round asks for, beside those with a wrong answer before.
	routesAsked = 4
)

// TunnelRoutes asks ovs-vswitchd by which port, and from which address, it would send tunnel packets to peers. On the
// userspace datapath the switch has a routing table of its own, made from that of the host: a route or address that
// another program adds can lead the node's tunnels elsewhere, and the peers drop packets from another source.
type TunnelRoutes struct {
	client *Client
	bridge string

	mu    sync.Mutex
	self  string
	nodes map[string]*model.Node
	// last is the peer that was asked for last: peers are asked for in the order of their names.
	last string
	// wrong has the peers whose last answer was wrong.
	wrong map[string]answer
}

// answer is a wrong answer, and how many have come in turn.
type answer struct {
	times int
	why   string
}

// NewTunnelRoutes returns a TunnelRoutes of the node of that name. bridge is the one that tunnel packets must leave by.
func NewTunnelRoutes(rundir, bridge, node string) *TunnelRoutes {
	return &TunnelRoutes{client: New(rundir, ""), bridge: bridge, self: node, nodes: map[string]*model.Node{}, wrong: map[string]answer{}}
}

// OnUpdate takes updates of nodes.
func (r *TunnelRoutes) OnUpdate(u model.Update) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch u := u.(type) {
	case model.NodeUpdate:
		r.nodes[u.Node.Name] = u.Node
	case model.NodeRemove:
		delete(r.nodes, u.Name)
		delete(r.wrong, u.Name)
	}
}

// CompleteDeferredWork does nothing.
func (r *TunnelRoutes) CompleteDeferredWork() {}

// Run asks until ctx ends.
func (r *TunnelRoutes) Run(ctx context.Context) error {
	for {
		r.round(ctx)
		select {
		case <-time.After(routesEvery):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// round asks for some peers.
func (r *TunnelRoutes) round(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, routesEvery)
	defer cancel()
	self, peers := r.next()
	for _, peer := range peers {
		why, err := r.differs(ctx, self, peer)
		if err != nil {
			return // the Watcher reports a switch that does not answer
		}
		r.mu.Lock()
		if why == "" {
			delete(r.wrong, peer.Name)
		} else {
			r.wrong[peer.Name] = answer{r.wrong[peer.Name].times + 1, why}
		}
		r.mu.Unlock()
	}
}

// next returns this node, and the peers to ask for.
func (r *TunnelRoutes) next() (self *model.Node, peers []*model.Node) {
	r.mu.Lock()
	defer r.mu.Unlock()
	self = r.nodes[r.self]
	if self == nil {
		return nil, nil
	}
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(r.nodes)), func(name string) bool {
		return name == r.self || !self.OuterOf(r.nodes[name]).IsValid()
	})
	first, _ := slices.BinarySearch(names, r.last+"\x00")
	names = append(names[first:], names[:first]...)
	for i, name := range names {
		if _, suspect := r.wrong[name]; suspect || i < routesAsked {
			peers = append(peers, r.nodes[name])
		}
		if i < routesAsked {
			r.last = name
		}
	}
	return self, peers
}

// differs returns what is wrong with the way of tunnel packets to a peer, or "".
func (r *TunnelRoutes) differs(ctx context.Context, self, peer *model.Node) (string, error) {
	to := self.OuterOf(peer)
	out, err := r.client.Call(ctx, "ovs/route/lookup", to.String())
	if refused := new(CallError); errors.As(err, &refused) {
		return fmt.Sprintf("the switch has no route to %s, %s (%s)", peer.Name, to, refused.Reason), nil
	}
	if err != nil {
		return "", err
	}
	found := map[string]string{}
	for line := range strings.Lines(out) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		found[name] = value
	}
	source, err := netip.ParseAddr(found["src"])
	switch {
	case found["dev"] != r.bridge:
		return fmt.Sprintf("the switch sends tunnel packets to %s, %s, by %s and not by %s: look for other routes to it (ip route show)", peer.Name, to, found["dev"], r.bridge), nil
	case to.Is6() && (err != nil || source != self.Outer()):
		// The switch heeds the local address of IPv4 tunnels alone.
		return fmt.Sprintf("the switch sends tunnel packets to %s, %s, from %s and not from %s, so %s drops them: look for other addresses (ip -6 address show dev %s)",
			peer.Name, to, found["src"], self.Outer(), peer.Name, r.bridge), nil
	}
	return "", nil
}

// Problems returns what is wrong for some peers, each seen twice, in the order of their names.
func (r *TunnelRoutes) Problems() (all []string) {
	all, _ = r.state()
	return all
}

// Problem returns what is wrong if it is so for all peers, else "": one peer with an odd address is no fault of this
// node.
func (r *TunnelRoutes) Problem() string {
	if all, everywhere := r.state(); everywhere {
		return all[0]
	}
	return ""
}

func (r *TunnelRoutes) state() (all []string, everywhere bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(r.wrong)) {
		if a := r.wrong[name]; a.times > 1 {
			all = append(all, a.why)
		}
	}
	peers := 0
	if self := r.nodes[r.self]; self != nil {
		for name, n := range r.nodes {
			if name != r.self && self.OuterOf(n).IsValid() {
				peers++
			}
		}
	}
	return all, len(all) > 0 && len(all) == peers
}
