package probe

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/internal/namespace"
	"github.com/felixlike/felixlike/model"
)

// Source ports are taken from this range, each once before any comes again:
// a reused tuple may look established to connection tracking.
const (
	firstSourcePort = 10000
	sourcePorts     = 55000
)

// service is a port that a station serves.
type service struct {
	proto model.Protocol
	addr  netip.AddrPort
}

// Station is one network namespace that serves and probes.
type Station struct {
	ns *namespace.Namespace

	mu       sync.Mutex
	services map[service]func() error
	stacks   map[netip.Addr]*sctpStack
	ports    map[service]uint32
}

// NewStation returns a station in the namespace, which it does not own.
func NewStation(ns *namespace.Namespace) *Station {
	return &Station{
		ns:       ns,
		services: map[service]func() error{},
		stacks:   map[netip.Addr]*sctpStack{},
		ports:    map[service]uint32{},
	}
}

// Namespace returns the station's network namespace.
func (s *Station) Namespace() *namespace.Namespace { return s.ns }

// Serve makes the station answer on an address and port. The address must be
// one of the namespace's; answers come from it. Serving twice is no error.
func (s *Station) Serve(proto model.Protocol, at netip.AddrPort) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := service{proto: proto, addr: at}
	if s.services[key] != nil {
		return nil
	}
	stop, err := s.serveLocked(proto, at)
	if err != nil {
		return fmt.Errorf("serve %s %s in %s: %w", proto, at, s.ns.Name(), err)
	}
	s.services[key] = stop
	return nil
}

func (s *Station) serveLocked(proto model.Protocol, at netip.AddrPort) (func() error, error) {
	switch proto {
	case model.TCP:
		return serveTCP(s.ns, at)
	case model.UDP:
		return serveUDP(s.ns, at)
	case model.SCTP:
		if sctpSockets(s.ns, at.Addr()) {
			return serveStreams(s.ns, func() (net.Listener, error) { return listenSCTP(at) })
		}
		stack, err := s.stackLocked(at.Addr())
		if err != nil {
			return nil, err
		}
		stack.serve(at.Port(), true)
		return func() error { stack.serve(at.Port(), false); return nil }, nil
	}
	return nil, fmt.Errorf("unsupported protocol %s", proto)
}

// Close ends all servers. The station must not be used afterwards.
func (s *Station) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for key, stop := range s.services {
		errs = append(errs, stop())
		delete(s.services, key)
	}
	for addr, stack := range s.stacks {
		errs = append(errs, stack.close())
		delete(s.stacks, addr)
	}
	return errors.Join(errs...)
}

// Withdraw ends all servers of an address.
func (s *Station) Withdraw(addr netip.Addr) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for key, stop := range s.services {
		if key.addr.Addr() == addr {
			errs = append(errs, stop())
			delete(s.services, key)
		}
	}
	if stack := s.stacks[addr]; stack != nil {
		errs = append(errs, stack.close())
		delete(s.stacks, addr)
	}
	return errors.Join(errs...)
}

// stack returns the SCTP stack of an address, making it at first use.
func (s *Station) stack(addr netip.Addr) (*sctpStack, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stackLocked(addr)
}

func (s *Station) stackLocked(addr netip.Addr) (*sctpStack, error) {
	if stack := s.stacks[addr]; stack != nil {
		return stack, nil
	}
	stack, err := newSCTPStack(s.ns, addr)
	if err != nil {
		return nil, err
	}
	s.stacks[addr] = stack
	return stack, nil
}

// sourcePort returns the next source port of an address and protocol. It
// starts anywhere, so that runs that follow each other differ too.
func (s *Station) sourcePort(proto model.Protocol, addr netip.Addr) uint16 {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := service{proto: proto, addr: netip.AddrPortFrom(addr, 0)}
	n, ok := s.ports[key]
	if !ok {
		n = rand.Uint32N(sourcePorts)
	}
	s.ports[key] = (n + 1) % sourcePorts
	return uint16(firstSourcePort + n)
}

// socket opens a non-blocking socket in the station's namespace, bound to an
// address and a new source port. Ports that a server holds are passed over.
func (s *Station) socket(proto model.Protocol, source netip.Addr) (int, error) {
	kind := unix.SOCK_STREAM
	if proto == model.UDP {
		kind = unix.SOCK_DGRAM
	}
	fd := -1
	err := s.ns.Do(func() (err error) {
		if proto == model.SCTP {
			fd, err = sctpSocket(source)
		} else {
			fd, err = unix.Socket(domain(source), kind|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		}
		return err
	})
	if err != nil {
		return -1, fmt.Errorf("open socket in %s: %w", s.ns.Name(), err)
	}
	for range 10 {
		err = unix.Bind(fd, sockaddr(netip.AddrPortFrom(source, s.sourcePort(proto, source))))
		if !errors.Is(err, unix.EADDRINUSE) {
			break
		}
	}
	if err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("bind to %s in %s: %w", source, s.ns.Name(), err)
	}
	return fd, nil
}
