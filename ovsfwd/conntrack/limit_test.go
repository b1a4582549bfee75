package conntrack

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// mostEntries bounds the table that a test fills: 100 MB of the kernel's memory.
const mostEntries = 300_000

// assured returns TCP connections that the kernel does not drop to make room for others (nf_conntrack: early_drop).
func assured(from, n int) []Put {
	puts := make([]Put, n)
	for i := range puts {
		at := from + i
		t := Tuple{
			Protocol: unix.IPPROTO_TCP, Src: netip.AddrFrom4([4]byte{10, 9, byte(at >> 24), byte(at >> 16)}),
			Dst: netip.MustParseAddr("10.8.0.1"), SrcPort: uint16(at), DstPort: 80,
		}
		k := Connection{Original: t, Reply: t.Reverse(), Replied: true, State: StateEstablished, Timeout: time.Hour, Mark: mark}
		puts[i] = Put{Connection: k, New: true, MarkMask: mark}
	}
	return puts
}

// TestFullTable fills the table of a namespace. New entries are refused with ErrFull, and others can be changed.
func TestFullTable(t *testing.T) {
	k := open(t)
	_, limit, err := Entries()
	if err != nil {
		t.Fatal(err)
	}
	if testing.Short() || limit > mostEntries {
		t.Skipf("the table takes %d entries", limit)
	}
	began := time.Now()
	if written, err := k.Write(assured(0, int(limit))); err != nil || written != int(limit) {
		t.Fatalf("wrote %d, %v", written, err)
	}
	t.Logf("%d entries in %s", limit, time.Since(began))
	if entries, _, err := Entries(); err != nil || entries != limit {
		t.Fatalf("%d entries, %v", entries, err)
	}
	more := assured(int(limit), 300)
	if written, err := k.Write(more); !errors.Is(err, ErrFull) || written != 0 {
		t.Errorf("wrote %d, %v", written, err)
	}
	old := assured(0, 10)
	for i := range old {
		old[i].New = false
	}
	if written, err := k.Write(old); err != nil || written != len(old) {
		t.Errorf("changed %d, %v", written, err)
	}
}
