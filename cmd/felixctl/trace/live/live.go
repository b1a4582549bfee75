package live

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/felixlike/felixlike/cmd/felixctl/trace"
	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
)

// Request is the packet to send, and the nodes and interfaces to watch.
type Request struct {
	Packet trace.Packet
	// From is the interface of the pod that sends, on the node Source; the packet goes
	// to the MAC address To.
	Source Node
	From   *model.Attachment
	To     net.HardwareAddr
	Bridge string
	// Watched are the nodes on the way, the source's first.
	Watched []Node
	// Second is how the packet comes to the bridge of the second node.
	Second Arrival
	// Arrives is the interface of the pod that it is for, on the node Destination, if
	// both are known.
	Destination Node
	Arrives     string
	// Wait bounds the time.
	Wait time.Duration
	// Names are for people.
	Names trace.Namer
}

// Arrival is how a packet comes to a bridge: the port and the MAC addresses, and the outer source address if it comes by a
// tunnel.
type Arrival struct {
	Port     uint32
	From, To net.HardwareAddr
	Outer    netip.Addr
}

// again are the times after which the packet is sent again: one that is lost on a
// busy machine must not look like policy.
func again() []time.Duration {
	return []time.Duration{0, 300 * time.Millisecond, 700 * time.Millisecond}
}

// watch are the listeners while a packet travels.
type watch struct {
	request Request
	traces  []tracer
	arrival *capture
	seen    *Observed
}

// tracer reads the trace of a node's netfilter.
type tracer interface {
	steps() []trace.Step
	end() error
}

// Send sends the packet and reports its path.
func Send(ctx context.Context, r Request) (seen *Observed, err error) {
	w := &watch{request: r, seen: &Observed{}}
	defer func() { err = errors.Join(err, w.end()) }()
	if err := w.begin(ctx); err != nil {
		return nil, err
	}
	came, err := w.send(ctx)
	if err != nil {
		return nil, err
	}
	w.settle()
	w.judge(came)
	if r.Names != nil {
		trace.NameRules(w.seen.Steps, r.Names)
	}
	return w.seen, nil
}

// begin starts all that listens.
func (w *watch) begin(ctx context.Context) error {
	for i, n := range w.request.Watched {
		if n.Backend == config.OpenFlow {
			if err := w.ask(ctx, i, n); err != nil {
				return err
			}
			continue
		}
		var t tracer
		var err error
		if n.legacy() {
			t, err = startLegacy(ctx, n, w.request.Packet)
		} else {
			t, err = startNFT(ctx, n, w.request.Packet)
		}
		if err != nil {
			return err
		}
		w.traces = append(w.traces, t)
	}
	if w.request.Arrives == "" {
		return nil
	}
	var err error
	w.arrival, err = openCapture(w.request.Destination, w.request.Arrives, w.request.Packet)
	return err
}

// ask asks the switch of the i-th node on the way.
func (w *watch) ask(ctx context.Context, i int, n Node) error {
	r := w.request
	at := Arrival{Port: r.From.OFPort, From: r.From.MAC, To: r.To}
	if i > 0 {
		at = r.Second
	}
	flow := switchFlow(r.Packet, at.Port, at.From, at.To, at.Outer)
	steps, raw, err := askSwitch(ctx, n, r.Bridge, flow, r.Names)
	w.seen.Steps = append(w.seen.Steps, steps...)
	w.seen.Raw = append(w.seen.Raw, raw...)
	return err
}

// send puts the packet into the bridge as the pod's, and waits until it has come, or
// was dropped, or the time is over.
func (w *watch) send(ctx context.Context) (came bool, err error) {
	r := w.request
	data, err := frame(r.Packet, r.From.MAC, r.To)
	if err != nil {
		return false, err
	}
	conn, err := openflow.Dial(ctx, r.Source.management(r.Bridge))
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	began, sent := time.Now(), 0
	for time.Since(began) < r.Wait {
		if times := again(); sent < len(times) && time.Since(began) >= times[sent] {
			sent++
			packet := openflow.PacketOut{InPort: r.From.OFPort, Actions: []openflow.Action{openflow.Resubmit(0)}, Data: data}
			if err := conn.PacketOut(ctx, []openflow.PacketOut{packet}); err != nil {
				return false, fmt.Errorf("send the packet: %w", err)
			}
		}
		if came, err = w.look(ctx); came || err != nil || w.dropped() {
			return came, err
		}
	}
	return false, nil
}

// look waits for a moment for the packet.
func (w *watch) look(ctx context.Context) (bool, error) {
	const moment = 50 * time.Millisecond
	if w.arrival != nil {
		return w.arrival.came(ctx, moment)
	}
	select {
	case <-ctx.Done():
		return false, ctx.Err()
	case <-time.After(moment):
		return false, nil
	}
}

// dropped reports whether a rule of the kernel has dropped the packet.
func (w *watch) dropped() bool {
	for _, t := range w.traces {
		for _, s := range t.steps() {
			if ruledOut(s) {
				return true
			}
		}
	}
	return false
}

// settle waits, for a moment at most, until the traces bring no more steps: the packet
// is faster than its traces.
func (w *watch) settle() {
	if len(w.traces) == 0 {
		return
	}
	const quiet = 100 * time.Millisecond
	steps, since := -1, time.Now()
	for deadline := time.Now().Add(10 * quiet); time.Now().Before(deadline); time.Sleep(quiet / 10) {
		now := 0
		for _, t := range w.traces {
			now += len(t.steps())
		}
		if now != steps {
			steps, since = now, time.Now()
		}
		if now > 0 && time.Since(since) > quiet {
			return
		}
	}
}

// judge derives the verdict from the observed steps.
func (w *watch) judge(came bool) {
	o := w.seen
	for _, t := range w.traces {
		o.Steps = append(o.Steps, t.steps()...)
	}
	var end *trace.Step
	for i := range o.Steps {
		if ruledOut(o.Steps[i]) {
			end = trace.Decider(o.Steps[:i+1])
		}
	}
	switch {
	case came:
		o.Known, o.Opinion = true, trace.Opinion{Through: true, Why: "the packet came to the pod's interface"}
	case end != nil:
		o.Known, o.Opinion = true, trace.Opinion{Why: fmt.Sprintf("dropped at %s, %s, %s", end.Node, end.Place, end.Table)}
	case w.arrival != nil:
		o.Known, o.Opinion = true, trace.Opinion{Why: fmt.Sprintf("the packet did not come to the pod's interface within %s", w.request.Wait)}
	default:
		o.Opinion = trace.Opinion{Through: true, Why: "nothing here dropped it; whether it came was not watched"}
	}
}

// end stops all that listens.
func (w *watch) end() error {
	var err error
	for _, t := range w.traces {
		err = errors.Join(err, t.end())
	}
	if w.arrival != nil {
		w.arrival.close()
	}
	return err
}
