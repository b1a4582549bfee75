package nfnetlink

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

func example() *Messages {
	var m Messages
	for i := range uint32(3) {
		m.Begin(unix.NFNL_SUBSYS_IPSET, 9, unix.NLM_F_ACK, unix.AF_INET)
		m.Text(2, "name")
		nest := m.Nest(7)
		m.Uint8(1, 7)
		m.Uint16(2, 0x1234)
		m.Uint32(3, i)
		m.Data(4, []byte{1, 2, 3, 4, 5})
		m.Close(nest)
		m.End()
	}
	m.number(40)
	return &m
}

func TestMessagesParseBack(t *testing.T) {
	m := example()
	n := 0
	for r, err := range replies(m.B) {
		if err != nil {
			t.Fatal(err)
		}
		if r.sequence != uint32(40+n) || r.kind != unix.NFNL_SUBSYS_IPSET<<8|9 || r.flags != unix.NLM_F_REQUEST|unix.NLM_F_ACK {
			t.Errorf("message %d: %+v", n, r)
		}
		got := map[uint16][]byte{}
		for kind, value := range Attributes(r.payload[genHeader:]) {
			got[kind] = value
			if kind == 7 {
				for kind, value := range Attributes(value) {
					got[70+kind] = value
				}
				delete(got, 7)
			}
		}
		want := map[uint16][]byte{2: []byte("name\x00"), 71: {7}, 72: {0x12, 0x34}, 73: {0, 0, 0, byte(n)}, 74: {1, 2, 3, 4, 5}}
		if d := cmp.Diff(want, got); d != "" {
			t.Error(d)
		}
		n++
	}
	if n != m.Count() {
		t.Errorf("%d messages, want %d", n, m.Count())
	}
}

// The parser takes any input without a panic.
func FuzzReplies(f *testing.F) {
	f.Add(example().B)
	f.Add([]byte{20, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255})
	f.Fuzz(func(t *testing.T, b []byte) {
		for r := range replies(b) {
			_, request := r.outcome()
			for _, part := range [][]byte{r.payload, request} {
				for _, value := range Attributes(part) {
					for range Attributes(value) {
					}
				}
			}
		}
	})
}
