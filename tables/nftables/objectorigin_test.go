package nftables

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/ipsets"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
)

// TestRefusalHasOrigins: a refusal has the origins of its object and of the closed chains,
// also if an origin has changed alone.
func TestRefusalHasOrigins(t *testing.T) {
	policy := tables.OfPolicy{ID: model.PolicyID{Namespace: "x", Name: "base"}, Direction: model.Ingress}
	list := tables.OfList{Identity: "ingress base"}
	entry := tables.OfAddresses{Prefix: netip.MustParsePrefix("10.0.0.1/32")}
	for _, c := range []struct {
		name     string
		refuses  func(ObjectError) error
		origin   tables.Origin
		closedOf []tables.Origin
	}{
		{"chain", content("chain", "pin-x/base-1"), policy, []tables.Origin{policy, list}},
		{"set", content("set", "aweb-4"), tables.OfGroup{ID: "aweb"}, []tables.Origin{policy, list}},
		{"entry", func(o ObjectError) error {
			if o.Name == "to-pods-4" && (o.Rule == "entry 10.0.0.1 : goto pods-in-x/base-1" || strings.Contains(o.Rule, "members")) {
				return errInjected
			}
			return nil
		}, entry, nil},
		{"map", func(o ObjectError) error {
			if o.Name == "to-pods-4" {
				return errInjected
			}
			return nil
		}, tables.OfEveryPod{}, []tables.Origin{nil}}, // the example's to-pods has none
	} {
		t.Run(c.name, func(t *testing.T) {
			ns := newNamespace(t)
			f := ns.openFaulty(t)
			loadExample(f.Table)
			f.CreateSet(ipsets.Set{Name: "aweb-4", Kind: model.Addresses, Family: model.IPv4, Group: "aweb"})
			for name, o := range map[string]tables.Origin{"pin-x/base-1": policy, "pods-in-x/base-1": list} {
				again := *f.chains[name].desired
				again.Origin = o
				f.UpdateChain(again)
			}
			f.refuses = c.refuses
			got := apply(t, f.Table).Refused
			if len(got) != 1 || got[0].Origin != c.origin || !slices.Equal(got[0].ClosedOf, c.closedOf) {
				t.Errorf("%+v", got)
			}
		})
	}
}
