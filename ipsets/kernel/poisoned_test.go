package kernel

import (
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	"github.com/felixlike/felixlike/ipsets"
	"github.com/felixlike/felixlike/model"
)

// A set of 200,000 prefixes that an earlier version left does not keep a new one
// from its work, whether the set is wanted or not.
func TestPoisonedNode(t *testing.T) {
	ns := newNamespace(t)
	huge := ipsets.Set{Name: "nhuge-4", Kind: model.Networks, Family: model.IPv4}
	all := make([]model.Member, 200_000)
	for i := range all {
		var a [4]byte
		binary.BigEndian.PutUint32(a[:], 11<<24+2*uint32(i))
		all[i] = model.AddressMember(netip.AddrFrom4(a))
	}
	for name, want := range map[string][]model.Member{"not wanted": nil, "wanted": members("11.0.0.0/8")} {
		t.Run(name, func(t *testing.T) {
			old := ns.open(t)
			loadExample(old)
			old.CreateSet(huge)
			old.AddMembers(huge.Name, all)
			apply(t, old)
			s := ns.open(t)
			loadExample(s)
			if want != nil {
				s.CreateSet(huge)
				s.AddMembers(huge.Name, want)
			}
			began := time.Now()
			apply(t, s)
			took := time.Since(began)
			t.Logf("recovered after %s", took)
			if took > time.Minute {
				t.Error("that is more than a minute")
			}
			s.Invalidate()
			wantSilent(t, s)
			s.RemoveSet(huge.Name)
			apply(t, s)
		})
	}
}
