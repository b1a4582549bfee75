package vswitchd_test

import (
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/ovsdb"
	"github.com/felixlike/felixlike/ovsfwd/vswitchd"
	"github.com/felixlike/felixlike/test/ovstest"
)

// TestTrace asks a real switch for the ways of packets, over lookups of connections, and to a port that is not there.
func TestTrace(t *testing.T) {
	b := ovstest.NewBridge(t)
	c := vswitchd.New(b.Daemons.Dir(), "netdev")
	b.Run("ip", "-n", b.NS, "link", "add", "v0", "type", "veth", "peer", "name", "v0p")
	port, err := b.DB.AttachPort(b.Context(), model.Attachment{
		Pod: model.PodID{Namespace: "x", Name: "a"}, Interface: "v0", MAC: []byte{2, 0, 0, 0, 0, 1},
	})
	if err != nil {
		t.Fatal(err)
	}
	const gone = 77
	b.Ofctl("add-flow", "table=0,priority=10,tcp actions=ct(table=5,zone=7)")
	b.Ofctl("add-flow", "table=0,priority=10,udp actions=set_field:77->reg1,output:NXM_NX_REG1[]")
	b.Ofctl("add-flow", "table=5,priority=10,ct_state=+new+trk,tcp,tcp_dst=80 actions=set_field:"+strconv.Itoa(int(port))+"->reg1,output:NXM_NX_REG1[]")
	b.Ofctl("add-flow", "table=5,priority=9,cookie=0x77,tcp,tcp_dst=81 actions=drop")
	for _, test := range []struct {
		protocol model.Protocol
		port     uint16
		want     []uint32
		last     string
	}{
		{model.TCP, 80, []uint32{port}, "5. ct_state=+new+trk,tcp,tp_dst=80, priority 10"},
		{model.TCP, 81, nil, "5. tcp,tp_dst=81, priority 9, cookie 0x77"},
		{model.TCP, 82, nil, "5. No match."},
		{model.UDP, gone, nil, "0. udp, priority 10"},
	} {
		got, err := c.Trace(b.Context(), b.Config.Bridge, vswitchd.TracedPacket{
			InPort: ovsdb.GatewayOFPort, SourceMAC: net.HardwareAddr{2, 0, 0, 0, 0, 2}, DestinationMAC: net.HardwareAddr{2, 0, 0, 0, 0, 1},
			Source: netip.MustParseAddr("10.0.0.2"), Destination: netip.MustParseAddr("10.0.0.1"), Protocol: test.protocol, SourcePort: 40000, Port: test.port,
		})
		if err != nil || !slices.Equal(got.Ports, test.want) || !strings.HasPrefix(got.Last, test.last) {
			t.Errorf("%s port %d: %+v, %v", test.protocol, test.port, got, err)
		}
	}
	if _, err := c.Trace(b.Context(), "no-such-bridge", vswitchd.TracedPacket{}); err == nil {
		t.Error("a packet in no bridge has a way")
	}
}
