package hostnet

import (
	"fmt"
	"net"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/internal/sysctl"
	"github.com/felixlike/felixlike/test/eventually"
)

// TestAdvertisedRoutesStay: the agent turns forwarding on, and the node keeps the default route that a router
// advertised, and takes later advertisements. An interface that takes none stays so.
func TestAdvertisedRoutesStay(t *testing.T) {
	inNamespace(t)
	for key, value := range map[string]string{
		forward6: "0", AcceptRouterAdvertisements("uplink0"): "1", AcceptRouterAdvertisements("uplink0-p"): "0",
	} {
		if err := sysctl.Write(key, value); err != nil {
			t.Fatal(err)
		}
	}
	advertise(t, "uplink0-p", "uplink0")
	apply(t, NewReconciler(), testState())
	for name, want := range map[string]string{"uplink0": "2", "uplink0-p": "0", "flx-gw0": "0"} {
		if got, err := sysctl.Read(AcceptRouterAdvertisements(name)); err != nil || got != want {
			t.Errorf("accept_ra of %s is %q, %v; want %s", name, got, err, want)
		}
	}
	if got, err := sysctl.Read(forward6); err != nil || got != "1" {
		t.Fatalf("forwarding is %q, %v", got, err)
	}
	if len(advertised(t, "uplink0")) == 0 {
		t.Error("the advertised default route is gone")
	}
	for _, r := range advertised(t, "uplink0") {
		if err := netlink.RouteDel(&r); err != nil {
			t.Fatal(err)
		}
	}
	advertise(t, "uplink0-p", "uplink0")
}

// advertise sends router advertisements by one interface until another one has a default route from them.
func advertise(t *testing.T, by, at string) {
	t.Helper()
	c, err := net.ListenPacket("ip6:ipv6-icmp", "::")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	p := ipv6.NewPacketConn(c)
	if err := p.SetMulticastHopLimit(255); err != nil {
		t.Fatal(err)
	}
	// RFC 4861, 4.2: hop limit 64, no flags, lifetime 1,800 s, no other times.
	m := icmp.Message{Type: ipv6.ICMPTypeRouterAdvertisement, Body: &icmp.RawBody{Data: []byte{64, 0, 0x07, 0x08, 0, 0, 0, 0, 0, 0, 0, 0}}}
	data, err := m.Marshal(nil)
	if err != nil {
		t.Fatal(err)
	}
	eventually.True(t, fmt.Sprintf("%s takes a router advertisement of %s", at, by), func() bool {
		if len(advertised(t, at)) > 0 {
			return true
		}
		// Fails until duplicate address detection of the link-local addresses has ended.
		_, _ = p.WriteTo(data, nil, &net.IPAddr{IP: net.IPv6linklocalallnodes, Zone: by})
		return false
	})
}

// advertised returns an interface's default routes from router advertisements.
func advertised(t *testing.T, name string) []netlink.Route {
	t.Helper()
	link, err := netlink.LinkByName(name)
	if err != nil {
		t.Fatal(err)
	}
	all, err := netlink.RouteList(link, netlink.FAMILY_V6)
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(all, func(r netlink.Route) bool { return r.Protocol != unix.RTPROT_RA })
}
