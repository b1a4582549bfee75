package ovsdb

import (
	"net"
	"strings"
	"testing"
)

// TestPatches: the patches have fixed ports and a VLAN that NORMAL does not flood to, another client changes nothing, and without
// SNAT they are removed.
func TestPatches(t *testing.T) {
	f := newFixture(t)
	f.run("ip", "-n", f.ns, "link", "add", "up0", "type", "veth", "peer", "name", "up0p")
	f.cfg.Uplink, f.cfg.UplinkMAC, f.cfg.SNAT, f.cfg.Zones = "up0", net.HardwareAddr{2, 0, 0, 0, 0, 1}, true, []uint16{65520, 65521}
	c := f.open()
	f.ensure(c)
	for _, test := range []struct{ args, want string }{
		{"get interface flx-snat-up ofport", "65000"},
		{"get interface phy-snat-up ofport", "65000"},
		{"get interface flx-snat-host ofport", "65001"},
		{"get interface phy-snat-host ofport", "65001"},
		{"get port phy-snat-up tag", "4000"},
		{"get port phy-snat-host tag", "4000"},
		{"list-zone-tp netdev", "Zone:65520, Timeout Policies: udp_multiple=120\nZone:65521, Timeout Policies: udp_multiple=120"},
	} {
		if got := f.vsctl(strings.Fields(test.args)...); got != test.want {
			t.Errorf("%s: %s, want %s", test.args, got, test.want)
		}
	}
	if got := f.vsctl("get", "interface", "up0", "ofport"); c.UplinkPort() == 0 || got != "1" {
		t.Errorf("the uplink has port %s, known as %d", got, c.UplinkPort())
	}
	again := f.open()
	f.ensure(again)
	if again.Writes() != 0 || again.UplinkPort() != c.UplinkPort() {
		t.Errorf("a new client sent %d operations, and knows the uplink by port %d", again.Writes(), again.UplinkPort())
	}
	f.cfg.SNAT = false
	off := f.open()
	for _, writes := range []int{2, 2} {
		f.ensure(off)
		if off.Writes() != writes {
			t.Errorf("%d operations without SNAT, want %d", off.Writes(), writes)
		}
	}
	if ports := f.vsctl("list-ports", "br-int") + f.vsctl("list-ports", "br-phy"); strings.Contains(ports, "snat") || !strings.Contains(ports, "flx-gw0") || !strings.Contains(ports, "up0") {
		t.Errorf("ports %s", ports)
	}
}
