package hosts

import (
	"strings"
	"testing"

	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/datastore"
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
