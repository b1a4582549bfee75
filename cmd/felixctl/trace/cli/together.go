package cli

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"

	"github.com/felixlike/felixlike/cmd/felixctl/trace/cluster"
	"github.com/felixlike/felixlike/cmd/felixctl/trace/together"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/internal/files"
	"github.com/felixlike/felixlike/internal/servicelist"
)

// others are what the command gets from other nodes (--with).
type others struct {
	together.Others
	states []cluster.State
}

// Bounds of what a compromised node can make of the memory of another one: of standard input, and of all states together, unpacked.
const (
	maxOthers = 512 << 20
	maxStates = 256 << 20
)

// readOthers reads standard input.
func (o *options) readOthers(in io.Reader) error {
	o.others = others{}
	if err := json.NewDecoder(files.Bounded(in, maxOthers)).Decode(&o.others.Others); err != nil {
		return fmt.Errorf("--%s: %w", together.With, err)
	}
	left := int64(maxStates)
	for _, node := range slices.Sorted(maps.Keys(o.others.States)) {
		var s cluster.State
		if err := unpack(o.others.States[node], &s, &left); err != nil {
			o.others.Silence(node, err.Error())
			continue
		}
		if s.Model.Node != node {
			o.others.Silence(node, fmt.Sprintf("its agent says that it is %q", s.Model.Node))
			continue
		}
		o.others.states = append(o.others.states, s)
	}
	return nil
}

// answerOthers answers what kubectl felixlike asks before the question itself.
func (o *options) answerOthers(ctx context.Context, q *query, out io.Writer) error {
	if o.writes {
		return o.writeState(ctx, q, out)
	}
	nodes, err := o.nodesOf(ctx, q)
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(nodes)
}

// writeState writes the node's state, with the answers of its firewalls about the packets of the question.
func (o *options) writeState(ctx context.Context, q *query, out io.Writer) error {
	w, err := o.readWorld(ctx)
	if err != nil {
		return err
	}
	w.options.live = false // the node that answers sends it
	// The packets' other end may be unknown here: what matters are the questions that it asks on the way.
	_, _ = w.answer(ctx, q)
	packed := gzip.NewWriter(out)
	return errors.Join(json.NewEncoder(packed).Encode(w.Nodes[0].State()), packed.Close())
}

// unpack reads a state of at most left bytes, and takes them off.
func unpack(packed []byte, into *cluster.State, left *int64) error {
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return err
	}
	text, err := io.ReadAll(files.Bounded(r, *left))
	*left -= int64(len(text))
	if err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}

// nodesOf names the nodes that a packet of the question may meet: first the one that translates the packet. To the address of a node
// it is that node, else the one of the source.
func (o *options) nodesOf(ctx context.Context, q *query) ([]string, error) {
	agent := control.NewClient(o.Socket())
	w, err := cluster.ReadObjects(ctx, agent)
	if err != nil {
		return nil, err
	}
	from, err := findEnd(o.from, w.Objects, q.services)
	if err != nil {
		return nil, fmt.Errorf("--from: %w", err)
	}
	to, isService, err := q.destinations(ctx, w, agent)
	if err != nil {
		return nil, fmt.Errorf("--to: %w", err)
	}
	var nodes []string
	add := func(node string) {
		if node != "" && !slices.Contains(nodes, node) {
			nodes = append(nodes, node)
		}
	}
	if !isService {
		for _, a := range to {
			add(w.HostAt(a))
		}
	}
	for _, a := range slices.Concat(from.addrs, to) {
		add(w.NodeOf(a))
		add(w.HostAt(a))
	}
	return nodes, nil
}

// destinations are the addresses to which a packet of the question may come, and whether they are endpoints of a Service.
func (q *query) destinations(ctx context.Context, w *cluster.World, agent *control.Client) (addrs []netip.Addr, isService bool, err error) {
	all, err := servicesOf(ctx, &cluster.Node{Agent: agent})
	if err != nil {
		return nil, false, err
	}
	to, err := findEnd(q.options.to, w.Objects, q.services)
	name, byName := servicelist.Named(q.options.to)
	if all.Proxy {
		for _, s := range all.Services {
			if !byName && !slices.ContainsFunc(to.addrs, func(a netip.Addr) bool { return hasFrontend(s, a) }) || byName && s.Namespace+"/"+s.Name != name {
				continue
			}
			for _, p := range s.Ports {
				for _, e := range p.Endpoints {
					addrs = append(addrs, e.Address.Addr())
				}
			}
			return addrs, true, nil
		}
	}
	if err != nil || to.service == nil {
		return to.addrs, false, err
	}
	targets, err := endpoints(to.service, q.port, w.Objects)
	for _, t := range targets {
		addrs = append(addrs, t.addrs...)
	}
	return addrs, true, err
}

func hasFrontend(s control.Service, a netip.Addr) bool {
	for _, p := range s.Ports {
		if slices.ContainsFunc(p.Frontends, func(f control.ServiceFrontend) bool { return f.Address == a }) {
			return true
		}
	}
	return false
}
