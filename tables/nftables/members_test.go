package nftables

import (
	"net/netip"
	"reflect"
	"testing"

	"github.com/felixlike/felixlike/model"
)

// TestNoEmptiedMapOfMembers: after a commit, the map of observed members is another one than that of the load. An emptied map
// keeps its size, so each later change would look through as much as the load.
func TestNoEmptiedMapOfMembers(t *testing.T) {
	ms := newMembers()
	ms.set(model.AddressMember(netip.MustParseAddr("10.0.0.1")), nil)
	loaded := ms.observed
	if n := ms.commit(); n != 1 || len(ms.observed) > 0 {
		t.Fatalf("%d members, of which %d are pending", n, len(ms.observed))
	}
	if reflect.ValueOf(ms.observed).Pointer() == reflect.ValueOf(loaded).Pointer() {
		t.Error("the map that held the load is kept, emptied")
	}
}
