package driver

import (
	"context"
	"net/netip"
	"testing"

	"github.com/felixlike/felixlike/felixlike/driver/drivertest"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/eventually"
)

// TestRemovedPortKeepsAddresses: a pod whose port another program removed keeps its addresses, until it is detached or another pod
// has them.
func TestRemovedPortKeepsAddresses(t *testing.T) {
	id := model.PodID{Namespace: "x", Name: "old"}
	for name, then := range map[string]func(f *fixture){
		"detached": func(f *fixture) { f.Detach("old", false) },
		"reused":   func(f *fixture) { f.Attach("new", "10.10.0.7") },
	} {
		t.Run(name, func(t *testing.T) {
			f := start(t)
			f.begin(t, drivertest.PodOn("old", "node1"))
			f.Attach("old", "10.10.0.7")
			addresses := func() (all []netip.Addr) {
				err := f.queue.ask(context.Background(), func() { all = f.cluster.Engine().PodAddresses()[id] })
				if err != nil {
					t.Error(err)
				}
				return all
			}
			eventually.True(t, "attached", func() bool { return len(addresses()) == 1 })
			f.Detach("old", true)
			gone := func() bool { return len(f.Status().Endpoints) == 1 && f.Status().Endpoints[0].Interface == "" }
			eventually.True(t, "the port is gone", gone)
			if got := addresses(); len(got) != 1 {
				t.Errorf("without its port the pod has %v", got)
			}
			then(f)
			eventually.True(t, "no address", func() bool { return len(addresses()) == 0 })
		})
	}
}
