package backend

import (
	"context"
	"net"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/felixlike/felixlike/felixlike/denied"
	"github.com/felixlike/felixlike/ovsfwd/answer"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
	"github.com/felixlike/felixlike/ovsfwd/policyflows"
)

// answers sends the answers to packets that rules reject in the switch. The switch sends it these packets
// after the check of their source, within the rate of a meter. An answer leaves by the port that its packet came by,
// past the flow tables: it makes no connection, no policy judges it, and nobody but the sender gets it.
//
//	pod     -> the pod's port, to its MAC address
//	tunnel  -> the tunnel port, to the outer source; the peer's switch judges it as a reply
//	gateway -> the gateway port; the host undoes the translation of Services
type answers struct {
	socket string
	limit  *rate.Limiter

	mu sync.Mutex
	// pods has the MAC address of the pod at each port, nil as long as no rule rejects.
	pods map[uint32]net.HardwareAddr
	// wanted is closed once a rule rejects.
	wanted chan struct{}
}

const (
	// answerRetry is the wait for the next try to connect.
	answerRetry = time.Second
	// answerTimeout bounds the sending of a batch of answers.
	answerTimeout = 5 * time.Second
)

func newAnswers(socket string) *answers {
	return &answers{
		socket: socket, wanted: make(chan struct{}),
		// The meter may be missing: another program can delete it.
		limit: rate.NewLimiter(policyflows.AnswersPerSecond, policyflows.AnswersPerSecond),
	}
}

// setPods sets the MAC address of the pod at each port.
func (a *answers) setPods(pods map[uint32]net.HardwareAddr) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.pods == nil {
		close(a.wanted)
	}
	a.pods = pods
}

// run answers from the first rule that rejects on, until ctx ends.
func (a *answers) run(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-a.wanted:
	}
	for {
		a.serve(ctx)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(answerRetry):
		}
	}
}

// serve answers as long as a connection lasts. Without one packets get no answer, as without an agent;
// the stage reports that the switch is away.
func (a *answers) serve(ctx context.Context) {
	conn, err := openflow.Dial(ctx, a.socket)
	if err != nil {
		return
	}
	defer conn.Close()
	// More than wait are too many to answer.
	waiting := make(chan openflow.PacketOut, policyflows.AnswersPerSecond)
	err = conn.Listen(ctx, policyflows.RejectID, policyflows.ReportLength, func(in openflow.PacketIn) {
		out, ok := a.to(in)
		if !ok || !a.limit.Allow() {
			return
		}
		select {
		case waiting <- out:
		default:
		}
	})
	if err != nil {
		return
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-conn.Done():
			return
		case first := <-waiting:
			batch := []openflow.PacketOut{first}
			for range len(waiting) {
				batch = append(batch, <-waiting)
			}
			// The switch refuses an answer to a port that has gone. The others are sent.
			sending, cancel := context.WithTimeout(ctx, answerTimeout)
			_ = conn.PacketOut(sending, batch)
			cancel()
		}
	}
}

// to returns the answer to a packet, if it gets one.
func (a *answers) to(in openflow.PacketIn) (openflow.PacketOut, bool) {
	packet, err := denied.Payload(in.Frame)
	if err != nil || isGroup(in.Frame) {
		return openflow.PacketOut{}, false
	}
	data := answer.To(packet)
	if data == nil {
		return openflow.PacketOut{}, false
	}
	const addresses, source = 12, 6
	var actions []openflow.Action
	a.mu.Lock()
	mac := a.pods[in.InPort()]
	a.mu.Unlock()
	switch outer := in.TunnelSource(); {
	case outer.IsValid():
		mac = pipeline.VirtualMAC()
		actions = append(actions, openflow.SetAddr(openflow.TunnelDestination(outer), outer))
	case pipeline.FromGateway(in.Register(0)):
		mac = net.HardwareAddr(in.Frame[source:addresses])
	case mac == nil:
		return openflow.PacketOut{}, false // the pod has gone
	}
	if pipeline.FromService(in.Register(4)) { // the client has asked the Service
		actions = append(actions, openflow.CT(openflow.CTSpec{Zone: pipeline.ServiceZone, NAT: true, Table: openflow.NoTable}))
	}
	return openflow.PacketOut{
		InPort:  openflow.FromNowhere,
		Actions: append(actions, openflow.SetRegister(openflow.Reg1, in.InPort()), openflow.OutputRegister(openflow.Reg1)),
		Data:    slices.Concat(mac, pipeline.VirtualMAC(), in.Frame[addresses:addresses+2], data),
	}, true
}

// isGroup reports whether an Ethernet frame is a broadcast or multicast.
func isGroup(frame []byte) bool { return frame[0]&1 != 0 }
