package node

import (
	"context"
	"fmt"
	"testing"

	"github.com/felixlike/felixlike/ovsfwd/openflow"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
	"github.com/felixlike/felixlike/ovsfwd/policyflows"
	"github.com/felixlike/felixlike/test/ovstest"
)

// TestDroppedPacketsNeverFall drops packets by the meters of two pods. Then one pod goes,
// another one gets its port, and the switch loses all meters.
func TestDroppedPacketsNeverFall(t *testing.T) {
	b := ovstest.NewBridge(t)
	conn, err := openflow.Dial(b.Context(), b.Management())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ofctl := func(argv ...string) {
		b.Run("ovs-ofctl", append([]string{"-O", "OpenFlow15", argv[0], "unix:" + b.Management()}, argv[1:]...)...)
	}
	// drop sends packets through a meter of one packet a second.
	drop := func(id uint32) {
		ofctl("del-flows")
		ofctl("add-flow", fmt.Sprintf("table=0,actions=meter:%d,goto_table:1", id))
		for range 20 {
			ofctl("packet-out", "in_port=LOCAL,packet=ffffffffffff0200000000010800"+
				"45000014000000004011000001020304050607080000000000000000,actions=resubmit(,0)")
		}
	}
	strangers := uint64(5)
	d := NewDroppedPackets(func(context.Context) (uint64, error) { return strangers, nil })
	read := func() uint64 {
		t.Helper()
		sums, err := d.Read(context.Background(), b.Management())
		if err != nil {
			t.Fatal(err)
		}
		if _, found := sums[droppedTunnelEnd]; !found {
			t.Error("no sum of packets to tunnel ends")
		}
		if sums[droppedStranger] != strangers {
			t.Errorf("%d packets of strangers, and the host has dropped %d", sums[droppedStranger], strangers)
		}
		return sums[droppedRate]
	}
	meters := []uint32{policyflows.RateMeter(3), policyflows.RateMeter(4)}
	if err := conn.AddMeters(b.Context(), meters, 1); err != nil {
		t.Fatal(err)
	}
	drop(meters[0])
	first := read()
	drop(meters[1])
	both := read()
	if first == 0 || both <= first {
		t.Fatalf("%d packets, then %d: the meters drop nothing", first, both)
	}
	if err := conn.DeleteMeters(b.Context(), meters[:1]); err != nil {
		t.Fatal(err)
	}
	if got := read(); got != both {
		t.Errorf("%d packets after a pod has gone, want %d", got, both)
	}
	if err := conn.AddMeters(b.Context(), meters[:1], 1); err != nil {
		t.Fatal(err)
	}
	if got := read(); got != both {
		t.Errorf("%d packets when another pod gets the port, want %d", got, both)
	}
	drop(meters[0])
	more := read()
	if more <= both {
		t.Errorf("%d packets, want more than %d", more, both)
	}
	ofctl("del-meters")
	if got := read(); got != more {
		t.Errorf("%d packets without meters, want %d", got, more)
	}
}

// TestLowerCounterBeganAgain: the switch restarts, or a pod goes and another one gets its
// port, between two reads.
func TestLowerCounterBeganAgain(t *testing.T) {
	meter := dropCounter{droppedRate, uint64(policyflows.RateMeter(3))}
	node := dropCounter{droppedTunnelEnd, uint64(pipeline.Owner) << 48}
	d := NewDroppedPackets(nil)
	d.add(map[dropCounter]uint64{meter: 100, node: 7})
	sums := d.add(map[dropCounter]uint64{meter: 40})
	if sums[droppedRate] != 140 || sums[droppedTunnelEnd] != 7 {
		t.Errorf("sums %v, want 140 and 7", sums)
	}
}
