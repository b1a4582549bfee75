package property

import (
	"pgregory.net/rapid"

	"github.com/felixlike/felixlike/policy/oracle"
)

// connection is a flow on its path through routers.
type connection struct {
	flow
	hops []hop
}

// hop is one pass through a router: by which port the flow's packets come in
// there and back, and whether policy lets it through.
type hop struct {
	router   string
	in, back func(*router) *port
	allowed  bool
}

func gatewayOf(r *router) *port { return r.gateway }
func uplinkOf(r *router) *port  { return r.other }

// connections returns new connections for the packets that some router judges.
func (b *testbed) connections(packets []oracle.Packet) []connection {
	var all []connection
	for _, p := range packets {
		if hops := b.path(p); len(hops) > 0 {
			all = append(all, connection{flow{p, b.newID()}, hops})
		}
	}
	return all
}

// newID returns the next number. Those below 1024 are the ports of servers.
func (b *testbed) newID() uint16 {
	b.id = max(b.id+1, 1024)
	return b.id
}

// path returns the routers that judge a packet; none if no policy does, or the
// dataplane drops it for another reason.
func (b *testbed) path(p oracle.Packet) []hop {
	src, srcKnown := locate(b.cluster, p.Source)
	dst, dstKnown := locate(b.cluster, p.Destination)
	if !srcKnown || !dstKnown || p.Source == p.Destination || !src.pod && !dst.pod {
		return nil
	}
	v := b.cluster.Evaluate(p)
	switch sameNode := src.node == dst.node; {
	case sameNode && src.pod && dst.pod:
		return []hop{{src.node, gatewayOf, gatewayOf, v.Allowed}}
	case sameNode: // a pod and its own node: INPUT or OUTPUT, not FORWARD
		return nil
	}
	var hops []hop
	if src.pod {
		hops = append(hops, hop{src.node, gatewayOf, sideOf(dst), v.Egress.Allowed})
	}
	if dst.pod {
		hops = append(hops, hop{dst.node, sideOf(src), gatewayOf, v.Ingress.Allowed})
	}
	return hops
}

// sideOf returns the port by which packets of another place come in.
func sideOf(p place) func(*router) *port {
	if p.node == "" {
		return uplinkOf
	}
	return gatewayOf
}

// judgeNew opens the connections, and answers those that a router let through.
func (b *testbed) judgeNew(rt *rapid.T, all []connection) {
	b.send(rt, "opening", all, there, func(h hop) bool { return h.allowed })
	b.answers(rt, all)
}

// answers sends the answers past the routers that have allowed a connection.
func (b *testbed) answers(rt *rapid.T, all []connection) {
	b.send(rt, "answer of an allowed connection", only(all, func(h hop) bool { return h.allowed }), back, always)
}

// judgeEstablished has the connections come to be while there is no table. When
// there is one again, they are judged: one half by what the source sends next,
// the other by an answer, which is judged as a packet of its own then.
func (b *testbed) judgeEstablished(rt *rapid.T, all []connection) {
	for _, name := range b.names() {
		if err := b.routers[name].remove(); err != nil {
			rt.Fatalf("%s: %v", name, err)
		}
	}
	b.send(rt, "opening without a table", all, there, always)
	b.send(rt, "answer without a table", all, back, always)
	for _, name := range b.names() {
		b.routers[name].backend.Stage.Invalidate()
		if b.routers[name].program(rt) == 0 {
			rt.Fatalf("%s: nothing was written where there was no table", name)
		}
	}
	half := len(all) / 2
	forth, reversed := all[:half], b.reversed(all[half:])
	b.send(rt, "next packet of a connection made without a table", forth, more, func(h hop) bool { return h.allowed })
	b.answers(rt, forth)
	b.send(rt, "answer of a connection made without a table", reversed, back, func(h hop) bool { return h.allowed })
}

// reversed returns the connections with the verdicts that an answer gets if it is
// judged like a packet that opens one.
func (b *testbed) reversed(all []connection) []connection {
	var out []connection
	for _, c := range all {
		answer := oracle.Packet{Source: c.Destination, Destination: c.Source, Protocol: c.Protocol}
		if c.Port != 0 {
			answer.Port = c.id
		}
		judged := map[string]bool{}
		for _, h := range b.path(answer) {
			judged[h.router] = h.allowed
		}
		r := connection{flow: c.flow}
		for _, h := range c.hops {
			h.allowed = judged[h.router]
			r.hops = append(r.hops, h)
		}
		out = append(out, r)
	}
	return out
}

func always(hop) bool { return true }

// only returns the connections with those of their hops.
func only(all []connection, keep func(hop) bool) []connection {
	var out []connection
	for _, c := range all {
		kept := connection{flow: c.flow}
		for _, h := range c.hops {
			if keep(h) {
				kept.hops = append(kept.hops, h)
			}
		}
		out = append(out, kept)
	}
	return out
}

// direction is which packet of a flow is sent, and where it comes in.
type direction func(flow, hop) ([]byte, func(*router) *port)

func there(f flow, h hop) ([]byte, func(*router) *port) { return f.opening(), h.in }
func more(f flow, h hop) ([]byte, func(*router) *port)  { return f.more(), h.in }
func back(f flow, h hop) ([]byte, func(*router) *port)  { return f.answer(), h.back }

// send sends one packet of each connection past each of its hops, and fails
// where it does not go as wanted.
func (b *testbed) send(rt *rapid.T, what string, all []connection, d direction, want func(hop) bool) {
	for _, name := range b.names() {
		r := b.routers[name]
		var probes []probe
		flows := map[uint16]flow{}
		for _, c := range all {
			for _, h := range c.hops {
				if h.router == name {
					payload, in := d(c.flow, h)
					probes = append(probes, probe{id: c.id, in: in(r), payload: payload, want: want(h)})
					flows[c.id] = c.flow
				}
			}
		}
		if len(probes) == 0 {
			continue
		}
		through, err := r.forward(probes, b.newID)
		if err != nil {
			rt.Fatal(err)
		}
		wrong := false
		for _, p := range probes {
			b.verdicts[through[p.id]]++
			if f := flows[p.id]; through[p.id] != p.want {
				wrong = true
				rt.Errorf("%s, %s: %s id %d: through %v, wanted %v; the oracle says of the opening %+v",
					name, what, f, p.id, through[p.id], p.want, b.cluster.Evaluate(f.Packet))
			}
		}
		if wrong {
			rt.Fatalf("the cluster:\n%s", describe(b.cluster))
		}
	}
}
