package driver

import (
	"context"
	"runtime/metrics"
	"testing"

	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/felixlike/driver/drivertest"
)

func gcPercent() uint64 {
	s := []metrics.Sample{{Name: "/gc/gogc:percent"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}

// TestHeapOfTheFirstCycle asserts that the heap may grow in the first cycle only, also if that fails.
func TestHeapOfTheFirstCycle(t *testing.T) {
	usual := gcPercent()
	for name, failure := range map[string]error{"succeeds": nil, "fails": context.DeadlineExceeded} {
		t.Run(name, func(t *testing.T) {
			var during []uint64
			f := startWith(t, Config{Stages: []backend.Stage{{Name: "fake", Apply: backend.Writes(func(context.Context) (int, error) {
				during = append(during, gcPercent())
				if len(during) == 1 {
					return 0, failure
				}
				return 0, nil
			})}}})
			f.begin(t)
			f.Source.Send(true, drivertest.PodOn("a", "node1"))
			if err := programmed(t, f); err != nil {
				t.Fatal(err)
			}
			if during[0] != startPercent || during[len(during)-1] != usual || len(during) < 2 {
				t.Errorf("GOGC in the cycles: %v, want %d at first and then %d", during, startPercent, usual)
			}
		})
	}
}
