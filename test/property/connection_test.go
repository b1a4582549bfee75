package property

import (
	"fmt"
	"strings"

	"pgregory.net/rapid"

	"github.com/felixlike/felixlike/felixlike/policy/oracle"
	"github.com/felixlike/felixlike/model"
)

// connection is a flow on its path past sites.
type connection struct {
	flow
	hops []hop
}

// hop is one pass through a site: where the packets come in and go out on the way
// there, and whether policy lets them through.
type hop struct {
	site    string
	in, out end
	allowed bool
}

// connections returns new connections for the packets that some site judges.
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

// path returns the sites that a packet goes past; none if there is nothing to
// judge there, or the dataplane drops it for another reason than policy.
func (b *testbed) path(p oracle.Packet) []hop {
	src, srcKnown := locate(b.cluster, p.Source)
	dst, dstKnown := locate(b.cluster, p.Destination)
	if !srcKnown || !dstKnown || p.Source == p.Destination {
		return nil
	}
	v := b.cluster.Evaluate(p)
	var hops []hop
	for _, name := range b.names() {
		h := hop{site: name, in: endAt(name, p.Source, src), out: endAt(name, p.Destination, dst)}
		switch in, out := h.in.side, h.out.side; {
		case in == localPod && out == localPod:
			h.allowed = v.Allowed
		case in != localPod && out != localPod:
			continue
		case in == ownNode || out == ownNode:
			if !b.sites[name].switchesOwn() {
				continue
			}
			h.allowed = true
		case in == localPod:
			h.allowed = v.Egress.Allowed
		default:
			h.allowed = v.Ingress.Allowed
		}
		hops = append(hops, h)
	}
	return hops
}

// judgeNew opens the connections, and answers those that a router let through.
func (b *testbed) judgeNew(rt rapid.TB, all []connection) {
	b.send(rt, "opening", all, there, func(h hop) bool { return h.allowed })
	b.answers(rt, all)
}

// answers sends the answers past the sites that have allowed a connection.
func (b *testbed) answers(rt rapid.TB, all []connection) {
	b.send(rt, "answer of an allowed connection", only(all, func(h hop) bool { return h.allowed }), back, always)
}

// judgeDenied has both ends of connections that are denied in both directions go on
// as if they were not. None of these packets passes, although one end's policy may allow
// some of them.
func (b *testbed) judgeDenied(rt *rapid.T, all []connection) {
	answers := b.reversed(all)
	var denied []connection
	for i, c := range all {
		kept := connection{flow: c.flow}
		for j, h := range c.hops {
			if !h.allowed && !answers[i].hops[j].allowed {
				kept.hops = append(kept.hops, h)
			}
		}
		denied = append(denied, kept)
	}
	for range 2 {
		for _, d := range []direction{there, back, more} {
			b.send(rt, "packet of a connection that is denied both ways", denied, d, func(hop) bool { return false })
		}
	}
}

// judgeEstablished opens the connections without policy, as far
// as their ends can see, or nothing passes where that is safer. When there is policy
// again, it judges them: one half by the source's next packet, the other by an
// answer, which is then judged as a packet by itself.
func (b *testbed) judgeEstablished(rt *rapid.T, all []connection) {
	for _, name := range b.names() {
		if err := b.sites[name].wipe(); err != nil {
			rt.Fatalf("%s: %v", name, err)
		}
	}
	open := func(h hop) bool { return b.sites[h.site].openWithoutPolicy() }
	b.send(rt, "opening without a table", all, there, open)
	b.send(rt, "answer without a table", all, back, open)
	for _, name := range b.names() {
		b.sites[name].plane().invalidate()
		if b.sites[name].plane().program(rt) == 0 {
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
		answer.Port = c.id
		if c.Protocol.IsICMP() {
			_, code := model.ICMPTypeAndCode(c.Port)
			answer.Port = model.ICMPMessage(c.reply(), code)
		}
		judged := map[string]bool{}
		for _, h := range b.path(answer) {
			judged[h.site] = h.allowed
		}
		r := connection{flow: c.flow}
		for _, h := range c.hops {
			h.allowed = judged[h.site]
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

// direction chooses the packet of a flow, and its source and destination.
type direction func(flow, hop) (payload []byte, in, out end)

func there(f flow, h hop) ([]byte, end, end) { return f.opening(), h.in, h.out }
func more(f flow, h hop) ([]byte, end, end)  { return f.more(), h.in, h.out }
func back(f flow, h hop) ([]byte, end, end)  { return f.answer(), h.out, h.in }

// send sends one packet of each connection past each of its hops, and fails
// where it does not go as wanted.
func (b *testbed) send(rt rapid.TB, what string, all []connection, d direction, want func(hop) bool) {
	for _, name := range b.names() {
		s := b.sites[name]
		var probes []probe
		flows := map[uint16]flow{}
		for _, c := range all {
			for _, h := range c.hops {
				if h.site == name {
					payload, in, out := d(c.flow, h)
					probes = append(probes, probe{id: c.id, in: in, out: out, payload: payload, want: want(h)})
					flows[c.id] = c.flow
				}
			}
		}
		if len(probes) == 0 {
			continue
		}
		through, err := forward(s, probes, b.newID)
		if err != nil {
			rt.Fatal(err)
		}
		var wrong strings.Builder
		for _, p := range probes {
			b.verdicts[through[p.id]]++
			if f := flows[p.id]; through[p.id] != p.want {
				fmt.Fprintf(&wrong, "\n%s, %s: %s id %d: through %v, wanted %v; the oracle says of the opening %+v",
					name, what, f, p.id, through[p.id], p.want, b.cluster.Evaluate(f.Packet))
			}
		}
		if wrong.Len() > 0 {
			// In one message: where it does not fail again, rapid prints no other.
			rt.Fatalf("the cluster:\n%s%s", describe(b.cluster), &wrong)
		}
	}
}
