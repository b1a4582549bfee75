package e2e

import (
	"net"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/felixlike/felixlike/cni"
	"github.com/felixlike/felixlike/model"
)

const noEgressFromA = `
kind: NetworkPolicy
metadata: {namespace: x, name: no-egress-from-a}
spec: {podSelector: {matchLabels: {pod: a}}, policyTypes: [Egress]}
`

// TestHostSideForwardsNothing sends a pod's packets to the MAC address of the
// host side of its own veth. The host's IP stack sees such frames besides a
// userspace datapath, and would forward them around the bridge and policy.
func TestHostSideForwardsNothing(t *testing.T) {
	l := newLab(t)
	set(t, l, state(t, threeNodes, noEgressFromA))
	id := model.PodID{Namespace: "x", Name: "a"}
	pod := l.Pod(id)
	var host net.HardwareAddr
	err := pod.Node().Namespace().Do(func() error {
		link, err := net.InterfaceByName(cni.HostInterface(id))
		if err == nil {
			host = link.HardwareAddr
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	err = pod.Namespace().Do(func() error {
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
	if !probe(t, l, "x/a", "node:node1", model.TCP, 80) {
		t.Error("x/a does not reach its own node")
	}
}
