package openflow

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"

	"github.com/felixlike/felixlike/model"
)

// fuzzed is a flow with fields and actions of each shape.
func fuzzed() Flow {
	return Flow{
		Table: 50, Priority: 200,
		Match: IPv4().Protocol(model.TCP).Addr(IPv4Src, netip.MustParseAddr("10.0.0.1")).Port(TCPDst, 80, 0xfff0).Bits(Reg0, 1, 1).CTLabel(Label{Hi: 1}, Label{Hi: 1}),
		Actions: []Action{
			SetBits(Reg0, 1, 1), CT(CTSpec{Commit: true, Zone: 7, Table: 61, Exec: []Action{SetCTMark(1)}}), GotoTable(61),
		},
	}
}

// entry encodes a flow as the switch does in replies and, without statistics, in
// updates.
func (f Flow) entry(t testing.TB, fixed []byte, stats ...byte) []byte {
	t.Helper()
	b, err := appendMatch(slices.Clone(fixed), f.Match)
	if err != nil {
		t.Fatal(err)
	}
	if b, err = appendInstructions(append(b, stats...), f.Actions); err != nil {
		t.Fatal(err)
	}
	binary.BigEndian.PutUint16(b, uint16(len(b)))
	return b
}

// The parser accepts or refuses every message of the switch, and never panics.
func FuzzParse(f *testing.F) {
	flow := fuzzed()
	reply := make([]byte, multipartHeader)
	reply = append(reply, flow.entry(f, make([]byte, flowDescFixed), 0, 0, 0, 16, 0x80, 2, packetCount<<1, 8, 0, 0, 0, 0, 0, 0, 0, 9)...)
	update := flow.entry(f, append([]byte{0, 0, 0, 1}, make([]byte, updateFixed-4)...))
	pair := []byte{0x80, 1, 3, 16, 0, 0, 0, 1, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0}
	for _, seed := range [][]byte{reply, update, append(update, 0, 8, 0, 6, 0, 0, 0, 0), pair, nil} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		_, _ = parseFlows(b, func(e flowEntry) error {
			_ = e.counter(packetCount)
			match, err := canonicalMatch(e.match)
			if err != nil {
				return err
			}
			FlowStats{match: match}.Value(Reg0)
			_, err = e.installed()
			return err
		})
		_, _, _ = parseUpdates(b)
		if match, err := canonicalMatch(b); err == nil {
			again, err := canonicalMatch(match)
			if err != nil || !slices.Equal(match, again) {
				t.Errorf("%x becomes %x, and then %x: %v", b, match, again, err)
			}
		}
	})
}

func TestParsedFlowIsTheOneThatWasWritten(t *testing.T) {
	d := digester{owner: 1, version: 1}
	flow := fuzzed()
	want := d.digest(flow)
	reply := flow.entry(t, make([]byte, flowDescFixed), 0, 0, 0, 16, 0x80, 2, packetCount<<1, 8, 0, 0, 0, 0, 0, 0, 0, 9)
	reply[4], reply[7] = flow.Table, byte(flow.Priority)
	binary.BigEndian.PutUint64(reply[16:], want.cookie)
	seen := 0
	more, err := parseFlows(append([]byte{0, 1, 0, replyMore, 0, 0, 0, 0}, reply...), func(e flowEntry) error {
		seen++
		got, err := e.installed()
		if got.id != want.id || got.tampered || e.counter(packetCount) != 9 || e.counter(byteCount) != 0 {
			t.Errorf("read %+v", got)
		}
		return err
	})
	if !more || err != nil || seen != 1 {
		t.Errorf("more %t, error %v, %d flows", more, err, seen)
	}
}

// Two agents give a flow the same cookie, which is in the switch. What an agent compares
// beyond that depends on its secret: no policy can be prepared to defeat it.
func TestComparedDigestsNeedTheSecret(t *testing.T) {
	match, instructions := []byte("match"), []byte("instructions")
	one, other := newSecret(), newSecret()
	id, sum := one.identify(10, 200, match)
	otherID, otherSum := other.identify(10, 200, match)
	cookie, rest := one.content(sum, instructions)
	otherCookie, otherRest := other.content(otherSum, instructions)
	if cookie != otherCookie {
		t.Errorf("cookies %x and %x", cookie, otherCookie)
	}
	if id == otherID || rest == otherRest {
		t.Errorf("identities %x and %x, rests %x and %x", id, otherID, rest, otherRest)
	}
	if again, _ := one.identify(10, 200, match); again != id {
		t.Errorf("identities %x and %x with one secret", id, again)
	}
}

// A match is written in the order of the constants, and one that is read back is sorted
// by position. Both have to be the same order.
func TestFieldsAreInTheOrderOfTheirPositions(t *testing.T) {
	for f := Field(1); f < lastField; f++ {
		if a, b := f.spec(), (f + 1).spec(); a.position() >= b.position() {
			t.Errorf("%s is before %s", a.oxm, b.oxm)
		}
	}
}
