package backend

import (
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/tablestest"
)

// manyServices returns n Services with 4 endpoints each.
func manyServices(n int) (all []model.Update) {
	for i := range n {
		p := port(fmt.Sprint("s", i), model.TCP)
		var e []model.ServiceEndpoint
		for k := range 4 {
			a := netip.AddrFrom4([4]byte{10, byte(128 + i>>14), byte(i >> 6), byte(i<<2 | k)})
			e = append(e, model.ServiceEndpoint{AddrPort: netip.AddrPortFrom(a, 8080)})
		}
		a := netip.AddrFrom4([4]byte{10, 96, byte(i >> 8), byte(i)})
		p.Frontends = []model.Frontend{{Kind: model.ClusterIP, Addr: a, Port: 80, Endpoints: e, Inside: e}}
		all = append(all, model.ServicePortUpdate{Port: p})
	}
	return all
}

// TestManyServices: a first load of several transactions is complete, and a restarted agent writes nothing.
func TestManyServices(t *testing.T) {
	ns := tablestest.NewNamespace(t, "nft")
	c, nodes := servicesNode(ns)
	all := append(nodes, manyServices(6000)...)
	if did := run(t, Services(c), all...); did.Elements < 30_000 {
		t.Errorf("the first load: %+v", did)
	}
	if did := run(t, Services(c), all...); did.Writes != 0 || !did.Full {
		t.Errorf("a restart: %+v", did)
	}
	if did := run(t, Services(c), append(nodes, manyServices(5999)...)...); did.Writes != 2 { // one for each set
		t.Errorf("a restart with one Service less: %+v", did)
	}
}

// cpu returns the processor time of this process, with that of the kernel for it, in milliseconds.
func cpu(b *testing.B) float64 {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e6
}

// BenchmarkServices measures the processor time (cpu-ms/op) and the messages of the first load, of a restart, and of changes of one endpoint and one
// Service, from the update to the answer of the kernel.
func BenchmarkServices(b *testing.B) {
	if os.Geteuid() != 0 {
		b.Skip("not root")
	}
	for _, n := range []int{1_000, 10_000, 30_000} {
		ns := tablestest.NewNamespace(b, "nft")
		c, nodes := servicesNode(ns)
		all := append(nodes, manyServices(n)...)
		one := manyServices(n + 1)[n].(model.ServicePortUpdate).Port
		few := *one
		few.Frontends = []model.Frontend{{Addr: one.Frontends[0].Addr, Port: 80, Endpoints: one.Frontends[0].Endpoints[:3]}}
		var loaded Stage
		measure := func(name string, setup func() Stage, updates func(i int) []model.Update) {
			b.Run(fmt.Sprintf("services=%d/%s", n, name), func(b *testing.B) {
				used, messages, runs := 0.0, 0, 0
				for i := 0; b.Loop(); i++ {
					b.StopTimer()
					s := setup()
					b.StartTimer()
					before := cpu(b)
					for _, u := range updates(i) {
						s.Managers[0].OnUpdate(u)
					}
					s.Managers[0].CompleteDeferredWork()
					did, err := s.Apply(b.Context())
					if err != nil {
						b.Fatal(err)
					}
					used, messages, runs, loaded = used+cpu(b)-before, messages+did.Writes, runs+1, s
				}
				b.ReportMetric(used/float64(runs), "cpu-ms/op")
				b.ReportMetric(float64(messages)/float64(runs), "messages/op")
			})
		}
		measure("first", func() Stage {
			if err := RemoveBeside(b.Context(), ns.FD); err != nil {
				b.Fatal(err)
			}
			return Services(c)
		}, func(int) []model.Update { return all })
		measure("restart", func() Stage { return Services(c) }, func(int) []model.Update { return all })
		runtime.GC() // of the loads before
		measure("service", func() Stage { return loaded }, func(i int) []model.Update {
			if i%2 == 0 {
				return []model.Update{model.ServicePortUpdate{Port: one}}
			}
			return []model.Update{model.ServicePortRemove{ID: one.ID}}
		})
		measure("endpoint", func() Stage { return loaded }, func(i int) []model.Update {
			return []model.Update{model.ServicePortUpdate{Port: [2]*model.ServicePort{one, &few}[i%2]}}
		})
	}
}
