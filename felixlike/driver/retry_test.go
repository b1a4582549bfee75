package driver

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/felixlike/driver/drivertest"
	"github.com/felixlike/felixlike/test/eventually"
)

// TestAnswerEndsTheWait: an apply that failed because the switch did not answer is retried as soon as it answers,
// however long the wait has grown.
func TestAnswerEndsTheWait(t *testing.T) {
	table := drivertest.NewTable(t)
	table.Err = errors.New("connection refused")
	f := startWith(t, Config{
		Stages: []backend.Stage{table.Stage()}, Timing: Timing{RetryMin: time.Hour, RetryMax: time.Hour},
	})
	f.AttachmentsSynced()
	f.Source.Send(true, drivertest.Node("node1", "10.10.0.0/24"))
	eventually.True(t, "an apply has failed", func() bool { return f.Status().LastApply.Error != "" })
	table.Mu.Lock()
	table.Err = nil
	table.Mu.Unlock()
	f.view.Post(t.Context(), f.view.RetryNow)
	eventually.True(t, "the apply is repeated", func() bool { return missing(t, f) == "" })
	if n := table.Count(); n != 2 {
		t.Errorf("%d applies", n)
	}
}

// TestEarlyFailuresDoNotLengthenTheWait: applies that changes started before the end of the wait say nothing about how long the
// fault lasts. A switch that restarts makes many of them fail within milliseconds, and then nothing else is sent.
func TestEarlyFailuresDoNotLengthenTheWait(t *testing.T) {
	table := drivertest.NewTable(t)
	table.Err = errors.New("connection refused")
	f := startWith(t, Config{Stages: []backend.Stage{table.Stage()}, Timing: Timing{RetryMin: 100 * time.Millisecond, RetryMax: time.Hour}})
	f.AttachmentsSynced()
	for i := range 14 { // 100 ms, doubled each time, would be 14 minutes
		f.Source.Send(true, drivertest.Node("node1", fmt.Sprintf("10.10.%d.0/24", i)))
		eventually.True(t, "an apply has failed for the change", func() bool { return table.Count() > i })
	}
	table.Mu.Lock()
	table.Err = nil
	table.Mu.Unlock()
	eventually.True(t, "the apply is repeated", func() bool { return f.Status().LastApply.Error == "" })
}
