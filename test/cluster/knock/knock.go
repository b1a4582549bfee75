// Package knock sends to many addresses and reports the senders that reach it: the
// traffic of the test that no packet of a pod gets through before its policy is in force.
// A datagram carries its sender's name, and so does the first segment of a
// connection, because an address may have a new owner.
//
// It has no dependencies, so that the program in the pod starts at once. It is
// tested over the loopback interface.
package knock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"
)

// Port is the port of knocks, by UDP and by TCP.
const Port = 7777

// Nameless stands for the sender of a connection that ended before its name arrived.
const Nameless = "?"

// Rounds of knocks, and the time between two. An open moment at a pod's start would
// show in the first; the others find later ones.
const (
	rounds   = 5
	interval = 500 * time.Millisecond
)

// dialTime bounds the wait of a TCP knock: it is one SYN.
const dialTime = 300 * time.Millisecond

// Targets returns all addresses of prefixes; a prefix with more than 256 addresses
// is refused.
func Targets(prefixes []string) ([]netip.Addr, error) {
	var all []netip.Addr
	for _, text := range prefixes {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, fmt.Errorf("prefix %q: %w", text, err)
		}
		if p.Addr().BitLen()-p.Bits() > 8 {
			return nil, fmt.Errorf("prefix %s has too many addresses", p)
		}
		for a := p.Masked().Addr(); p.Contains(a); a = a.Next() {
			all = append(all, a)
		}
	}
	return all, nil
}

// Knocker receives knocks and knocks itself.
type Knocker struct {
	udp      *net.UDPConn
	tcp      net.Listener
	received func(from string)

	mu    sync.Mutex
	known map[string]bool
}

// Listen receives knocks on all addresses, and reports each sender once a protocol
// and family.
func Listen(ctx context.Context, received func(from string)) (*Knocker, error) {
	at := fmt.Sprintf(":%d", Port)
	packets, err := (&net.ListenConfig{}).ListenPacket(ctx, "udp", at)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	udp, ok := packets.(*net.UDPConn)
	if !ok {
		return nil, errors.Join(fmt.Errorf("listen: %T is no UDP socket", packets), packets.Close())
	}
	tcp, err := (&net.ListenConfig{}).Listen(ctx, "tcp", at)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("listen: %w", err), udp.Close())
	}
	k := &Knocker{udp: udp, tcp: tcp, received: received, known: map[string]bool{}}
	go k.receiveDatagrams()
	go k.acceptConnections()
	return k, nil
}

// Close stops receiving.
func (k *Knocker) Close() error { return errors.Join(k.udp.Close(), k.tcp.Close()) }

func (k *Knocker) receiveDatagrams() {
	buffer := make([]byte, 256)
	for {
		n, from, err := k.udp.ReadFromUDPAddrPort(buffer)
		if err != nil {
			return
		}
		k.note("UDP", string(buffer[:n]), from.Addr())
	}
}

func (k *Knocker) acceptConnections() {
	for {
		conn, err := k.tcp.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue
		}
		// That it opened is enough; the name is for the reader.
		go func() {
			defer conn.Close()
			name := Nameless
			buffer := make([]byte, 256)
			if err := conn.SetDeadline(time.Now().Add(time.Second)); err == nil {
				if n, err := conn.Read(buffer); err == nil {
					name = string(buffer[:n])
				}
			}
			from, err := netip.ParseAddrPort(conn.RemoteAddr().String())
			if err == nil {
				k.note("TCP", name, from.Addr())
			}
		}()
	}
}

// note reports a new sender.
func (k *Knocker) note(protocol, name string, from netip.Addr) {
	line := fmt.Sprintf("%s %s %s", name, protocol, from.Unmap())
	k.mu.Lock()
	known := k.known[line]
	k.known[line] = true
	k.mu.Unlock()
	if !known {
		k.received(line)
	}
}

// Send knocks at all targets for some seconds and returns how many knocks the
// kernel took. It begins with datagrams, which need nothing but a send.
func (k *Knocker) Send(ctx context.Context, name string, targets []netip.Addr) int {
	sent := 0
	for range rounds {
		start := time.Now()
		for _, to := range targets {
			if _, err := k.udp.WriteToUDPAddrPort([]byte(name), netip.AddrPortFrom(to, Port)); err == nil {
				sent++
			}
		}
		sent += dialAll(ctx, name, targets)
		select {
		case <-ctx.Done():
			return sent
		case <-time.After(time.Until(start.Add(interval))):
		}
	}
	return sent
}

// dialAll opens a connection to each target.
func dialAll(ctx context.Context, name string, targets []netip.Addr) int {
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	var all sync.WaitGroup
	for _, to := range targets {
		all.Go(func() {
			conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", netip.AddrPortFrom(to, Port).String())
			if err != nil {
				return
			}
			defer conn.Close()
			_, _ = conn.Write([]byte(name)) // the open connection is enough; the name is for the reader
		})
	}
	all.Wait()
	return len(targets)
}
