package driver

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/felixlike/driver/drivertest"
	"github.com/felixlike/felixlike/test/eventually"
)

// TestPendingPolicyIsNotInForce has a switch that takes policy and waits, and a stage
// behind it that ends that: until then nothing is reported as programmed.
func TestPendingPolicyIsNotInForce(t *testing.T) {
	table, waits := drivertest.NewTable(t), atomic.Bool{}
	waits.Store(true)
	policy := table.Stage()
	policy.Name = backend.PolicyStage
	policy.Apply = func(ctx context.Context) (backend.Applied, error) {
		a, err := table.Apply(ctx)
		a.Pending = waits.Load()
		return a, err
	}
	tried, end := make(chan struct{}, 100), atomic.Bool{}
	restore := backend.Stage{Name: backend.FlowRestoreStage, Required: true, Apply: backend.Writes(func(context.Context) (int, error) {
		if !waits.Load() {
			return 0, nil
		}
		if !end.Load() {
			tried <- struct{}{}
			return 0, errors.New("the switch waits")
		}
		waits.Store(false)
		return 1, nil
	})}
	f := startWith(t, Config{Backend: &drivertest.Backend{NameIs: config.OpenFlow, PlaceIs: backend.InSwitch, StageIs: policy}, Stages: []backend.Stage{policy, restore}})
	f.AttachmentsSynced()
	f.Source.Send(true, drivertest.Node("node1", "10.10.0.0/24"))
	<-tried
	<-tried
	timed := func() bool {
		w := httptest.NewRecorder()
		f.Metrics().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		return !strings.Contains(w.Body.String(), "felixlike_policy_programming_duration_seconds_count 0")
	}
	if s := f.Status(); s.Programmed != 0 || !strings.Contains(s.LastApply.Error, "the switch waits") || timed() {
		t.Errorf("while the switch waits: revision %d is programmed, error %q, policy counts as programmed: %v", s.Programmed, s.LastApply.Error, timed())
	}
	end.Store(true)
	eventually.True(t, "the policy is in force", func() bool { return f.Status().Programmed == f.Status().Observed && timed() })
}
