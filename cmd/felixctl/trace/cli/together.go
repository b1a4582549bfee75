package cli

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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

// maxState bounds the unpacked state of a node.
const maxState = 1 << 30

// readOthers reads standard input.
func (o *options) readOthers(in io.Reader) error {
	o.others = others{}
	if err := json.NewDecoder(files.Bounded(in, maxState)).Decode(&o.others.Others); err != nil {
		return fmt.Errorf("--%s: %w", together.With, err)
	}
	for node, packed := range o.others.States {
		var s cluster.State
		if err := unpack(packed, &s); err != nil {
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
	// The packets' other end may be unknown here: what matters are the questions that it asks on the way.
	_, _ = w.answer(ctx, q)
	packed := gzip.NewWriter(out)
	return errors.Join(json.NewEncoder(packed).Encode(w.Nodes[0].State()), packed.Close())
}

func unpack(packed []byte, into *cluster.State) error {
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return err
	}
	return json.NewDecoder(files.Bounded(r, maxState)).Decode(into)
}

// nodesOf names the nodes that a packet of the question may meet: first the one that translates the addresses of Services, or else judges
// the source.
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
	to, err := q.destinations(ctx, w, agent)
	if err != nil {
		return nil, fmt.Errorf("--to: %w", err)
	}
	var nodes []string
	add := func(node string) {
		if node != "" && !slices.Contains(nodes, node) {
			nodes = append(nodes, node)
		}
	}
	for _, a := range to {
		add(w.HostAt(a))
	}
	for _, a := range slices.Concat(from.addrs, to) {
		add(w.NodeOf(a))
		add(w.HostAt(a))
	}
	return nodes, nil
}

// destinations are the addresses to which a packet of the question may come.
func (q *query) destinations(ctx context.Context, w *cluster.World, agent *control.Client) ([]netip.Addr, error) {
	all, err := servicesOf(ctx, &cluster.Node{Agent: agent})
	if err != nil {
		return nil, err
	}
	to, err := findEnd(q.options.to, w.Objects, q.services)
	name, isService := servicelist.Named(q.options.to)
	if all.Proxy {
		for _, s := range all.Services {
			if !isService && !slices.ContainsFunc(to.addrs, func(a netip.Addr) bool { return hasFrontend(s, a) }) || isService && s.Namespace+"/"+s.Name != name {
				continue
			}
			var addrs []netip.Addr
			for _, p := range s.Ports {
				for _, e := range p.Endpoints {
					addrs = append(addrs, e.Address.Addr())
				}
			}
			return addrs, nil
		}
	}
	if err != nil || to.service == nil {
		return to.addrs, err
	}
	targets, err := endpoints(to.service, q.port, w.Objects)
	var addrs []netip.Addr
	for _, t := range targets {
		addrs = append(addrs, t.addrs...)
	}
	return addrs, err
}

func hasFrontend(s control.Service, a netip.Addr) bool {
	for _, p := range s.Ports {
		if slices.ContainsFunc(p.Frontends, func(f control.ServiceFrontend) bool { return f.Address == a }) {
			return true
		}
	}
	return false
}
