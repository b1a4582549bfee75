package hosts

import (
	"errors"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/felixlike/hosts/boot"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/eventually"
)

// untracked keeps packets of the tunnel from connection tracking, as our table for the tunnel port does.
const untracked = `table inet untracked {
	chain sent {
		type filter hook output priority -250
		udp dport 4789 notrack
	}
	chain received {
		type filter hook prerouting priority -250
		udp dport 4789 notrack
	}
}`

// TestPathMTU: tunnel packets are not tracked, so a router's answer that one was too big belongs to no connection. A node that denies all packets learns
// the path MTU from it in both families, with policies at INPUT and before DNAT.
func TestPathMTU(t *testing.T) {
	for name, policy := range map[string]func(datastore.Event) datastore.Event{"input": func(e datastore.Event) datastore.Event { return e }, "before DNAT": preDNAT} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.sh("peer", `sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1
				ip link add narrow type veth peer name end; ip link set end up; ip link set narrow mtu 1280 up; ip addr add 198.51.100.1/24 dev narrow; ip addr add fd51::1/64 dev narrow nodad`)
			w.sh("node", `ip route add 198.51.100.0/24 via 192.168.60.2; ip route add fd51::/64 via fd60::2
				ip link add tunnel4 type vxlan id 4 local 192.168.60.1 remote 198.51.100.2 dstport 4789 df set; ip addr add 10.99.4.1/24 dev tunnel4
				ip link add tunnel6 type vxlan id 6 local fd60::1 remote fd51::2 dstport 4789; ip addr add 10.99.6.1/24 dev tunnel6
				for d in tunnel4 tunnel6; do ip link set $d up mtu 1400; done
				ip neigh add 10.99.4.2 lladdr 02:00:00:00:00:01 dev tunnel4; ip neigh add 10.99.6.2 lladdr 02:00:00:00:00:01 dev tunnel6`)
			w.at["node"].Feed(t, untracked, "nft", "-f", "-")
			a := w.start(t, nil, 0)
			a.Begin(t, policy(policyOf(t, "all", denyIn)))
			a.awaits(t, control.HostsConfirmed)
			for through, far := range map[string]string{"10.99.4.2": "198.51.100.2", "10.99.6.2": "fd51::2"} {
				route := ""
				eventually.True(t, "the path MTU to "+far+" is known", func() bool {
					w.sh("node", "ping -c1 -W1 -s 1300 -q %s >/dev/null || true", through)
					route = w.at["node"].Run(t, "ip", "route", "get", far)
					return strings.Contains(route, "mtu 1280")
				}, func() string { return route })
			}
			if w.reaches("peer", "node", "80") != "" {
				t.Error("the policy denies nothing")
			}
		})
	}
}

// TestFailsafeDefaults: with the default settings, a node that denies all packets takes those to each failsafe port of its own and sends those to each of
// others, DHCP's too, in both families, and none to the ports beside them. It finds neighbours whose addresses it has forgotten.
func TestFailsafeDefaults(t *testing.T) {
	w := newWorld(t)
	for _, name := range []string{"node", "peer"} {
		w.sh(name, "sysctl -qw net.ipv4.icmp_ratelimit=0 net.ipv6.icmp.ratelimit=0")
	}
	a := w.start(t, nil, 0, func(o *Options) { o.Failsafe = backend.FailsafeOf(&config.Effective{Config: config.Defaults()}, nil) })
	a.Begin(t, policyOf(t, "all", denyAll))
	a.awaits(t, control.HostsConfirmed)
	w.sh("node", "ip neigh flush all; ip -6 neigh flush all")
	w.sh("peer", "ip neigh flush all; ip -6 neigh flush all")
	eventually.True(t, "found again", func() bool {
		return w.reaches("node", "peer", "6443") == "46" && w.reaches("peer", "node", "22") == "46"
	})
	for _, c := range []struct{ from, to, open, closed string }{
		{"peer", "node", "tcp/22 tcp/6443 tcp/10250 tcp/2379 tcp/2380 tcp/10288 udp/68 udp/546 udp/6081", "tcp/23 tcp/6444 tcp/10249 tcp/2378 tcp/2381 tcp/10289 udp/22 udp/67 udp/547 udp/6082"},
		{"node", "peer", "tcp/6443 tcp/10250 tcp/2379 tcp/2380 tcp/53 udp/53 udp/67 udp/547 udp/6081", "tcp/22 tcp/6442 tcp/10251 tcp/2378 tcp/2381 tcp/54 udp/54 udp/68 udp/546 udp/6082"},
	} {
		for ports, open := range map[string]bool{c.open: true, c.closed: false} {
			for _, port := range strings.Fields(ports) {
				for _, to := range addresses[c.to] {
					if got := w.arrives(c.from, to, port, open); got != open {
						t.Fatalf("%s > %s %s: %v, want %v", c.from, to, port, got, open)
					}
				}
			}
		}
	}
}

// TestFailsafeAddresses: a failsafe port with a prefix is open for the hosts of the prefix alone, in both directions and families. Status names it.
func TestFailsafeAddresses(t *testing.T) {
	w := newWorld(t)
	of := func(port uint16, hosts string) model.FailsafePort {
		p := tcp(port)
		p.Net = netip.MustParsePrefix(hosts)
		return p
	}
	a := w.start(t, nil, 0, func(o *Options) {
		o.Failsafe = model.Failsafe{
			In:  []model.FailsafePort{of(22, "192.168.60.2/32"), of(80, "fd60::/64"), of(6443, "192.168.60.4/30")},
			Out: []model.FailsafePort{of(22, "fd60::2/128"), of(80, "192.168.60.0/24"), of(6443, "fd60::4/126")},
		}
	})
	a.Begin(t, policyOf(t, "all", denyAll))
	a.awaits(t, control.HostsConfirmed)
	for _, c := range []struct{ from, to, port, want string }{
		{"peer", "node", "22", "4"},
		{"peer", "node", "80", "6"},
		{"peer", "node", "6443", ""},
		{"node", "peer", "22", "6"},
		{"node", "peer", "80", "4"},
		{"node", "peer", "6443", ""},
	} {
		if got := w.reaches(c.from, c.to, c.port); got != c.want {
			t.Errorf("%s > %s %s: families %q, want %q", c.from, c.to, c.port, got, c.want)
		}
	}
	if h := a.hosts(t); h.FailsafeIn[0] != "tcp/22@192.168.60.2/32" || h.FailsafeOut[0] != "tcp/22@fd60::2/128" {
		t.Errorf("status: in %q, out %q", h.FailsafeIn, h.FailsafeOut)
	}
	// A node that boots has them, too.
	w.at["node"].Run(t, "nft", "flush", "ruleset")
	w.in("node", func() error {
		_, err := boot.Load(t.Context(), w.dir, 0)
		return err
	})
	if in, out := w.reaches("peer", "node", "22"), w.reaches("node", "peer", "22"); in != "4" || out != "6" {
		t.Errorf("after a boot: in %q, out %q", in, out)
	}
}

// arrives reports whether a packet to a port comes to the other host: that takes a connection, or answers that it serves no such port. It is patient if wanted.
func (w *world) arrives(from, to, port string, wanted bool) (arrived bool) {
	wait, end := 100*time.Millisecond, time.Now()
	if wanted {
		wait, end = time.Second, time.Now().Add(eventually.Patience)
	}
	w.in(from, func() error {
		protocol, number, _ := strings.Cut(port, "/")
		for again := true; again && !arrived; again = time.Now().Before(end) { // one packet, or its answer, may be lost
			conn, err := net.DialTimeout(protocol, net.JoinHostPort(to, number), wait)
			if err == nil && protocol == "tcp" {
				arrived = true
				return conn.Close()
			}
			if err == nil {
				_ = conn.SetDeadline(time.Now().Add(wait))
				if _, err = conn.Write([]byte{1}); err == nil {
					_, err = conn.Read(make([]byte, 1))
				}
				_ = conn.Close()
			}
			arrived = errors.Is(err, syscall.ECONNREFUSED)
		}
		return nil
	})
	return arrived
}
