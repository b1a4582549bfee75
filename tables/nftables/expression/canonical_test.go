package expression

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/tables"
)

// TestCanonicalForm: the form differs exactly where rules differ.
func TestCanonicalForm(t *testing.T) {
	write := func(f func(m *Message)) []byte {
		var m Message
		f(&m)
		return m.B
	}
	same := func(name string, want bool, a, b func(m *Message)) {
		t.Helper()
		if got := bytes.Equal(Canonical(nil, write(a)), Canonical(nil, write(b))); got != want {
			t.Errorf("%s: the forms are equal: %v", name, got)
		}
	}
	bitwise := func(order []int, operation bool, nested uint16) func(m *Message) {
		return func(m *Message) {
			element, data := m.expression("bitwise")
			parts := []func(){
				func() { m.Uint32(unix.NFTA_BITWISE_SREG, 1) },
				func() { m.Uint32(unix.NFTA_BITWISE_LEN, 4) },
				func() {
					at := len(m.B)
					m.Header(unix.NFTA_BITWISE_MASK|nested, 0)
					m.Data(unix.NFTA_DATA_VALUE, []byte{0, 0, 0, 0})
					m.Close(at)
				},
				func() {
					if operation {
						m.Uint32(6, 0)
					}
				},
			}
			for _, i := range order {
				parts[i]()
			}
			m.endExpression(element, data)
		}
	}
	plain := bitwise([]int{0, 1, 2, 3}, false, unix.NLA_F_NESTED)
	same("order", true, plain, bitwise([]int{2, 0, 3, 1}, false, unix.NLA_F_NESTED))
	same("defaults", true, plain, bitwise([]int{0, 1, 2, 3}, true, unix.NLA_F_NESTED))
	same("nested flag", true, plain, bitwise([]int{0, 1, 2, 3}, false, 0))
	same("less data", false, plain, bitwise([]int{0, 1}, false, 0))
	lookup := func(verdict bool) func(m *Message) { return func(m *Message) { m.lookup("s", verdict) } }
	same("destination of a lookup", false, lookup(true), lookup(false))
	compare := func(v ...byte) func(m *Message) { return func(m *Message) { m.compare(unix.NFT_CMP_EQ, v...) } }
	same("zeros of another length", false, compare(0), compare(0, 0))
	same("two for one", false, compare(0), func(m *Message) { m.compare(unix.NFT_CMP_EQ, 0); m.compare(unix.NFT_CMP_EQ, 0) })
	same("counters", true, (*Message).counter, func(m *Message) {
		element, data := m.expression("counter")
		m.Uint64(unix.NFTA_COUNTER_PACKETS, 7)
		m.endExpression(element, data)
	})
	verdict := func(a tables.Action) func(m *Message) { return func(m *Message) { _ = m.verdict(a) } }
	actions := []tables.Action{tables.Accept{}, tables.Drop{}, tables.Return{}, tables.Jump{Chain: "a"}, tables.Goto{Chain: "a"}, tables.Goto{Chain: "b"}}
	for i, a := range actions {
		for _, b := range slices.Clone(actions)[i+1:] {
			same(fmt.Sprint(a, b), false, verdict(a), verdict(b))
		}
	}
}
