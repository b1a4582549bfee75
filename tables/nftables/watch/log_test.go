package watch

import (
	"fmt"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/internal/nfnetlink"
)

// The half number of a generation is extended to the nearest whole number, also where
// the numbers wrap around.
func TestGenerationsWrap(t *testing.T) {
	for _, latest := range []uint32{1, 5, 0xffff, 0x10000, 0x7fffffff, 0x80000000, 0xfffffffe, 0xffffffff} {
		n := Log{generation: latest}
		for _, d := range []int32{-3000, -1, 0, 1, 2, 30000} {
			want := latest + uint32(d)
			if got := n.extend(uint16(want)); got != want {
				t.Errorf("generation %#x: %+d is taken for %#x", latest, d, got)
			}
			if after(want, latest) != (d > 0) {
				t.Errorf("generation %#x: %+d is after: %v", latest, d, after(want, latest))
			}
		}
	}
}

// Changes that no Apply takes do not fill the memory: above a bound they are only a loss.
func TestPendingChangesAreBounded(t *testing.T) {
	n := NewLog(unix.NFPROTO_INET, "felixlike")
	record := func(chain string) {
		var m nfnetlink.Buffer
		m.Begin(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_NEWCHAIN, 0, 1, unix.NFPROTO_INET, 1)
		m.Text(unix.NFTA_CHAIN_TABLE, "felixlike")
		m.Text(unix.NFTA_CHAIN_NAME, chain)
		m.End()
		n.Record(m.B, time.Now())
	}
	for i := range maxPending {
		record(fmt.Sprint("c", i))
	}
	if got := n.pending; got.Lost || len(got.Chains) != maxPending {
		t.Fatalf("lost %v, %d chains", got.Lost, len(got.Chains))
	}
	record("one more")
	got := n.Take()
	if !got.Lost || !got.NeedFullRead() || len(got.Chains) != 0 {
		t.Errorf("lost %v, %d chains", got.Lost, len(got.Chains))
	}
}
