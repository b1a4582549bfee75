package multitenant

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
)

// TestForgedPackets asks a switch with pods which way forged packets would take, and next to them right ones.
func TestForgedPackets(t *testing.T) {
	l := newLab(t)
	b, w := l.bridges[0], l.worlds[0]
	self, other := w.pods[0], w.pods[3]
	peer, stranger := "192.168.77.2", "192.168.77.3"
	const peerPod, farPod, outsider = "10.128.2.11", "10.129.0.5", "198.51.100.1"
	address := func(p tenantPod) string { return p.Addresses[0].String() }
	packet := func(p tenantPod, words string, more ...any) string {
		return fmt.Sprintf("in_port=%d,dl_src=%s,", p.OFPort, p.MAC) + fmt.Sprintf(words, more...)
	}
	tunnel := func(source string, number int, words string, more ...any) string {
		return fmt.Sprintf("in_port=1,tun_src=%s,tun_dst=192.168.77.1,tun_id=%d,", source, number) + fmt.Sprintf(words, more...)
	}
	const ip, ask = "ip,nw_src=%s,nw_dst=%s", "arp,arp_op=1,arp_spa=%s,arp_tpa=%s,arp_sha=%s"
	for _, test := range []struct {
		name, packet string
		passes       bool
	}{
		{"a pod to its own tenant", packet(self, ip, address(self), peerPod), true},
		{"a pod to the outside", packet(self, ip, address(self), outsider), true},
		{"a pod with another pod's address", packet(self, ip, address(other), "10.128.2.14"), false},
		{"a pod with an address outside", packet(self, ip, outsider, peerPod), false},
		{"a pod with the gateway's address", packet(self, ip, "10.131.0.1", peerPod), false},
		{"a pod with another MAC address", strings.Replace(packet(self, ip, address(self), peerPod), self.MAC.String(), other.MAC.String(), 1), false},
		{"an unknown port", strings.Replace(packet(self, ip, address(self), peerPod), fmt.Sprintf("in_port=%d", self.OFPort), "in_port=77", 1), false},
		{"a pod to an unused address", packet(self, ip, address(self), "10.131.0.200"), false},
		{"a pod to the prefix of no node", packet(self, ip, address(self), farPod), false},
		{"IPv6 of a pod", packet(self, "ipv6,ipv6_src=fd00::1,ipv6_dst=fd00::2"), false},
		{"ARP for the gateway", packet(self, ask, address(self), "10.131.0.1", self.MAC), true},
		{"ARP to a pod of the tenant on the other node", packet(self, ask, address(self), peerPod, self.MAC), true},
		{"ARP with another pod's address", packet(self, ask, address(other), "10.131.0.1", self.MAC), false},
		{"ARP with another sender's MAC address", packet(self, ask, address(self), "10.131.0.1", other.MAC), false},
		{"ARP to another tenant", packet(self, ask, address(self), address(other), self.MAC), false},
		{"ARP for the outside", packet(self, ask, address(self), outsider, self.MAC), false},
		{"a redirect", packet(self, "icmp,icmp_type=5,nw_src=%s,nw_dst=%s", address(self), peerPod), false},
		{"an ICMP request", packet(self, "icmp,icmp_type=8,nw_src=%s,nw_dst=%s", address(self), peerPod), true},
		{"VXLAN to the other node", packet(self, "udp,udp_dst=4789,nw_src=%s,nw_dst=%s", address(self), peer), false},
		{"Geneve to the other node", packet(self, "udp,udp_dst=6081,nw_src=%s,nw_dst=%s", address(self), peer), false},
		{"GRE to the other node", packet(self, "ip,nw_proto=47,nw_src=%s,nw_dst=%s", address(self), peer), false},
		{"VXLAN to this node", packet(self, "udp,udp_dst=4789,nw_src=%s,nw_dst=192.168.77.1", address(self)), false},
		{"VXLAN to the gateway", packet(self, "udp,udp_dst=4789,nw_src=%s,nw_dst=10.131.0.1", address(self)), false},
		{"VXLAN to the other node's gateway", packet(self, "udp,udp_dst=4789,nw_src=%s,nw_dst=10.128.2.1", address(self)), false},
		{"UDP to the other node", packet(self, "udp,udp_dst=4790,nw_src=%s,nw_dst=%s", address(self), peer), true},

		{"a Service", packet(self, "tcp,nw_src=%s,nw_dst=172.30.0.10,tcp_dst=80", address(self)), true},
		{"a Service's other port", packet(self, "tcp,nw_src=%s,nw_dst=172.30.0.10,tcp_dst=81", address(self)), false},
		{"another tenant's Service", packet(self, "tcp,nw_src=%s,nw_dst=172.30.0.13,tcp_dst=80", address(self)), false},
		{"a later fragment to a Service", packet(self, "udp,nw_frag=later,nw_src=%s,nw_dst=172.30.0.10", address(self)), true},
		{"a later fragment to another tenant's Service", packet(self, "udp,nw_frag=later,nw_src=%s,nw_dst=172.30.0.13", address(self)), false},
		{"no Service", packet(self, "tcp,nw_src=%s,nw_dst=172.30.9.9,tcp_dst=80", address(self)), false},

		{"a peer's pod", tunnel(peer, 7, ip, peerPod, address(self)), true},
		{"a peer's gateway", tunnel(peer, 0, ip, "10.128.2.1", address(self)), true},
		{"a peer's pod of another tenant", tunnel(peer, 9, ip, peerPod, address(self)), false},
		{"a stranger with the right number", tunnel(stranger, 7, ip, peerPod, address(self)), false},
		{"a stranger with number 0", tunnel(stranger, 0, ip, peerPod, address(self)), false},
		{"a peer's global pod", tunnel(peer, 0, ip, "10.128.2.13", address(self)), true},
		{"a peer's pod with number 0 that is not global", tunnel(peer, 0, ip, peerPod, address(self)), false},
		{"a peer's ARP with number 0 of a pod that is not global", tunnel(peer, 0, ask, peerPod, address(self), self.MAC), false},
		{"a peer with an address of no node", tunnel(peer, 7, ip, farPod, address(self)), false},
		{"a peer with an address of this node", tunnel(peer, 7, ip, address(w.pods[1]), address(self)), false},
		{"a peer with this gateway's address", tunnel(peer, 0, ip, "10.131.0.1", address(self)), false},
		{"a peer with an address outside", tunnel(peer, 0, ip, outsider, address(self)), false},
		{"a peer to the outside", tunnel(peer, 7, ip, peerPod, outsider), false},
		{"a peer to a Service", tunnel(peer, 7, "tcp,nw_src=%s,nw_dst=172.30.0.10,tcp_dst=80", peerPod), false},
		{"a peer's ARP", tunnel(peer, 7, ask, peerPod, address(self), self.MAC), true},
		{"a peer's ARP of another tenant", tunnel(peer, 9, ask, peerPod, address(self), self.MAC), false},
		{"a peer's ARP with an address of this node", tunnel(peer, 7, ask, address(w.pods[1]), address(self), self.MAC), false},
		{"a stranger's ARP", tunnel(stranger, 7, ask, peerPod, address(self), self.MAC), false},

		{"the host", "in_port=2," + fmt.Sprintf(ip, "10.131.0.1", address(self)), true},
		{"the outside through the host", "in_port=2," + fmt.Sprintf(ip, outsider, address(self)), true},
		{"a pod of the tenant through the host", "in_port=2," + fmt.Sprintf(ip, address(w.pods[1]), address(self)), true},
		{"a pod of another tenant through the host", "in_port=2," + fmt.Sprintf(ip, address(other), address(self)), false},
		{"a global pod through the host", "in_port=2," + fmt.Sprintf(ip, address(w.pods[2]), address(self)), true},
		{"no pod through the host", "in_port=2," + fmt.Sprintf(ip, "10.131.0.200", address(self)), false},
		{"a pod of the other node through the host", "in_port=2," + fmt.Sprintf(ip, peerPod, address(self)), false},
		{"the host's ARP", "in_port=2," + fmt.Sprintf(ask, "10.131.0.1", address(self), self.MAC), true},
		{"the host's ARP with a pod's address", "in_port=2," + fmt.Sprintf(ask, address(other), address(self), self.MAC), false},
		{"IPv6 of the host", "in_port=2,ipv6,ipv6_src=fd00::1,ipv6_dst=fd00::2", false},
	} {
		out := b.Run("ovs-appctl", "-t", b.Daemons.VSwitchdControl(), "ofproto/trace", b.Config.Bridge, test.packet)
		if passes := !strings.Contains(out, "Datapath actions: drop"); passes != test.passes || !strings.Contains(out, "Datapath actions: ") {
			t.Errorf("%s: passes %t, want %t\n%s\n%s", test.name, passes, test.passes, test.packet, out)
		}
	}
}

// TestUnknownIsClosed: a pod, peer or Service with a part that is not known gets no flows. A missing number does not count as number 0, which is global.
func TestUnknownIsClosed(t *testing.T) {
	n := own(nodeOf("node1", "192.168.77.1", "10.131.0.0/23"))
	for _, tenant := range []Tenant{{}, {Number: 7, Global: true}, {Number: MaxNumber + 1}} {
		s := Service{Address: netip.MustParseAddr("172.30.0.1"), Ports: []ServicePort{{model.TCP, 80}}}
		if flows := append(append(Endpoint(podOf(tenant, 5, "10.131.0.5").Attachment, tenant), ServiceFlows(n, s, tenant)...), Tenants(tenant)...); flows != nil {
			t.Errorf("%+v: %s", tenant, flows)
		}
	}
	known := Tenant{Number: 7}
	v6 := podOf(known, 5, "10.131.0.5")
	v6.Addresses = []netip.Addr{netip.MustParseAddr("fd00::5")}
	for name, p := range map[string]tenantPod{"no port": podOf(known, 0, "10.131.0.5"), "no IPv4 address": v6} {
		if flows := Endpoint(p.Attachment, known); flows != nil {
			t.Errorf("%s: %s", name, flows)
		}
	}
	for name, p := range map[string]*model.Node{
		"no address": {PodCIDRs: []netip.Prefix{n.PodPrefix}}, "no pod prefix": {Addresses: n.Addresses},
	} {
		if flows := Peer(n, p); flows != nil {
			t.Errorf("peer with %s: %s", name, flows)
		}
	}
	if got := Tenants(known, Tenant{Global: true}, Tenant{Number: 3}, known); len(got) != 2 {
		t.Errorf("flows of two numbers: %s", got)
	}
}

// TestFlowsAreDistinct: no two flows have one table, priority and match. None learns, and none switches by MAC addresses: such entries
// outlive what they were learned from.
func TestFlowsAreDistinct(t *testing.T) {
	first, second := reference()
	for _, w := range []world{first, second} {
		seen := map[string]openflow.Flow{}
		for _, f := range w.flows() {
			key := fmt.Sprint(f.Table, f.Priority, f.Match)
			if old, found := seen[key]; found {
				t.Errorf("%s\n%s", old, f)
			}
			seen[key] = f
			if text := f.String(); strings.Contains(text, "NORMAL") || strings.Contains(text, "learn") {
				t.Error(text)
			}
		}
	}
}
