package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/internal/sctp"
)

// errTimeout is what upstream's connect prints if nothing answers.
var errTimeout = errors.New("TIMEOUT")

// kernelHasSCTP reports whether the kernel has SCTP sockets. It then answers every INIT
// without one by an ABORT, so raw sockets do not work there.
func kernelHasSCTP() bool {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, unix.IPPROTO_SCTP)
	return err == nil && unix.Close(fd) == nil
}

// portsOf returns the ports that the environment names.
func portsOf(environ []string) ([]uint16, error) {
	var ports []uint16
	for _, variable := range environ {
		name, _, _ := strings.Cut(variable, "=")
		text, ok := strings.CutPrefix(name, portPrefix)
		if !ok {
			continue
		}
		port, err := strconv.ParseUint(text, 10, 16)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		ports = append(ports, uint16(port))
	}
	if len(ports) == 0 {
		return nil, fmt.Errorf("no variable %sN", portPrefix)
	}
	return ports, nil
}

// listen opens a raw socket of a family, on all addresses.
func listen(ctx context.Context, is4 bool) (*net.IPConn, error) {
	network, address := "ip6", "::"
	if is4 {
		network, address = "ip4", "0.0.0.0"
	}
	conn, err := (&net.ListenConfig{}).ListenPacket(ctx, fmt.Sprintf("%s:%d", network, sctp.Protocol), address)
	if err != nil {
		return nil, err
	}
	return conn.(*net.IPConn), nil
}

// listenAll opens a raw socket of each family that there is.
func listenAll(ctx context.Context) ([]*net.IPConn, error) {
	conn, err := listen(ctx, true)
	if err != nil {
		return nil, err
	}
	all := []*net.IPConn{conn}
	conn, err = listen(ctx, false)
	if errors.Is(err, unix.EAFNOSUPPORT) {
		return all, nil
	}
	if err != nil {
		return nil, errors.Join(err, all[0].Close())
	}
	return append(all, conn), nil
}

// serve answers each INIT to one of the ports, until ctx ends. It closes the sockets.
func serve(ctx context.Context, conns []*net.IPConn, ports []uint16) error {
	all, ctx := errgroup.WithContext(ctx)
	for _, conn := range conns {
		context.AfterFunc(ctx, func() { conn.Close() })
		all.Go(func() error {
			return receive(conn, func(peer netip.Addr, p sctp.Packet) bool {
				if p.Chunk == sctp.Init && slices.Contains(ports, p.DestinationPort) {
					answer(conn, peer, p)
				}
				return false
			})
		})
	}
	if err := all.Wait(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// answer sends an INIT ACK. One that cannot be sent shows at the client.
func answer(conn *net.IPConn, peer netip.Addr, p sctp.Packet) {
	reply := sctp.Packet{
		SourcePort: p.DestinationPort, DestinationPort: p.SourcePort,
		VerificationTag: p.InitiateTag, Chunk: sctp.InitAck, InitiateTag: newTag(),
	}
	if err := send(conn, peer, reply); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}

// connect sends an INIT and waits for the answer. Its errors begin as upstream's do.
func connect(ctx context.Context, to netip.AddrPort) error {
	conn, err := listen(ctx, to.Addr().Is4())
	if err != nil {
		return fmt.Errorf("UNKNOWN: %w", err)
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetReadDeadline(deadline); err != nil {
			return fmt.Errorf("UNKNOWN: %w", err)
		}
	}
	init := sctp.Packet{
		SourcePort: uint16(32768 + rand.IntN(28000)), DestinationPort: to.Port(),
		Chunk: sctp.Init, InitiateTag: newTag(),
	}
	if err := send(conn, to.Addr(), init); err != nil {
		return fmt.Errorf("OTHER: %w", err)
	}
	err = receive(conn, func(peer netip.Addr, p sctp.Packet) bool {
		return p.Chunk == sctp.InitAck && peer == to.Addr() && p.SourcePort == to.Port() &&
			p.DestinationPort == init.SourcePort && p.VerificationTag == init.InitiateTag
	})
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return errTimeout
	}
	if err != nil {
		return fmt.Errorf("OTHER: %w", err)
	}
	return nil
}

// receive hands packets to take until that wants no more.
func receive(conn *net.IPConn, take func(netip.Addr, sctp.Packet) (done bool)) error {
	buffer := make([]byte, 2048)
	for {
		n, from, err := conn.ReadFromIP(buffer)
		if err != nil {
			return err
		}
		peer, ok := netip.AddrFromSlice(from.IP)
		p, err := sctp.Parse(buffer[:n])
		if ok && err == nil && take(peer.Unmap(), p) {
			return nil
		}
	}
}

func send(conn *net.IPConn, to netip.Addr, p sctp.Packet) error {
	_, err := conn.WriteToIP(p.Marshal(), &net.IPAddr{IP: to.AsSlice()})
	return err
}

func newTag() uint32 { return 1 + rand.Uint32N(1<<32-2) }
