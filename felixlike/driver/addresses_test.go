package driver

import (
	"context"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/felixlike/driver/drivertest"
	"github.com/felixlike/felixlike/managers"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/eventually"
)

// Nothing is programmed before this node's own addresses are known, and a change of
// them is programmed like any other.
func TestHostAddressesAreWaitedFor(t *testing.T) {
	s := &drivertest.Stages{Fail: map[string]error{}}
	changes := make(chan model.HostAddressesUpdate)
	seen := &addressesSeen{}
	v := &View{}
	addresses := Source(v, "the addresses of this node are not known", func(ctx context.Context, update func(model.HostAddressesUpdate)) error {
		for {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case u := <-changes:
				update(u)
			}
		}
	})
	f := startWith(t, Config{Stages: []backend.Stage{s.Stage("nftables", true)}, Managers: []managers.Manager{seen}, View: v, Modules: []Module{addresses}})
	f.recorded = s
	f.AttachmentsSynced()
	f.Source.Send(true, drivertest.Node("node1", "10.10.0.0/24"))
	eventually.True(t, "not ready for want of addresses", func() bool {
		return slices.Contains(f.Ready(t.Context()).Missing, "the addresses of this node are not known")
	})
	if n := len(s.Log()); n != 0 {
		t.Errorf("%d applies before the addresses are known", n)
	}
	for _, a := range []string{"192.168.50.11", "192.168.50.12"} {
		changes <- model.HostAddressesUpdate{Addresses: []netip.Addr{netip.MustParseAddr(a)}}
		eventually.True(t, "the address "+a, func() bool { return seen.last.Load() == a })
	}
	if err := programmed(t, f); err != nil {
		t.Fatal(err)
	}
}

// addressesSeen is a manager that notes this node's own address.
type addressesSeen struct{ last atomic.Value }

func (a *addressesSeen) OnUpdate(u model.Update) {
	if u, ok := u.(model.HostAddressesUpdate); ok {
		a.last.Store(u.Addresses[0].String())
	}
}

func (a *addressesSeen) CompleteDeferredWork() {}

// A backend gets the prefixes of Services, and so does the new backend of a handover.
func TestServicePrefixesReachTheBackends(t *testing.T) {
	f, old, next, _ := handoverOf(t)
	f.Source.Send(true, datastore.ServiceCIDRsSet{Prefixes: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/12")}})
	if err := programmed(t, f); err != nil {
		t.Fatal(err)
	}
	if err := f.SetBackend(t.Context(), "new"); err != nil {
		t.Fatal(err)
	}
	for _, b := range []*fakeBackend{old, next} {
		b.mu.Lock()
		if !slices.Contains(b.held, "services [10.96.0.0/12]") {
			t.Errorf("backend %s has %v", b.name, b.held)
		}
		b.mu.Unlock()
	}
}
