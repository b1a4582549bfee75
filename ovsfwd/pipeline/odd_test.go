package pipeline

import (
	"encoding/binary"
	"net/netip"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
)

// segment makes a TCP segment that is known by its payload.
func (l *lab) segment(src, dst string, sport, dport uint16, flags byte, seq, ack uint32) probe {
	p := l.udpProbe(src, dst, sport, dport)
	b := binary.BigEndian.AppendUint16(nil, sport)
	b = binary.BigEndian.AppendUint16(b, dport)
	b = binary.BigEndian.AppendUint32(b, seq)
	b = binary.BigEndian.AppendUint32(b, ack)
	b = append(b, 5<<4, flags, 0x10, 0, 0, 0, 0, 0)
	p.proto, p.body = 6, append(b, p.mark...)
	return p
}

// TestInvalid opens connections and then sends segments that belong to none: far outside the window, from
// both sides, under any policy.
func TestInvalid(t *testing.T) {
	const syn, ack, far = 2, 16, 1 << 30
	l := newLab(t, nil)
	for _, f := range families() {
		a, b, gw := l.pods[0].MAC, l.pods[1].MAC, l.node.GatewayMAC
		for _, test := range []struct {
			what, client, server string
			there, back          func(probe)
			to, from             *wire
		}{
			{
				"pods", f.pod0, f.pod1, func(p probe) { l.fromPod(0, b, p) }, func(p probe) { l.fromPod(1, a, p) }, l.pod1, l.pod0,
			},
			{
				"by the gateway port", f.outside, f.pod1, func(p probe) { l.fromGateway(b, p) }, func(p probe) { l.fromPod(1, gw, p) }, l.pod1, l.gw,
			},
		} {
			p := l.segment(test.client, test.server, 1000, 80, syn, 100, 0)
			test.there(p)
			l.comes(test.what+": opening", p, test.to, 64)
			// The payload of each segment counts.
			size := uint32(len(p.mark))
			p = l.segment(test.server, test.client, 80, 1000, syn|ack, 500, 101+size)
			test.back(p)
			l.comes(test.what+": answer", p, test.from, 64)
			p = l.segment(test.client, test.server, 1000, 80, ack, 101+size, 501+uint32(len(p.mark)))
			test.there(p)
			l.comes(test.what+": established", p, test.to, 64)
			for range 2 {
				p = l.segment(test.client, test.server, 1000, 80, ack, 101+far, 501+far)
				test.there(p)
				l.nowhere(test.what+": outside the window", p)
				p = l.segment(test.server, test.client, 80, 1000, ack, 501+far, 101+far)
				test.back(p)
				l.nowhere(test.what+": answer outside the window", p)
			}
		}
		p := l.segment(f.pod0, f.pod1, 7, 7, syn|ack, 1, 1)
		l.fromPod(0, b, p)
		l.nowhere("answer to nothing", p)
	}
}

// TestOpenedAgainByAnotherWay opens a connection between two pods directly, and again,
// from the same port, through a Service, which is by the gateway port; and the other
// way round. Answers take the way of the connection that is open, and not that of the
// one that connection tracking remembers.
func TestOpenedAgainByAnotherWay(t *testing.T) {
	const syn, ack = 2, 16
	for name, policy := range map[string][]openflow.Flow{"without policy": nil, "rules that commit": everybodyMay(2)} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, policy)
			// As on a node with connections from another backend.
			l.Run("ovs-appctl", "-t", l.Daemons.VSwitchdControl(), "dpctl/ct-disable-tcp-seq-chk")
			for _, f := range families() {
				for i := range 4 {
					way, send, back := "directly", func(p probe) { l.fromPod(0, l.pods[1].MAC, p) }, l.pod0
					if i%2 == 1 {
						way, send, back = "through a Service", func(p probe) { l.fromGateway(l.pods[1].MAC, p) }, l.gw
					}
					seq := uint32(i+1) << 28
					var seen uint16 // the client's port as the server sees it: another one while the first connection is there
					there := func(flags byte, ack uint32) {
						p := l.segment(f.pod0, f.pod1, 1000, 80, flags, seq, ack)
						send(p)
						if got := l.comes(way, p, l.pod1, 64); got != nil {
							seen = binary.BigEndian.Uint16(got[f.transport:])
						}
					}
					answer := func(flags byte) {
						p := l.segment(f.pod1, f.pod0, 80, seen, flags, seq+500, seq+100)
						l.fromPod(1, l.pods[0].MAC, p)
						if got := l.comes("answer to a connection opened "+way, p, back, 64); got != nil {
							if port := binary.BigEndian.Uint16(got[f.transport+2:]); port != 1000 {
								t.Errorf("answer to a connection opened %s: it comes to port %d", way, port)
							}
						}
					}
					there(syn, 0)
					answer(syn | ack)
					there(ack, seq+600)
					answer(ack)
				}
			}
		})
	}
}

// TestErrors sends ICMP errors about connections: those about allowed ones pass from every sender, all others
// are judged as ICMP.
func TestErrors(t *testing.T) {
	policy := everybodyMay(2) // no rule allows ICMP
	l := newLab(t, policy)
	for _, f := range families() {
		a, b, gw := l.pods[0].MAC, l.pods[1].MAC, l.node.GatewayMAC
		open := func(what string, p probe, send func(probe), to *wire, ttl uint8) probe {
			send(p)
			l.comes(what, p, to, ttl)
			p.mark = []byte("error about " + what + " of " + p.src)
			p.body = udp(p.sport, p.dport, p.mark)
			return p
		}
		about := open("pod to the outside", l.udpProbe(f.pod0, f.outside, 1000, 53), func(p probe) { l.fromPod(0, gw, p) }, l.gw, 64)
		router := map[bool]string{false: "9.9.9.9", true: "2001:db8:9::9"}[netip.MustParseAddr(f.pod0).Is6()]
		p := l.unreachable(router, f.pod0, about)
		l.fromGateway(a, p)
		l.comes("error of a router outside", p, l.pod0, 64)

		about = open("pod to a peer's pod", l.udpProbe(f.pod0, f.peerPod, 1001, 53), func(p probe) { l.fromPod(0, gw, p) }, l.underlay, 63)
		p = l.unreachable(f.peer, f.pod0, about)
		l.fromPeer(p)
		l.comes("error of a peer", p, l.pod0, 63)

		about = open("pod to pod", l.udpProbe(f.pod0, f.pod1, 1002, 53), func(p probe) { l.fromPod(0, b, p) }, l.pod1, 64)
		p = l.unreachable(f.pod1, f.pod0, about)
		l.fromPod(1, a, p)
		l.comes("error of a pod", p, l.pod0, 64)

		about = open("outside to pod", l.udpProbe(f.outside, f.pod1, 1003, 53), func(p probe) { l.fromGateway(b, p) }, l.pod1, 64)
		p = l.unreachable(f.pod1, f.outside, about)
		l.fromPod(1, a, p)
		l.comes("error of a pod to the outside, with any MAC address", p, l.gw, 64)

		about = l.udpProbe(f.pod0, f.pod1, 6, 6)
		about.mark = []byte("error about no connection of " + f.pod0)
		about.body = udp(6, 6, about.mark)
		p = l.unreachable(f.pod1, f.pod0, about)
		l.fromPod(1, a, p)
		l.nowhere("error about nothing", p)
	}
}

// fragments makes the two fragments of a datagram to port 53.
func (l *lab) fragments(p probe, id uint16) [][]byte {
	src, dst := netip.MustParseAddr(p.src), netip.MustParseAddr(p.dst)
	payload := make([]byte, 2000)
	copy(payload, p.mark)
	copy(payload[1900:], p.mark)
	body := transport(src, dst, 17, udp(p.sport, p.dport, payload))
	// Open vSwitch takes none below 1,200 bytes but the last.
	fragment := func(offset int, more bool, b []byte) []byte {
		bit := func(value uint16) uint16 {
			if more {
				return value
			}
			return 0
		}
		if src.Is6() {
			// The fragment header (RFC 8200, section 4.5).
			header := binary.BigEndian.AppendUint16([]byte{17, 0}, uint16(offset)|bit(1))
			header = binary.BigEndian.AppendUint32(header, uint32(id))
			return ethernet(l.pods[1].MAC, l.pods[0].MAC, 0x86dd, ip(src, dst, 44, 64, append(header, b...)))
		}
		packet := ip(src, dst, 17, 64, b)
		binary.BigEndian.PutUint16(packet[4:], id)
		binary.BigEndian.PutUint16(packet[6:], uint16(offset/8)|bit(0x2000))
		binary.BigEndian.PutUint16(packet[10:], 0)
		binary.BigEndian.PutUint16(packet[10:], checksum(packet[:20]))
		return ethernet(l.pods[1].MAC, l.pods[0].MAC, 0x0800, packet)
	}
	const split = 1400
	return [][]byte{fragment(0, true, body[:split]), fragment(split, false, body[split:])}
}

// TestFragments: the userspace datapath puts a datagram together to look its
// connection up, but shows the flows its fragments, and only the first has ports.
func TestFragments(t *testing.T) {
	port53 := openflow.IPv4().Protocol(17).Port(openflow.UDPDst, 53, 0xffff)
	for _, test := range []struct {
		name          string
		policy        []openflow.Flow
		first, second bool
	}{
		{"no policy", nil, true, true},
		{"rules without ports", everybodyMay(2), true, true},
		// Closed, and not half open: the first packet of a connection must be in one piece.
		{"rules with ports", []openflow.Flow{
			isolateEgress("10.10.0.2"), closed1(), allowEgress(2, port53), allowIngress(3, port53),
		}, false, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			l := newLab(t, test.policy)
			send := func(what string, id uint16, want bool) {
				p := l.udpProbe("10.10.0.2", "10.10.0.3", 1000, 53)
				frames := l.fragments(p, id)
				for _, f := range frames {
					l.pod0.send(f)
				}
				for i, f := range frames {
					if !want {
						l.fence()
					}
					if came := want && l.pod1.await(f) != nil || !want && l.pod1.got(f) != nil; came != want {
						t.Errorf("%s: fragment %d came: %v", what, i, came)
					}
				}
			}
			send("first datagram", 7, test.first)
			p := l.udpProbe("10.10.0.2", "10.10.0.3", 1000, 53)
			l.fromPod(0, l.pods[1].MAC, p)
			l.comes("datagram in one piece", p, l.pod1, 64)
			p = l.udpProbe("10.10.0.3", "10.10.0.2", 53, 1000)
			l.fromPod(1, l.pods[0].MAC, p)
			l.comes("answer", p, l.pod0, 64)
			send("datagram of an established connection", 8, test.second)
		})
	}
}

// TestOwnAddressThatAPeerClaims: the object of this node under an earlier name, or of one that has died, may
// still have an address of this node. In both orders of installation, packets for the node come to it.
func TestOwnAddressThatAPeerClaims(t *testing.T) {
	var node Node
	l := newLabOf(t, func(n *Node) { node = *n }, func(flows []openflow.Flow) []openflow.Flow {
		return append(Peer(node, &model.Node{Name: "old", Addresses: addrs(nodeAddress)}), flows...)
	})
	p := l.udpProbe("10.10.1.5", nodeAddress, 1000, 2000)
	l.fromPeer(p)
	l.comes("from a peer's pod to the node", p, l.gw, 64)
	p = l.udpProbe("10.10.0.2", nodeAddress, 1000, 2000)
	l.fromPod(0, l.node.GatewayMAC, p)
	l.comes("from a pod to its node", p, l.gw, 64)
}

// TestTrace checks the registers and connections that the tables leave behind.
func TestTrace(t *testing.T) {
	l := newLab(t, everybodyMay(2))
	trace := func(flow string, state ...string) string {
		args := []string{"-t", l.Daemons.VSwitchdControl(), "ofproto/trace", "br-int", flow}
		for _, s := range state {
			args = append(args, "--ct-next", s)
		}
		return l.Run("ovs-appctl", args...)
	}
	pod0 := "in_port=3,dl_src=" + l.pods[0].MAC.String() + ",dl_dst=" + l.pods[1].MAC.String() + ",udp,nw_ttl=64,nw_src=10.10.0.2,"
	for _, test := range []struct {
		name, out string
		want      []string
	}{
		{"pod to pod, new", trace(pod0+"nw_dst=10.10.0.3,udp_dst=53", "trk,new", "trk,new", "trk,new", "trk,new"), []string{
			"reg0=0x10002", "reg1=0x4", "reg5=0x2", "reg6=0x3", "label=0x200000000/0xffffffff00000000",
			"label=0x3/0xffffffff", "label=0x10000000000000000/0x10000000000000000", "Datapath actions: ct(commit,zone=65520,label=",
		}},
		{"pod to pod, established and not allowed", trace(pod0+"nw_dst=10.10.0.3,udp_dst=53", "trk,est,rpl", "trk,est,rpl"), []string{
			"reg0=0x400002", "ct_clear",
		}},
		{"pod to its node", trace(pod0+"nw_dst=192.168.77.100,udp_dst=53", "trk,new", "trk,new"), []string{"reg0=0x10002", "reg1=0x2"}},
		{"host to pod", trace("in_port=2,dl_src="+l.node.GatewayMAC.String()+",dl_dst="+l.pods[0].MAC.String()+",udp,nw_src=10.10.0.1,nw_dst=10.10.0.2,nw_ttl=64",
			"trk,new", "trk,new"), []string{"reg0=0x10001", "reg1=0x3", "mark=0x20/0xffffffff"}},
		{"hairpin", trace("in_port=2,dl_src="+l.node.GatewayMAC.String()+",dl_dst="+l.pods[0].MAC.String()+",udp,nw_src=169.254.20.20,nw_dst=10.10.0.2,nw_ttl=64,udp_dst=53",
			"trk,new", "trk,new", "trk,new", "trk,new"), []string{"reg0=0x210001", "set_field:169.254.20.20->ip_src", "reg5=0x2", "reg6=0x3"}},
		{"tunnel to pod", trace("in_port=1,tun_src=192.168.77.101,dl_src="+farMAC().String()+",dl_dst="+VirtualMAC().String()+
			",udp,nw_src=10.10.1.5,nw_dst=10.10.0.2,nw_ttl=64,udp_dst=53", "trk,new", "trk,new", "trk,new"), []string{"reg0=0x90000", "reg1=0x3", "dec_ttl"}},
	} {
		for _, want := range test.want {
			if !strings.Contains(test.out, want) {
				t.Errorf("%s: no %s in\n%s", test.name, want, test.out)
			}
		}
	}
}

// TestRequestFromTheHost: a pod's request comes from the host with the ports of a connection of the pod. While packets arrive that the host got
// before a change of the backend, it is that pod's next connection. Later, the host has translated another one to these ports.
func TestRequestFromTheHost(t *testing.T) {
	for mode, moves := range map[Mode]bool{BeginsInSwitch: false, Full: true} {
		t.Run(mode.String(), func(t *testing.T) {
			const port, server, syn, ack = 33000, 80, 2, 16
			l := newLabOf(t, func(n *Node) { n.Mode = mode }, func(flows []openflow.Flow) []openflow.Flow { return flows })
			p := l.segment("10.10.0.2", "10.10.0.3", port, server, syn, 100, 0)
			l.fromPod(0, l.pods[1].MAC, p)
			l.comes("the first request", p, l.pod1, 64)
			next := 101 + uint32(len(p.mark))
			p = l.segment("10.10.0.3", "10.10.0.2", server, port, syn|ack, 500, next)
			l.fromPod(1, l.pods[0].MAC, p)
			l.comes("its answer", p, l.pod0, 64)
			p = l.segment("10.10.0.2", "10.10.0.3", port, server, syn, next, 0)
			l.fromGateway(l.pods[1].MAC, p)
			got := l.comes("the request from the host", p, l.pod1, 64)
			if from := binary.BigEndian.Uint16(got[34:]); (from != port) != moves {
				t.Errorf("it came from port %d", from)
			}
		})
	}
}
