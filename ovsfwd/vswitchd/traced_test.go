package vswitchd

import (
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/felixlike/felixlike/model"
)

func TestTracedPacketText(t *testing.T) {
	mac := func(last byte) net.HardwareAddr { return net.HardwareAddr{2, 0, 0, 0, 0, last} }
	for want, p := range map[string]TracedPacket{
		"tcp,in_port=3,dl_src=02:00:00:00:00:01,dl_dst=02:00:00:00:00:02,nw_src=10.0.0.1,nw_dst=10.0.0.2,nw_ttl=64,tcp_src=40000,tcp_dst=80": {
			Source: netip.MustParseAddr("10.0.0.1"), Destination: netip.MustParseAddr("10.0.0.2"), Protocol: model.TCP, SourcePort: 40000, Port: 80,
		},
		"tcp,in_port=3,dl_src=02:00:00:00:00:01,dl_dst=02:00:00:00:00:02,tun_ipv6_src=fd00::1,nw_src=10.0.0.1,nw_dst=10.0.0.2,nw_ttl=64,tcp_src=1,tcp_dst=80": {
			Source: netip.MustParseAddr("10.0.0.1"), Destination: netip.MustParseAddr("10.0.0.2"), TunnelSource: netip.MustParseAddr("fd00::1"),
			Protocol: model.TCP, SourcePort: 1, Port: 80,
		},
		"udp6,in_port=3,dl_src=02:00:00:00:00:01,dl_dst=02:00:00:00:00:02,tun_src=192.0.2.1,ipv6_src=fd00::1,ipv6_dst=fd00::2,nw_ttl=64,udp_src=1,udp_dst=53": {
			Source: netip.MustParseAddr("fd00::1"), Destination: netip.MustParseAddr("fd00::2"), TunnelSource: netip.MustParseAddr("192.0.2.1"),
			Protocol: model.UDP, SourcePort: 1, Port: 53,
		},
		"icmp6,in_port=3,dl_src=02:00:00:00:00:01,dl_dst=02:00:00:00:00:02,ipv6_src=fd00::1,ipv6_dst=fd00::2,nw_ttl=64,icmpv6_type=128,icmpv6_code=0": {
			Source: netip.MustParseAddr("fd00::1"), Destination: netip.MustParseAddr("fd00::2"), Protocol: model.ICMPv6, Port: model.ICMPMessage(128, 0),
		},
	} {
		p.InPort, p.SourceMAC, p.DestinationMAC = 3, mac(1), mac(2)
		if got := p.String(); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

func TestParseTraced(t *testing.T) {
	const head = `Flow: tcp,in_port=4

bridge("br-int")
----------------
 0. in_port=4, priority 190, cookie 0xf11c0225313c3837
    goto_table:80
`
	for _, test := range []struct {
		name, out, last string
		ports           []uint32
	}{
		{"dropped", head + "80. ip, priority 7\n    drop\n", "80. ip, priority 7", nil},
		{"no flow", head + "80. No match.\n    drop\n", "80. No match.", nil},
		{"to a port in a register", head + "110. ip,reg0=0x10000/0x10000, priority 200, cookie 0xf11c02\n    output:NXM_NX_REG1[]\n     -> output port is 3\n", "110. ip,reg0=0x10000/0x10000, priority 200, cookie 0xf11c02", []uint32{3}},
		{"to a port", head + "80. priority 7\n    output:12\n", "80. priority 7", []uint32{12}},
		{"to a port that is gone", head + "110. ip, priority 200\n    output:NXM_NX_REG1[]\n     -> output port is 3\n     >> Nonexistent output port\n", "110. ip, priority 200", nil},
		{"back", head + "110. ip, priority 200\n    output:NXM_NX_REG1[]\n     -> output port is 4\n     >> skipping output to input port\n", "110. ip, priority 200", nil},
	} {
		got := parseTraced(test.out)
		if got.Last != test.last || !slices.Equal(got.Ports, test.ports) {
			t.Errorf("%s: %+v", test.name, got)
		}
	}
}

func FuzzParseTraced(f *testing.F) {
	f.Add(" 0. in_port=4, priority 190\n    output:3\n     >> Nonexistent output port\n")
	f.Add("     -> output port is 99999999999999\n")
	f.Fuzz(func(t *testing.T, out string) {
		if got := parseTraced(out); got.Leaves(1) != slices.Contains(got.Ports, 1) {
			t.Errorf("%+v", got)
		}
	})
}
