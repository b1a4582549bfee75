package openflow_test

import (
	"testing"
	"time"

	"github.com/felixlike/felixlike/ovsfwd/openflow"
	"github.com/felixlike/felixlike/test/ovstest"
)

// A switch has 60,000 flows of an earlier version, twice the bound of one policy. After
// the first apply of a new version it has the desired flows.
func TestPoisonedSwitch(t *testing.T) {
	b := ovstest.NewBridge(t)
	const left = 60_000
	old := connected(t, b)
	old.SetFlows("huge", fixed(numbered(left)))
	apply(t, b, old, openflow.Result{Messages: left, Added: left})
	table := connected(t, b)
	table.SetFlows("small", fixed(numbered(10)))
	began := time.Now()
	apply(t, b, table, openflow.Result{Messages: left - 10, Deleted: left - 10})
	took := time.Since(began)
	t.Logf("recovered after %s", took)
	if took > time.Minute {
		t.Error("that is more than a minute")
	}
	apply(t, b, table, openflow.Result{})
}
