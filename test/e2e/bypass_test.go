package e2e

import (
	"net"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/felixlike/felixlike/cni"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/lab"
)

const noEgressFromA = `
kind: NetworkPolicy
metadata: {namespace: x, name: no-egress-from-a}
spec: {podSelector: {matchLabels: {pod: a}}, policyTypes: [Egress]}
`

// TestHostSideForwardsNothing sends a pod's packets to the MAC address of the
// host side of its own veth. Under a userspace datapath the host's IP stack sees such
// frames, too, and would forward them around the bridge and policy.
func TestHostSideForwardsNothing(t *testing.T) {
	t.Parallel()
	inEachPlace(t, hostSideForwardsNothing)
}

func hostSideForwardsNothing(t *testing.T, l *lab.Lab) {
	set(t, l, state(t, threeNodes, noEgressFromA))
	id := model.PodID{Namespace: "x", Name: "a"}
	pod := l.Pod(id)
	host := linkMAC(t, pod.Node().Namespace(), cni.HostInterface(id))
	err := pod.Namespace().Do(func() error {
		link, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		routes, err := netlink.RouteList(link, netlink.FAMILY_ALL)
		if err != nil {
			return err
		}
		for _, r := range routes {
			if r.Gw == nil {
				continue
			}
			if err := netlink.NeighSet(&netlink.Neigh{
				LinkIndex: link.Attrs().Index, IP: r.Gw, HardwareAddr: host, State: netlink.NUD_PERMANENT,
			}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, to := range []string{"ip:192.0.2.1", "node:node2", "x/c"} {
		if probe(t, l, "x/a", to, model.TCP, 80) {
			t.Errorf("x/a reaches %s around its policy", to)
		}
	}
	// The frames do leave the pod: its own node it may always reach.
	expect(t, l, true, "x/a", "node:node1", model.TCP, 80)
}

// TestLinkLocalIsNotForwarded sends datagrams to the link-local address of an
// isolated pod, with a source that the host forwards: no policy knows that
// address, so nothing may go there.
func TestLinkLocalIsNotForwarded(t *testing.T) {
	t.Parallel()
	inEachPlace(t, linkLocalIsNotForwarded)
}

func linkLocalIsNotForwarded(t *testing.T, l *lab.Lab) {
	set(t, l, state(t, threeNodes, denyAll, allowEgress))
	a, b := l.Pod(model.PodID{Namespace: "x", Name: "a"}), l.Pod(model.PodID{Namespace: "x", Name: "b"})
	mac := cni.MAC(model.PodID{Namespace: "x", Name: "a"})
	local := net.IP{0xfe, 0x80, 0, 0, 0, 0, 0, 0, mac[0] ^ 2, mac[1], mac[2], 0xff, 0xfe, mac[3], mac[4], mac[5]}
	var server, client *net.UDPConn
	if err := a.Namespace().Do(func() (err error) {
		server, err = net.ListenUDP("udp6", &net.UDPAddr{IP: net.IPv6unspecified, Port: 5555})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	if err := b.Namespace().Do(func() (err error) {
		client, err = net.DialUDP("udp6", &net.UDPAddr{IP: b.Address(model.IPv6).AsSlice()}, &net.UDPAddr{IP: local, Port: 5555, Zone: "eth0"})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for range 5 {
		if _, err := client.Write([]byte("?")); err != nil {
			t.Fatal(err)
		}
	}
	if err := server.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	if n, from, err := server.ReadFrom(make([]byte, 8)); err == nil {
		t.Errorf("%d bytes from %s reached an isolated pod", n, from)
	}
}

// allowEgress opens the way out for all pods of the namespace.
const allowEgress = `
{kind: NetworkPolicy, metadata: {namespace: x, name: out}, spec: {podSelector: {}, egress: [{}], policyTypes: [Egress]}}
`
