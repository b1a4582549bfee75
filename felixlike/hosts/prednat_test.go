package hosts

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/felixlike/felixlike/felixlike/antrea"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/felixlike/hosts/boot"
	"github.com/felixlike/felixlike/internal/namespace"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/eventually"
)

// translation is what a proxy for Services does: a NodePort and the address of a load balancer lead to the pod, another NodePort and a cluster IP to the peer.
const translation = `table inet translated {
	chain prerouting {
		type nat hook prerouting priority -100
		fib daddr type local meta nfproto ipv4 meta l4proto { tcp, udp } th dport 30080 dnat ip to 10.10.0.2:80
		fib daddr type local meta nfproto ipv6 meta l4proto { tcp, udp } th dport 30080 dnat ip6 to [fd10::2]:80
		fib daddr type local meta nfproto ipv4 tcp dport 30081 dnat ip to 192.168.60.2:80
		fib daddr type local meta nfproto ipv6 tcp dport 30081 dnat ip6 to [fd60::2]:80
		ip daddr 203.0.113.10 tcp dport 80 dnat ip to 10.10.0.2:80
		ip6 daddr fd99::10 tcp dport 80 dnat ip6 to [fd10::2]:80
		ip daddr 10.96.0.1 tcp dport 80 dnat ip to 192.168.60.2:80
		ip6 daddr fd96::1 tcp dport 80 dnat ip6 to [fd60::2]:80
	}
}`

// The targets of connections, in both families.
var targets = map[string][2]string{
	"NodePort":      {"192.168.60.1:30080", "[fd60::1]:30080"},
	"far NodePort":  {"192.168.60.1:30081", "[fd60::1]:30081"},
	"gateway":       {"10.10.0.1:30080", "[fd10::1]:30080"},
	"load balancer": {"203.0.113.10:80", "[fd99::10]:80"},
	"node":          {"192.168.60.1:80", "[fd60::1]:80"},
	"ssh":           {"192.168.60.1:22", "[fd60::1]:22"},
	"pod":           {"10.10.0.2:80", "[fd10::2]:80"},
	"cluster IP":    {"10.96.0.1:80", "[fd96::1]:80"},
	"outside":       {"192.168.60.2:80", "[fd60::2]:80"},
}

// sources are the addresses of clients.
var sources = map[string][2]string{"peer": {"192.168.60.2", "fd60::2"}, "friend": {"192.168.60.3", "fd60::3"}, "pod": {"10.10.0.2", "fd10::2"}, "node": {"", ""}}

// newServing returns a world whose pod is behind the gateway port, with a proxy. The peer has a second address, and one of the pods' prefix.
func newServing(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	w.sh("node", `ip link set pod0 down; ip link set pod0 name %[1]s; ip link set %[1]s up; ip -6 addr add fd10::1/64 dev %[1]s nodad
		sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1 net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.up0.rp_filter=0`, model.GatewayPort)
	w.sh("pod", "ip route add default via 10.10.0.1; ip -6 route add default via fd10::1")
	w.sh("peer", `ip addr add 192.168.60.3/24 dev eth0; ip addr add fd60::3/64 dev eth0 nodad; ip addr add 10.10.0.77/32 dev lo
		ip route add default via 192.168.60.1; ip -6 route add default via fd60::1`)
	w.at["node"].Feed(t, translation, "nft", "-f", "-")
	return w
}

// opens returns the families in which a client opens a connection to a target, with "r" before those in which it is refused. It is patient in the families
// that are wanted.
func (w *world) opens(client, to, wanted string) (families string) {
	at := client
	if client == "friend" {
		at = "peer"
	}
	for i, f := range []string{"4", "6"} {
		_ = namespace.In(w.at[at].FD, func() error {
			dialer := net.Dialer{Timeout: 300 * time.Millisecond}
			if strings.Contains(wanted, f) {
				dialer.Timeout = eventually.Patience
			}
			if s := sources[client][i]; s != "" {
				dialer.LocalAddr = &net.TCPAddr{IP: net.ParseIP(s)}
			}
			conn, err := dialer.DialContext(w.Context(), "tcp", targets[to][i])
			if err == nil {
				families += f
				_ = conn.Close()
			} else if strings.Contains(err.Error(), "refused") {
				families += "r" + f
			}
			return nil
		})
	}
	return families
}

// expect asserts in which families ways are open: "client > target": "46".
func (w *world) expect(when string, want map[string]string) {
	w.Helper()
	for way, families := range want {
		client, to, _ := strings.Cut(way, " > ")
		if got := w.opens(client, to, families); got != families {
			w.Errorf("%s: %s in families %q, want %q", when, way, got, families)
		}
	}
}

func preDNAT(e datastore.Event) datastore.Event {
	e.(datastore.AntreaSet).Object.SetAnnotations(map[string]string{model.PreDNATAnnotation: "true"})
	return e
}

const (
	denyIn = "{priority: 9, appliedTo: [{nodeSelector: {}}], ingress: [{action: Drop}]}"
	friend = "{priority: 1, appliedTo: [{nodeSelector: {}}], ingress: [{action: Allow, from: [{ipBlock: {cidr: 192.168.60.3/32}}, {ipBlock: {cidr: 'fd60::3/128'}}], ports: [{port: 80}, {port: 30000, endPort: 30100}]}]}"
)

// TestPreDNAT: a NodePort and the address of a load balancer are closed for one client and open for another, by the client's address and the port
// before DNAT, in both families. What is forwarded to a pod without DNAT, and what pods send, passes, but for what they send to their node. Sessions live. The same
// policy without the annotation does not see these packets, and INPUT judges what an Allow before DNAT has let through.
func TestPreDNAT(t *testing.T) {
	w := newServing(t)
	a := w.start(t, nil, 0)
	a.Attach("pod", addresses["pod"][0], addresses["pod"][1])
	a.Begin(t)
	unaffected := map[string]string{
		"peer > pod": "46", "pod > cluster IP": "46", "pod > outside": "46", "node > pod": "46", "node > outside": "46", "peer > ssh": "46", "node > node": "46",
	}
	w.expect("without a policy", map[string]string{"peer > NodePort": "46", "peer > load balancer": "46", "peer > gateway": "46", "friend > NodePort": "46", "pod > far NodePort": "46", "peer > node": "46"})
	w.expect("without a policy", unaffected)
	var old net.Conn
	w.in("peer", func() (err error) {
		old, err = net.Dial("tcp", targets["NodePort"][0])
		return err
	})
	defer old.Close()
	w.alive(old)
	set := func(state string, events ...datastore.Event) {
		t.Helper()
		a.Source.Send(true, events...)
		a.Programmed(t)
		a.awaits(t, state)
		w.alive(old)
	}
	set(control.HostsConfirmed, policyOf(t, "all", denyIn))
	w.expect("at INPUT", map[string]string{"peer > NodePort": "46", "peer > load balancer": "46", "peer > node": ""})
	set(control.HostsConfirmed, preDNAT(policyOf(t, "all", denyIn)), preDNAT(policyOf(t, "friend", friend)))
	closed := map[string]string{
		"peer > NodePort": "", "peer > load balancer": "", "peer > gateway": "", "peer > node": "", "pod > far NodePort": "", "pod > node": "",
		"friend > NodePort": "46", "friend > load balancer": "46", "friend > gateway": "46", "friend > node": "46",
	}
	w.expect("before DNAT", closed)
	w.expect("before DNAT", unaffected)
	w.at["node"].Run(t, "nft", "delete", "table", "inet", "felixlike-hosts")
	eventually.True(t, "repaired", func() bool { return w.opens("peer", "NodePort", "") == "" })
	w.expect("after a foreign change", closed)

	// Who sends with an address of the pods, but not by their interface, is judged. The second packet shows that the first could have come.
	var got net.PacketConn
	w.in("pod", func() (err error) {
		got, err = net.ListenPacket("udp4", ":80")
		return err
	})
	defer got.Close()
	w.sh("node", "ip route add 10.10.0.77 via 192.168.60.2")
	send := func(from, text string) {
		w.in("peer", func() error {
			conn, err := net.DialUDP("udp4", &net.UDPAddr{IP: net.ParseIP(from)}, &net.UDPAddr{IP: net.ParseIP("192.168.60.1"), Port: 30080})
			if err != nil {
				return err
			}
			defer conn.Close()
			_, err = conn.Write([]byte(text))
			return err
		})
	}
	udp := strings.ReplaceAll(friend, "ports: [", "ports: [{protocol: UDP, port: 30080}, ")
	set(control.HostsConfirmed, preDNAT(policyOf(t, "friend", udp)))
	send("10.10.0.77", "forged")
	send("192.168.60.3", "allowed")
	text := make([]byte, 99)
	_ = got.SetReadDeadline(time.Now().Add(eventually.Patience))
	if n, _, err := got.ReadFrom(text); err != nil || string(text[:n]) != "allowed" {
		t.Errorf("the pod received %q, %v", text[:n], err)
	}

	set(control.HostsConfirmed, preDNAT(policyOf(t, "all", strings.Replace(denyIn, "Drop", "Reject", 1))))
	w.expect("rejected", map[string]string{"peer > NodePort": "r4r6", "peer > load balancer": "r4r6", "peer > node": "r4r6", "friend > NodePort": "46"})
	w.expect("rejected", unaffected)
	set(control.HostsConfirmed, policyOf(t, "input", denyIn))
	w.expect("and at INPUT", map[string]string{"friend > NodePort": "46", "friend > node": "", "peer > ssh": "46"})
	pass := "{priority: 2, appliedTo: [{nodeSelector: {}}], ingress: [{action: Pass, ports: [{port: 30080}]}]}"
	baseline := "{tier: baseline, priority: 1, appliedTo: [{nodeSelector: {}}], ingress: [{action: Allow, from: [{ipBlock: {cidr: 192.168.60.2/32}}]}, {action: Drop}]}"
	set(control.HostsConfirmed, preDNAT(policyOf(t, "pass", pass)), preDNAT(policyOf(t, "baseline", baseline)))
	w.expect("a Pass to the baseline tier", map[string]string{"peer > NodePort": "4", "friend > NodePort": "46", "peer > load balancer": "r4r6"})
	var gone []datastore.Event
	for _, name := range []string{"all", "friend", "input", "pass", "baseline"} {
		gone = append(gone, datastore.AntreaDeleted{ID: antrea.ID{Kind: antrea.KindClusterNetworkPolicy, Name: name}})
	}
	a.Source.Send(true, gone...)
	a.Programmed(t)
	eventually.True(t, "no table", func() bool { return w.table() == "" })
	w.expect("without policies", map[string]string{"peer > NodePort": "46", "peer > gateway": "46"})
}

// TestPreDNATWithdrawn: a policy before DNAT is tried, withdrawn, recorded and turned off as others are.
func TestPreDNATWithdrawn(t *testing.T) {
	w := newServing(t)
	open := func() bool { return w.opens("peer", "NodePort", "") == "46" }
	t.Run("withdrawn", func(t *testing.T) {
		a := w.start(t, func(context.Context) error { // by the rules: on a busy machine, packets are late
			_, list, _ := strings.Cut(w.table(), "chain hosts-pre-dnat {")
			if list, _, _ = strings.Cut(list, "}"); strings.Contains(list, "jump ain-all-") {
				return errors.New("the NodePort is closed")
			}
			return nil
		}, time.Second)
		a.Begin(t, preDNAT(policyOf(t, "friend", friend)))
		a.awaits(t, control.HostsConfirmed)
		a.Source.Send(true, preDNAT(policyOf(t, "all", denyIn)))
		a.awaits(t, control.HostsWithdrawn)
		if h := a.hosts(t); strings.Join(h.Withdrawn, " ") != "clusternetworkpolicy.crd.antrea.io/all" || strings.Join(h.Confirmed, " ") != "clusternetworkpolicy.crd.antrea.io/friend" {
			t.Errorf("status %+v", h)
		}
		eventually.True(t, "open after the withdrawal", open)
		a.Source.Send(true, policyOf(t, "all", denyIn)) // it is another policy without the annotation
		a.awaits(t, control.HostsConfirmed)
	})
	t.Run("confirmed", func(t *testing.T) {
		a := w.start(t, nil, 0)
		a.Begin(t, preDNAT(policyOf(t, "all", denyIn)))
		a.awaits(t, control.HostsConfirmed)
	})
	w.at["node"].Run(t, "nft", "delete", "table", "inet", "felixlike-hosts")
	eventually.True(t, "open without a table", open)
	t.Run("rebooted", func(t *testing.T) {
		a := w.start(t, func(context.Context) error { return errors.New("no API server") }, 0)
		eventually.True(t, "closed before the objects are known", func() bool { return w.table() != "" && !open() })
		if err := os.WriteFile(filepath.Join(w.dir, boot.OffFile), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		a.Begin(t, preDNAT(policyOf(t, "all", denyIn)))
		a.awaits(t, control.HostsOff)
		eventually.True(t, "open once they are off", open)
	})
}

// tooBig counts packets by which a router says that a packet was too big: behind our rules, before DNAT and at INPUT.
const tooBig = `table inet too-big {
	counter prerouting4 {}
	counter prerouting6 {}
	counter input4 {}
	counter input6 {}
	chain prerouting {
		type filter hook prerouting priority -155
		icmp type destination-unreachable icmp code frag-needed counter name prerouting4
		icmpv6 type packet-too-big counter name prerouting6
	}
	chain input {
		type filter hook input priority 20
		icmp type destination-unreachable icmp code frag-needed counter name input4
		icmpv6 type packet-too-big counter name input6
	}
}`

// TestForgedTooBig: that a packet was too big passes only to the node itself, and not from its pods, which could forge it.
func TestForgedTooBig(t *testing.T) {
	w := newServing(t)
	w.at["node"].Feed(t, tooBig, "nft", "-f", "-")
	a := w.start(t, nil, 0)
	a.Attach("pod", addresses["pod"][0], addresses["pod"][1])
	a.Begin(t)
	send := func(from string, to [2]string) {
		t.Helper()
		for i, network := range []string{"ip4:icmp", "ip6:ipv6-icmp"} {
			w.in(from, func() error {
				conn, err := net.Dial(network, to[i])
				if err != nil {
					return err
				}
				defer conn.Close()
				_, err = conn.Write(append([][]byte{{3, 4, 0, 0, 0, 0, 5, 0}, {2, 0, 0, 0, 0, 0, 5, 0}}[i], make([]byte, 48)...))
				return err
			})
		}
	}
	count := func(hook string) (n [2]string) {
		for i, f := range []string{"4", "6"} {
			n[i] = w.at["node"].Run(t, "sh", "-c", "nft list counter inet too-big "+hook+f+" | sed -n 's/.*packets \\([0-9]*\\).*/\\1/p' | tr -d '\\n'")
		}
		return n
	}
	node, balancer := [2]string{"192.168.60.1", "fd60::1"}, [2]string{"203.0.113.10", "fd99::10"}
	expect := func(when, hook string, open bool, from string, to [2]string) {
		t.Helper()
		w.at["node"].Run(t, "nft", "reset", "counters", "table", "inet", "too-big")
		if open {
			eventually.True(t, when+": passes", func() bool {
				send(from, to)
				n := count(hook)
				return n[0] != "0" && n[1] != "0"
			}, func() string { return fmt.Sprint(count(hook)) })
			return
		}
		send(from, to)
		if n := count(hook); n != [2]string{"0", "0"} {
			t.Errorf("%s: %v have passed", when, n)
		}
	}
	expect("without a policy, from a pod", "input", true, "pod", node)
	expect("without a policy, to a load balancer", "prerouting", true, "peer", balancer)
	for name, policy := range map[string]datastore.Event{"at INPUT": policyOf(t, "all", denyIn), "before DNAT": preDNAT(policyOf(t, "all", denyIn))} {
		a.Source.Send(true, policy)
		a.Programmed(t)
		a.awaits(t, control.HostsConfirmed)
		expect(name+", from a router", "input", true, "peer", node)
		expect(name+", from a pod", "input", false, "pod", node)
		expect(name+", to a load balancer", "prerouting", name == "at INPUT", "peer", balancer)
	}
}
