package felixlike

import (
	"errors"
	"testing"
	"time"

	"github.com/felixlike/felixlike/felixlike/backend"
)

// TestAnswerEndsTheWait: an apply that failed because the switch did not answer is retried as soon as it answers,
// however long the wait has grown.
func TestAnswerEndsTheWait(t *testing.T) {
	table, answers := newFakeTable(t), make(chan struct{})
	table.err = errors.New("connection refused")
	f := startWith(t, Config{
		Stages: []backend.Stage{table.stage()}, Answers: answers, Timing: Timing{RetryMin: time.Hour, RetryMax: time.Hour},
	})
	f.attachmentsSynced()
	f.source.send(true, node("node1", "10.10.0.0/24"))
	eventually(t, "an apply has failed", func() bool { return f.Status().LastApply.Error != "" })
	table.mu.Lock()
	table.err = nil
	table.mu.Unlock()
	answers <- struct{}{}
	eventually(t, "the apply is repeated", func() bool { return missing(t, f) == "" })
	if n := table.count(); n != 2 {
		t.Errorf("%d applies", n)
	}
}
