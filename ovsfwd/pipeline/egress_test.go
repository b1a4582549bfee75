package pipeline

import (
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/felixlike/felixlike/model"
)

// TestEgressFlows: the flows are those of the file's head. No packet of theirs passes the tables that begin or allow connections.
func TestEgressFlows(t *testing.T) {
	mac := net.HardwareAddr{2, 0, 0, 0, 0, 1}
	n := Node{GatewayPort: 2, TunnelPort: 1, GatewayMAC: mac, Mode: Full}
	peer := &model.Node{
		Name: "n2", Addresses: []netip.Addr{netip.MustParseAddr("192.168.50.12")},
		PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.10.1.0/24"), netip.MustParsePrefix("fd00:10::100/120")},
	}
	address := func(all ...string) (out []netip.Addr) {
		for _, a := range all {
			out = append(out, netip.MustParseAddr(a))
		}
		return out
	}
	var got []string
	for _, f := range append(EgressBase(n, []*model.Node{peer, peer}), EgressPeer(n, peer, address("10.10.0.5", "fd00:10::5"), address("10.10.1.7"))...) {
		got = append(got, f.String())
	}
	want := []string{
		"table=10,priority=205,dl_dst=aa:bb:cc:dd:ee:fe actions=drop",
		"table=10,priority=195,ip,in_port=1,nw_src=10.10.1.0/24 actions=drop",
		"table=10,priority=195,ipv6,in_port=1,ipv6_src=fd00:10::100/120 actions=drop",
		"table=10,priority=195,ip,in_port=1,nw_src=192.168.50.12 actions=drop",
		"table=10,priority=206,ip,in_port=2,dl_dst=aa:bb:cc:dd:ee:fe,nw_src=10.10.0.5 actions=set_field:02:00:00:00:00:01->eth_src,set_field:aa:bb:cc:dd:ee:ff->eth_dst,set_field:192.168.50.12->tun_dst,output:1",
		"table=10,priority=190,ip,tun_src=192.168.50.12,in_port=1,nw_dst=10.10.0.5 actions=set_field:02:00:00:00:00:01->eth_dst,output:2",
		"table=10,priority=206,ipv6,in_port=2,dl_dst=aa:bb:cc:dd:ee:fe,ipv6_src=fd00:10::5 actions=set_field:02:00:00:00:00:01->eth_src,set_field:aa:bb:cc:dd:ee:ff->eth_dst,set_field:192.168.50.12->tun_dst,output:1",
		"table=10,priority=190,ipv6,tun_src=192.168.50.12,in_port=1,ipv6_dst=fd00:10::5 actions=set_field:02:00:00:00:00:01->eth_dst,output:2",
		"table=70,priority=152,ip,reg0=0x80000/0x80000,nw_src=10.10.1.7 actions=set_field:02:00:00:00:00:01->eth_dst,goto_table:80",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%q\nwant\n%q", got, want)
	}
	n.Mode = Steer
	if steered := EgressPeer(n, peer, nil, address("10.10.1.7")); len(steered) != 0 {
		t.Errorf("the steering pipeline sends all packets to the host, and has %v", steered)
	}
	peer.Addresses = nil
	if all := EgressPeer(n, peer, address("10.10.0.5"), nil); len(all) != 0 {
		t.Errorf("a peer without a tunnel: %v", all)
	}
}
