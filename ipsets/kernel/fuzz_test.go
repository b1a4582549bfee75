package kernel

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/felixlike/felixlike/internal/nfnetlink"
	"github.com/felixlike/felixlike/model"
)

func kinds() []model.GroupKind {
	return []model.GroupKind{model.Addresses, model.Networks, model.AddressPorts}
}

// The parser of set listings never panics, for any input.
func FuzzListing(f *testing.F) {
	f.Add([]byte{12, 0, 2, 0, 'f', 'l', 'x', '-', 'a', 0, 0, 0, 12, 0, 3, 0, 'h', 'a', 's', 'h', ':', 'i', 'p', 0, 5, 0, 5, 0, 2, 0, 0, 0})
	f.Add([]byte{12, 0, 1, 0x80, 8, 0, 1, 0x40, 10, 0, 0, 1, 5, 0, 3, 0, 24, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		l := parseListing(b)
		if l.head != nil && (l.head.kind == 0) != (l.head.family == 0) {
			t.Errorf("head %+v", l.head)
		}
		for _, data := range nfnetlink.Attributes(l.elements) {
			for _, kind := range kinds() {
				_, _ = parseElement(kind, data)
			}
		}
		for _, kind := range kinds() {
			if e, ok := parseElement(kind, b); ok && !e.Prefix.IsValid() {
				t.Errorf("element %v", e)
			}
		}
		elements := make([]element, 3)
		_ = refusedElement(b, elements)
	})
}

// Written elements parse back.
func TestElementsParseBack(t *testing.T) {
	for _, c := range []struct {
		kind model.GroupKind
		list []model.Member
	}{
		{model.Addresses, members("10.0.0.1", "fd00::1")},
		{model.Networks, members("10.0.0.0/8", "192.0.2.1/32", "fd00::/8", "fd00::1/128", "128.0.0.0/1")},
		{model.AddressPorts, []model.Member{triple("10.0.0.1", model.TCP, 80), triple("fd00::1", model.SCTP, 65535)}},
	} {
		var m nfnetlink.Messages
		writeElements(&m, cmdAdd, "flx-a", c.kind, c.list)
		if m.Len() > messageSize+elementSize*len(c.list) {
			t.Errorf("a message of %d elements has %d bytes", len(c.list), m.Len())
		}
		var got []model.Member
		for _, data := range nfnetlink.Attributes(parseListing(m.Attributes()).elements) {
			e, ok := parseElement(c.kind, data)
			if !ok {
				t.Errorf("%s: an element does not parse", c.kind)
			}
			got = append(got, e)
		}
		if d := cmp.Diff(c.list, got, cmp.Comparer(func(a, b model.Member) bool { return a == b })); d != "" {
			t.Errorf("%s (-want +got):\n%s", c.kind, d)
		}
	}
}
