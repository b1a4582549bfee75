package openflow_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/felixlike/felixlike/ovsfwd/openflow"
	"github.com/felixlike/felixlike/test/ovstest"
)

// frame is an ICMP echo request from one address to another.
func frame(from, to netip.Addr) []byte {
	ip := []byte{0x45, 0, 0, 28, 0, 0, 0, 0, 64, 1, 0, 0}
	ip = append(append(ip, from.AsSlice()...), to.AsSlice()...)
	sum := uint32(0)
	for i := 0; i < len(ip); i += 2 {
		sum += uint32(ip[i])<<8 | uint32(ip[i+1])
	}
	sum = ^(sum&0xffff + sum>>16)
	ip[10], ip[11] = byte(sum>>8), byte(sum)
	return slices.Concat(mac(1), mac(2), []byte{8, 0}, ip, []byte{8, 0, 0xf7, 0xff, 0, 0, 0, 0})
}

func TestPacketsGoThroughTablesAndAreCounted(t *testing.T) {
	b := ovstest.NewBridge(t)
	conn := dial(t, b)
	table := openflow.NewFlowTable(owner, 1)
	table.Connect(conn)
	src, other := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	var flows []openflow.Flow
	for i, in := range []openflow.Match{openflow.IPv4().Addr(openflow.IPv4Src, src).InPort(2), openflow.IPv4().Addr(openflow.IPv4Src, other)} {
		flows = append(flows, openflow.Flow{Table: 10, Priority: 200, Match: in, Actions: []openflow.Action{
			openflow.SetRegister(openflow.Reg5, uint32(i+7)), openflow.GotoTable(61),
		}})
		counting := openflow.IPv4().Bits(openflow.Reg5, uint32(i+7), 0xffffffff).CTLabel(openflow.Label{}, openflow.Label{Lo: 1})
		flows = append(flows, openflow.Flow{Table: 61, Priority: 200, Match: counting})
	}
	table.SetFlows("count", fixed(flows))
	apply(t, b, table, openflow.Result{Messages: 4, Added: 4})
	b.Ofctl("add-flow", "cookie=5,table=61,priority=1,ip,actions=drop")

	through := []openflow.Action{openflow.Resubmit(10)}
	var packets []openflow.PacketOut
	for range 3 {
		packets = append(packets, openflow.PacketOut{InPort: 2, Actions: through, Data: frame(src, other)})
	}
	packets = append(packets, openflow.PacketOut{InPort: openflow.FromNowhere, Actions: through, Data: frame(other, src)})
	if err := conn.PacketOut(b.Context(), packets); err != nil {
		t.Fatal(err)
	}
	want := []string{"reg5=7 packets=3 bytes=126", "reg5=8 packets=1 bytes=42"}
	ovstest.Poll(t, func() error {
		stats, err := conn.FlowStats(b.Context(), owner, 61)
		if err != nil {
			return err
		}
		var got []string
		for _, s := range stats {
			id, found := s.Value(openflow.Reg5)
			if _, matched := s.Value(openflow.Reg6); matched || !found || s.Table != 61 || s.Priority != 200 {
				t.Fatalf("read %+v", s)
			}
			got = append(got, fmt.Sprintf("reg5=%d packets=%d bytes=%d", id, s.Packets, s.Bytes))
		}
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			return fmt.Errorf("counters: %s", diff)
		}
		return nil
	})
}

func TestRefusedPacketsAreNamed(t *testing.T) {
	b := ovstest.NewBridge(t)
	conn := dial(t, b)
	data := frame(netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2"))
	good := openflow.PacketOut{InPort: 2, Actions: []openflow.Action{openflow.Resubmit(10)}, Data: data}
	bad := good
	bad.Actions = []openflow.Action{openflow.SetAddr(openflow.NDTarget, netip.MustParseAddr("fd00::1"))}
	err := conn.PacketOut(b.Context(), []openflow.PacketOut{good, bad, good})
	if err == nil || !strings.Contains(err.Error(), "packet out 1: bad action: match inconsistent") {
		t.Errorf("got %v", err)
	}
	bad.Actions = to(10)
	if err := conn.PacketOut(b.Context(), []openflow.PacketOut{bad}); err == nil || !strings.Contains(err.Error(), "packet out 0: goto_table:10") {
		t.Errorf("got %v", err)
	}
	if err := conn.PacketOut(b.Context(), []openflow.PacketOut{good}); err != nil {
		t.Error(err)
	}
}
