package cli

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"time"

	"github.com/felixlike/felixlike/cmd/felixctl/trace"
	"github.com/felixlike/felixlike/cmd/felixctl/trace/cluster"
	"github.com/felixlike/felixlike/cmd/felixctl/trace/live"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/ovsdb"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
)

// liveWait bounds the wait for a real packet: it is sent again meanwhile.
const liveWait = 2 * time.Second

// sendLive sends the packet and watches it.
func (w *world) sendLive(ctx context.Context, p trace.Packet) (*live.Observed, error) {
	// A random source port makes it a new connection.
	p.SourcePort = uint16(61000 + rand.IntN(4000))
	r := live.Request{Packet: p, Wait: liveWait, Names: w.Names}
	var source, destination *cluster.Node
	var toPod net.HardwareAddr
	for _, n := range w.Nodes {
		for _, a := range n.Site.Attachments {
			if slices.Contains(a.Addresses, p.Source) && !n.Elsewhere() { // the other's switch cannot be reached from here
				source, r.From = n, a
			}
			if slices.Contains(a.Addresses, p.Destination) && !n.Elsewhere() {
				destination = n
				r.Destination, r.Arrives, toPod = n.Node, a.Interface, a.MAC
			}
		}
	}
	switch {
	case source == nil:
		return nil, errors.New("a live packet needs a source pod on the node that answers: name its node (--node)")
	case r.From.OFPort == 0:
		return nil, fmt.Errorf("%s has no port on the bridge", r.From.Pod)
	case slices.Contains(r.From.Addresses, p.Destination):
		return nil, errors.New("packets of a pod to itself never leave it")
	}
	r.Source, r.Bridge, r.To = source.Node, source.Model.Settings.Bridge, source.Site.GatewayMAC
	r.Watched = []live.Node{source.Node}
	if r.Destination.Name != source.Name {
		if destination != nil {
			r.Watched = append(r.Watched, r.Destination)
			r.Second = secondBridge(source, destination, toPod, p.Family())
		}
	}
	return live.Send(ctx, r)
}

// secondBridge says how a packet comes to the bridge of the second node: by the tunnel, or through the host.
func secondBridge(source, destination *cluster.Node, pod net.HardwareAddr, f model.Family) live.Arrival {
	for _, n := range destination.Site.Nodes {
		if n.Name == source.Name && destination.Site.Way(n, f) == model.ByTunnel {
			return live.Arrival{Port: ovsdb.TunnelOFPort, From: source.Site.GatewayMAC, To: pipeline.VirtualMAC(), Outer: n.Outer()}
		}
	}
	return live.Arrival{Port: ovsdb.GatewayOFPort, From: destination.Site.GatewayMAC, To: pod}
}

// compareLive compares the real packet with the computed path.
func (w *world) compareLive(r *result, path *trace.Path) {
	computed := path.Opinion()
	if r.Live.Known && r.Live.Through != computed.Through && r.Disagreement == "" {
		r.Disagreement = fmt.Sprintf("by programmed state the packet is %s (%s), but the real one: %s", r.Verdict, computed.Why, r.Live.Why)
	}
	r.Notes = append(r.Notes, r.Live.Notes...)
}
