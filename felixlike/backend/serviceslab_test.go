package backend

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/internal/namespace"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/eventually"
	"github.com/felixlike/felixlike/test/tablestest"
)

// servicesLab is a node with two pods, a pod of a peer, and a client outside. Every pod answers on port 8080 of TCP and UDP with its
// name and the client's address.
type servicesLab struct {
	node tablestest.Namespace
	// at has the namespaces of "node", "p1", "p2", "remote", "peer" (a pod there, the same namespace) and "outside".
	at map[string]tablestest.Namespace
	// pods has the endpoints by name, of both families.
	pods map[string][2]netip.AddrPort
	// wait is how long a client waits before it takes its packet for dropped.
	wait time.Duration
}

const podPort = 8080

func newServicesLab(t *testing.T) *servicesLab {
	t.Helper()
	l := &servicesLab{node: tablestest.NewNamespace(t, "nft", "conntrack"), at: map[string]tablestest.Namespace{}, pods: map[string][2]netip.AddrPort{}, wait: longest}
	l.at["node"] = l.node
	sh := func(ns tablestest.Namespace, format string, args ...any) {
		t.Helper()
		ns.Run(t, "sh", "-ec", fmt.Sprintf(format, args...))
	}
	sh(l.node, "sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1 net.ipv4.icmp_ratelimit=0 net.ipv6.icmp.ratelimit=0; ip link set lo up")
	join := func(name, dev string) tablestest.Namespace {
		ns := tablestest.NewNamespace(t)
		l.at[name] = ns
		sh(l.node, "ip link add %s type veth peer name eth0 netns %s; ip link set %s up", dev, ns.Name, dev)
		sh(ns, "ip link set lo up; ip link set eth0 up")
		return ns
	}
	pod := func(name, a4, a6 string) {
		l.pods[name] = [2]netip.AddrPort{netip.AddrPortFrom(netip.MustParseAddr(a4), podPort), netip.AddrPortFrom(netip.MustParseAddr(a6), podPort)}
		l.serve(t, name, a4, a6)
	}
	for i, name := range []string{"p1", "p2"} {
		ns := join(name, name)
		a4, a6 := fmt.Sprintf("10.10.0.%d", i+2), fmt.Sprintf("fd10::%d", i+2)
		sh(ns, "ip addr add %s/32 dev eth0; ip addr add %s/128 dev eth0 nodad; ip route add 10.10.0.1 dev eth0; ip route add default via 10.10.0.1; ip -6 route add fd10::1 dev eth0; ip -6 route add default via fd10::1", a4, a6)
		sh(l.node, "ip addr add 10.10.0.1/32 dev %s; ip addr add fd10::1/128 dev %s nodad; ip route add %s dev %s; ip -6 route add %s dev %s", name, name, a4, name, a6, name)
		pod(name, a4, a6)
	}
	remote := join("remote", "peer0")
	sh(l.node, "ip addr add 192.168.51.1/24 dev peer0; ip addr add fd51::1/64 dev peer0 nodad; ip route add 10.10.1.0/24 via 192.168.51.2; ip -6 route add fd11::/64 via fd51::2")
	sh(remote, "ip addr add 192.168.51.2/24 dev eth0; ip addr add fd51::2/64 dev eth0 nodad; ip addr add 10.10.1.2/32 dev eth0; ip addr add fd11::2/128 dev eth0 nodad; ip route add default via 192.168.51.1 src 10.10.1.2; ip -6 route add default via fd51::1 src fd11::2")
	pod("remote", "10.10.1.2", "fd11::2")
	outside := join("outside", "up0")
	sh(l.node, "ip addr add 192.168.50.1/24 dev up0; ip addr add fd50::1/64 dev up0 nodad; ip route add default via 192.168.50.9; ip -6 route add default via fd50::9")
	sh(outside, "ip addr add 192.168.50.9/24 dev eth0; ip addr add fd50::9/64 dev eth0 nodad; for p in 10.96.0.0/16 192.0.2.0/24; do ip route add $p via 192.168.50.1; done; for p in fd96::/64 fd92::/64; do ip -6 route add $p via fd50::1; done")
	for from := range l.at { // duplicate address detection is over
		for _, pod := range l.pods {
			for _, at := range pod {
				eventually.True(t, from+" reaches "+at.String(), func() bool { return from == "outside" || strings.Contains(l.ask(t, from, "tcp", at), " ") })
			}
		}
	}
	return l
}

// in runs f in a namespace of the lab.
func (l *servicesLab) in(t *testing.T, name string, f func() error) {
	t.Helper()
	if err := namespace.In(l.at[name].FD, f); err != nil {
		t.Fatal(err)
	}
}

func (l *servicesLab) serve(t *testing.T, name string, addresses ...string) {
	t.Helper()
	for _, a := range addresses {
		at := net.JoinHostPort(a, fmt.Sprint(podPort))
		l.in(t, name, func() error {
			tcp, err := net.Listen("tcp", at)
			if err != nil {
				return err
			}
			t.Cleanup(func() { _ = tcp.Close() })
			go func() {
				for {
					c, err := tcp.Accept()
					if err != nil {
						return
					}
					fmt.Fprintf(c, "%s %s", name, c.RemoteAddr().(*net.TCPAddr).IP)
					_ = c.Close()
				}
			}()
			udp, err := net.ListenPacket("udp", at)
			if err != nil {
				return err
			}
			t.Cleanup(func() { _ = udp.Close() })
			go func() {
				b := make([]byte, 64)
				for {
					_, from, err := udp.ReadFrom(b)
					if err != nil {
						return
					}
					_, _ = udp.WriteTo(fmt.Appendf(nil, "%s %s", name, from.(*net.UDPAddr).IP), from)
				}
			}()
			return nil
		})
	}
}

// ask connects and returns the name of the pod that answers and the source that it sees; or "refused", or "dropped".
func (l *servicesLab) ask(t *testing.T, from, network string, to netip.AddrPort) string {
	t.Helper()
	return l.askFrom(t, from, netip.Addr{}, network, to)
}

// askFrom is ask from an address of the namespace, or from any if source is none.
func (l *servicesLab) askFrom(t *testing.T, from string, source netip.Addr, network string, to netip.AddrPort) (answer string) {
	t.Helper()
	l.in(t, from, func() error {
		dialer := net.Dialer{Timeout: l.wait}
		if source.IsValid() && network == "udp" {
			dialer.LocalAddr = net.UDPAddrFromAddrPort(netip.AddrPortFrom(source, 0))
		} else if source.IsValid() {
			dialer.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(source, 0))
		}
		c, err := dialer.Dial(network, to.String())
		if err == nil {
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(l.wait))
			if network == "udp" {
				// A packet of the node itself that is rejected comes back as this error, and as an answer.
				if _, err = c.Write([]byte("?")); errors.Is(err, syscall.EPERM) {
					err = nil
				}
			}
		}
		var b []byte
		if err == nil {
			if network == "udp" {
				b = make([]byte, 64)
				var n int
				n, err = c.Read(b)
				b = b[:max(n, 0)]
			} else {
				b, err = io.ReadAll(c)
			}
		}
		switch {
		case errors.Is(err, syscall.ECONNREFUSED):
			answer = "refused"
		case errors.Is(err, os.ErrDeadlineExceeded), err != nil && strings.Contains(err.Error(), "i/o timeout"):
			answer = "dropped"
		case err != nil:
			answer = err.Error()
		default:
			answer = string(b)
		}
		return nil
	})
	return answer
}

// silence is how long a packet that shall be dropped has time to be answered. A refused SYN is answered at its repetition after a
// second, if the first answer comes while the socket still sends.
const silence, longest = 500 * time.Millisecond, 10 * time.Second

// expect asks some times and compares the set of answers. The wanted ones are patterns "name source", of which the source may be *.
func (l *servicesLab) expect(t *testing.T, from, network, to string, want ...string) {
	t.Helper()
	at := netip.MustParseAddrPort(to)
	tries := 1
	if len(want) > 1 {
		tries = 40
	}
	if want[0] == "dropped" {
		defer func(wait time.Duration) { l.wait = wait }(l.wait)
		l.wait = silence
	}
	missing := map[string]bool{}
	for _, w := range want {
		missing[w] = true
	}
	for range tries {
		got := l.ask(t, from, network, at)
		matched := false
		for _, w := range want {
			if w == got || strings.HasSuffix(w, " *") && strings.HasPrefix(got, strings.TrimSuffix(w, "*")) {
				matched = true
				delete(missing, w)
			}
		}
		if !matched {
			t.Errorf("%s from %s to %s: %q, want one of %q", network, from, to, got, want)
			return
		}
		if len(missing) == 0 {
			return
		}
	}
	t.Errorf("%s from %s to %s: never one of %v", network, from, to, missing)
}

// association sends an INIT of SCTP from a namespace, and reports whether a raw socket of a pod gets it, with its destination port
// and its source. The kernel of the tests may have no sockets of SCTP.
func (l *servicesLab) association(t *testing.T, from, pod string, to netip.AddrPort) (source netip.Addr, port uint16, arrived bool) {
	t.Helper()
	domain := unix.AF_INET
	if to.Addr().Is6() {
		domain = unix.AF_INET6
	}
	var receiver int
	l.in(t, pod, func() (err error) {
		receiver, err = unix.Socket(domain, unix.SOCK_RAW, unix.IPPROTO_SCTP)
		return err
	})
	defer unix.Close(receiver)
	if err := unix.SetsockoptTimeval(receiver, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 1}); err != nil {
		t.Fatal(err)
	}
	l.in(t, from, func() error {
		fd, err := unix.Socket(domain, unix.SOCK_RAW, unix.IPPROTO_SCTP)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		b := make([]byte, 32)
		binary.BigEndian.PutUint16(b, 40000)
		binary.BigEndian.PutUint16(b[2:], to.Port())
		b[12], b[15] = 1, 20                                                 // INIT and its length
		copy(b[16:], []byte{0, 0, 0, 7, 0, 1, 0, 0, 0, 1, 0, 1, 0, 0, 0, 1}) // tag, window, streams, sequence number
		binary.LittleEndian.PutUint32(b[8:], crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
		var sa unix.Sockaddr = &unix.SockaddrInet4{Addr: as4(to.Addr())}
		if domain == unix.AF_INET6 {
			sa = &unix.SockaddrInet6{Addr: to.Addr().As16()}
		}
		return unix.Sendto(fd, b, 0, sa)
	})
	b := make([]byte, 128)
	n, _, err := unix.Recvfrom(receiver, b, 0)
	if err != nil {
		return source, 0, false
	}
	b = b[:n]
	if domain == unix.AF_INET {
		source, _ = netip.AddrFromSlice(b[12:16])
		b = b[20:]
	}
	return source, binary.BigEndian.Uint16(b[2:]), true
}

func as4(a netip.Addr) (b [4]byte) {
	if a.Is4() {
		b = a.As4()
	}
	return b
}

// endpoints returns endpoints of the family, remote ones not local, in order.
func (l *servicesLab) endpoints(f model.Family, names ...string) (all []model.ServiceEndpoint) {
	for _, name := range names {
		at := l.pods[name][0]
		if f == model.IPv6 {
			at = l.pods[name][1]
		}
		all = append(all, model.ServiceEndpoint{AddrPort: at, Local: name != "remote"})
	}
	return all
}

func (l *servicesLab) config() Config {
	return Config{Node: "n1", NetNS: l.node.FD, ServiceProxy: true}
}

// nodes are the node of the lab and its peer.
func (l *servicesLab) nodes() []model.Update {
	var all []model.Update
	for name, pods := range map[string][]string{"n1": {"10.10.0.0/24", "fd10::/64"}, "n2": {"10.10.1.0/24", "fd11::/64"}} {
		n := &model.Node{Name: name}
		for _, p := range pods {
			n.PodCIDRs = append(n.PodCIDRs, netip.MustParsePrefix(p))
		}
		all = append(all, model.NodeUpdate{Node: n})
	}
	return append(all, model.ServiceHealthUpdate{})
}
