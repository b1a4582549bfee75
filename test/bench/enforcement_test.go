package bench

import (
	"encoding/binary"
	"slices"
	"testing"
	"time"
)

// row makes probes a millisecond apart: + one that arrived, - one that was denied, ? one
// without a known result.
func row(start time.Time, text string) []probe {
	var out []probe
	for i, c := range text {
		out = append(out, probe{sent: start.Add(time.Duration(i+1) * time.Millisecond), arrived: c == '+', followed: c != '?'})
	}
	return out
}

func TestChangeIsFoundInProbes(t *testing.T) {
	start := time.Now()
	for _, c := range []struct {
		change                  Change
		probes                  string
		first, last, resolution time.Duration
	}{
		{Denied, "++++----", 5, 5, 1},
		{Allowed, "--++++++", 3, 3, 1},
		{Denied, "+++-+-----", 4, 6, 1}, // they do not all change at once
		{Allowed, "-+--+++", 2, 5, 1},
		{Denied, "----", 1, 1, 0}, // the file is not even in its place
	} {
		got := c.change.in(row(start, c.probes), start)
		want := enforced{first: c.first * time.Millisecond, last: c.last * time.Millisecond, resolution: c.resolution * time.Millisecond}
		if got != want {
			t.Errorf("%s in %s: %+v, want %+v", c.change, c.probes, got, want)
		}
	}
}

func TestChangeHasSettledWhenAllProbesAgree(t *testing.T) {
	start := time.Now()
	tail := func(c rune, n int) (s string) {
		for range n {
			s += string(c)
		}
		return s
	}
	n := int(settledFor / time.Millisecond)
	for _, c := range []struct {
		change Change
		probes string
		want   bool
	}{
		{Denied, "++" + tail('-', n+1), true},
		{Denied, "++" + tail('-', n-2), false},
		{Denied, tail('-', n) + "+" + tail('-', 5), false},
		{Denied, "-" + tail('?', n) + "--", false}, // too little is known
		{Denied, "-" + tail('?', n/2) + tail('-', n/2+1), true},
		{Allowed, "-+" + tail('+', n+1), true},
		{Allowed, "", false},
	} {
		probes := slices.DeleteFunc(row(start, c.probes), func(p probe) bool { return !p.decided() })
		now := start.Add(time.Duration(len(c.probes)+1) * time.Millisecond)
		if got := c.change.settled(probes, now); got != c.want {
			t.Errorf("%s in %s: settled %v, want %v", c.change, c.probes, got, c.want)
		}
	}
}

func TestSingleMissingProbeWasLost(t *testing.T) {
	start := time.Now()
	p := &prober{probes: row(start, "+-+-?-+-")}
	got, err := p.seen(start, start.Add(time.Second))
	if err != nil {
		t.Fatal(err)
	}
	text := ""
	for _, x := range got {
		if x.arrived {
			text += "+"
		} else {
			text += "-"
		}
	}
	if want := "+++--+-"; text != want {
		t.Errorf("seen as %s, want %s", text, want)
	}
	p.forget(start.Add(3 * time.Millisecond))
	if p.offset != 2 || p.next() != 8 {
		t.Errorf("the first of %d probes is %d, the next is %d", len(p.probes), p.offset, p.next())
	}
	// A late packet counts; a forgotten probe and foreign packets do not.
	for _, packet := range [][]byte{ipPacket(probePacket(7, firstProbeTarget)), ipPacket(probePacket(4, firstFollowTarget)), ipPacket(probePacket(1, firstProbeTarget)), ipPacket([]byte("x"))} {
		p.note(packet)
	}
	if got, _ = p.seen(start, start.Add(time.Second)); len(got) != 6 || !got[5].arrived || got[2].arrived || !got[2].followed {
		t.Errorf("%+v", got)
	}
}

// ipPacket puts an IPv4 header before a packet, of which only the length counts.
func ipPacket(packet []byte) []byte { return append([]byte{0x45, 19: 0}, packet...) }

func TestEachProbeIsANewConnection(t *testing.T) {
	seen := map[uint32]bool{}
	for n := range uint64(probeSources * probeTargets) {
		seen[binary.BigEndian.Uint32(probePacket(n, firstProbeTarget))] = true
		seen[binary.BigEndian.Uint32(probePacket(n, firstFollowTarget))] = true
	}
	if len(seen) != 2*probeSources*probeTargets {
		t.Errorf("%d pairs of ports in %d probes", len(seen), probeSources*probeTargets)
	}
}
