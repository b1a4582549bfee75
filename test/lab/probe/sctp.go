package probe

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/felixlike/felixlike/internal/namespace"
	"github.com/felixlike/felixlike/internal/sctp"
	"github.com/felixlike/felixlike/model"
)

// sctpStack answers INIT on served ports of one address with INIT ACK, on
// others with ABORT, and hands answers to the exchanges that wait for them.
// One raw socket does both, since every raw socket of a namespace gets a copy
// of every SCTP packet.
type sctpStack struct {
	conn *net.IPConn
	addr netip.Addr

	mu      sync.Mutex
	served  map[uint16]bool
	waiting map[uint16]*sctpExchange
}

func newSCTPStack(ns *namespace.Namespace, addr netip.Addr) (*sctpStack, error) {
	var conn net.PacketConn
	err := ns.Do(func() (err error) {
		name := fmt.Sprintf("%s:%d", network("ip", addr), sctp.Protocol)
		conn, err = (&net.ListenConfig{}).ListenPacket(context.Background(), name, addr.String())
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("raw sctp socket on %s: %w", addr, err)
	}
	s := &sctpStack{conn: conn.(*net.IPConn), addr: addr, served: map[uint16]bool{}, waiting: map[uint16]*sctpExchange{}}
	if err := s.conn.SetReadBuffer(4 * receiveBuffer); err != nil {
		return nil, errors.Join(err, s.conn.Close())
	}
	go s.receive()
	return s, nil
}

func (s *sctpStack) close() error { return s.conn.Close() }

func (s *sctpStack) serve(port uint16, on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if on {
		s.served[port] = true
	} else {
		delete(s.served, port)
	}
}

func (s *sctpStack) receive() {
	buffer := make([]byte, 2048)
	for {
		n, from, err := s.conn.ReadFromIP(buffer)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue
		}
		peer, ok := netip.AddrFromSlice(from.IP)
		if !ok {
			continue
		}
		packet, err := sctp.Parse(buffer[:n])
		if err != nil {
			continue
		}
		s.handle(peer.Unmap(), packet)
	}
}

func (s *sctpStack) handle(peer netip.Addr, p sctp.Packet) {
	s.mu.Lock()
	served, waiting := s.served[p.DestinationPort], s.waiting[p.DestinationPort]
	s.mu.Unlock()
	switch p.Chunk {
	case sctp.Init:
		reply := sctp.Packet{
			SourcePort: p.DestinationPort, DestinationPort: p.SourcePort,
			VerificationTag: p.InitiateTag, Chunk: sctp.Abort,
		}
		if served {
			reply.Chunk, reply.InitiateTag = sctp.InitAck, newTag()
		}
		// An answer that cannot be sent shows at the prober.
		_ = s.send(peer, reply)
	case sctp.InitAck, sctp.Abort:
		if waiting != nil {
			waiting.receive(peer, p)
		}
	}
}

func (s *sctpStack) send(to netip.Addr, p sctp.Packet) error {
	_, err := s.conn.WriteToIP(p.Marshal(), &net.IPAddr{IP: to.AsSlice()})
	return err
}

func newTag() uint32 { return 1 + rand.Uint32N(1<<32-2) }

// sctpExchange is one INIT waiting for its answer.
type sctpExchange struct {
	stack   *sctpStack
	init    sctp.Packet
	to      netip.AddrPort
	answers chan<- answer
	sent    time.Time
}

func newSCTPExchange(f Flow, answers chan<- answer) (*sctpExchange, error) {
	stack, err := f.From.stack(f.Source)
	if err != nil {
		return nil, err
	}
	port := f.From.sourcePort(model.SCTP, f.Source)
	e := &sctpExchange{
		stack:   stack,
		init:    sctp.Packet{SourcePort: port, DestinationPort: f.Target.Port(), Chunk: sctp.Init, InitiateTag: newTag()},
		to:      f.Target,
		answers: answers,
		sent:    time.Now(),
	}
	stack.mu.Lock()
	defer stack.mu.Unlock()
	stack.waiting[port] = e
	return e, nil
}

func (e *sctpExchange) try() error { return e.stack.send(e.to.Addr(), e.init) }

func (e *sctpExchange) receive(peer netip.Addr, p sctp.Packet) {
	if peer != e.to.Addr() || p.SourcePort != e.to.Port() || p.VerificationTag != e.init.InitiateTag {
		return
	}
	a := answer{through: true, reason: Answered, rtt: time.Since(e.sent)}
	if p.Chunk == sctp.Abort {
		a = answer{reason: Refused}
	}
	report(e.answers, a)
}

func (e *sctpExchange) close() {
	e.stack.mu.Lock()
	defer e.stack.mu.Unlock()
	delete(e.stack.waiting, e.init.SourcePort)
}
