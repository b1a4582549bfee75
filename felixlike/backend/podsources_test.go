package backend

import (
	"encoding/binary"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/internal/namespace"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/everykind"
	"github.com/felixlike/felixlike/test/tablestest"
)

// TestFramesAtBridges: of all frames that a pod can send, those pass a bridge with pods that netfilter judges, and ARP. A bridge without
// pods is left alone, the table is repaired, and it goes with the last pod at a bridge.
func TestFramesAtBridges(t *testing.T) {
	ns := tablestest.NewNamespace(t, "nft", "sysctl")
	ns.Run(t, "sysctl", "-qw", "net.bridge.bridge-nf-call-iptables=0", "net.bridge.bridge-nf-call-ip6tables=0")
	wires := map[string]*everykind.Wire{}
	for _, bridge := range []string{"cni0", "other0"} {
		ns.Run(t, "ip", "link", "add", bridge, "up", "type", "bridge", "mcast_snooping", "0")
		for _, side := range []string{"a", "b"} {
			end := tablestest.NewNamespace(t)
			port := side + bridge
			ns.Run(t, "ip", "link", "add", port, "up", "master", bridge, "type", "veth", "peer", "name", "eth0", "netns", end.Name)
			end.Run(t, "ip", "link", "set", "eth0", "up")
			if err := namespace.In(end.FD, func() (err error) {
				wires[port], err = everykind.Open("eth0")
				return err
			}); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = wires[port].Close() })
		}
	}
	pod := func(bridge string) *model.Attachment {
		return &model.Attachment{
			Pod: model.PodID{Namespace: "x", Name: "b"}, Interface: "b" + bridge, Bridge: bridge,
			MAC: net.HardwareAddr{2, 0, 0, 0, 0, 2}, Addresses: []netip.Addr{netip.MustParseAddr("10.9.0.2")},
		}
	}
	c := Config{Node: "n1", TrafficMode: model.PolicyOnly, NetNS: ns.FD}
	stage := func() Stage { return PodSources(c, func() bool { return false }) }
	list := func() string { return ns.Run(t, "nft", "-s", "list", "tables", "bridge") }
	s := stage()
	run(t, s, model.AttachmentUpdate{Attachment: pod("")})
	if got := list(); got != "" {
		t.Errorf("without a pod at a bridge:\n%s", got)
	}
	s = stage()
	run(t, s, model.AttachmentUpdate{Attachment: pod("cni0")})
	judge := func(when, bridge string, judged bool) {
		t.Helper()
		out, in := wires["a"+bridge], wires["b"+bridge]
		src, dst := net.HardwareAddr{2, 0, 0, 0, 0, 1}, net.HardwareAddr{2, 0, 0, 0, 0, 2}
		frames := everykind.Frames(src, dst, content)
		var raw [][]byte
		for _, f := range frames {
			raw = append(raw, f.Bytes)
		}
		if err := out.Send(raw, in); err != nil {
			t.Fatal(err)
		}
		if err := in.Await(out, 0, append(append(append([]byte{}, dst...), src...), append([]byte{8, 6}, everykind.Mark(0)...)...)); err != nil {
			t.Fatal(err)
		}
		arrived, err := in.Take()
		if err != nil {
			t.Fatal(err)
		}
		wrong := 0
		for i, f := range frames {
			kind := f.Type
			want := !judged || f.Tags <= 1 && (kind == everykind.IPv4 || kind == everykind.IPv6 || kind == everykind.ARP)
			if got := arrived[uint32(i+1)] != nil; got != want {
				if wrong++; wrong <= 10 {
					t.Errorf("%s: %s: arrived %v", when, f.Name, got)
				}
			}
		}
	}
	judge("a bridge with pods", "cni0", true)
	judge("a bridge without pods", "other0", false)
	if did := run(t, stage(), model.AttachmentUpdate{Attachment: pod("cni0")}); did.Writes != 0 {
		t.Errorf("a restarted agent: %d writes", did.Writes)
	}
	for _, damage := range []string{"delete table bridge felixlike-pods", "flush chain bridge felixlike-pods frames"} {
		ns.Run(t, "nft", damage)
		s.Invalidate()
		if did := run(t, s); did.Writes == 0 {
			t.Errorf("nft %s was not repaired", damage)
		}
	}
	judge("after the repairs", "cni0", true)
	if did := run(t, s, model.AttachmentRemove{Pod: pod("").Pod, Interface: "bcni0"}); did.Writes == 0 || list() != "" {
		t.Errorf("the pod is gone: %d writes\n%s", did.Writes, list())
	}
	for name, remove := range map[string]func(){
		"another mode": func() { run(t, RemovePodSources(c)) },
		"uninstall": func() {
			if err := RemoveBeside(t.Context(), ns.FD); err != nil {
				t.Error(err)
			}
		},
	} {
		run(t, stage(), model.AttachmentUpdate{Attachment: pod("cni0")})
		if remove(); strings.Contains(ns.Run(t, "nft", "list", "tables"), "felixlike-pods") {
			t.Errorf("%s leaves %s", name, ns.Run(t, "nft", "list", "tables"))
		}
	}
}

// content is a datagram from 10.9.0.1 to 10.9.0.2.
func content(number uint32) (uint16, []byte) {
	mark := everykind.Mark(number)
	b := append([]byte{0x45, 0, 0, byte(28 + len(mark)), 0, 0, 0, 0, 64, 17, 0, 0, 10, 9, 0, 1, 10, 9, 0, 2}, 0x9c, 0x40, 0, 53, 0, byte(8+len(mark)), 0, 0)
	var sum uint32
	for i := 0; i < 20; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	binary.BigEndian.PutUint16(b[10:], ^uint16(sum+sum>>16))
	return everykind.IPv4, append(b, mark...)
}
