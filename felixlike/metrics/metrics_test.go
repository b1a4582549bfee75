package metrics

import (
	"errors"
	"io"
	"net/http/httptest"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/felixlike/felixlike/felixlike/version"
)

func newMetrics(state func() (State, bool)) *Metrics {
	return New([]string{"nftables", "openflow"}, []string{"chain", "set"}, state)
}

func answer() (State, bool) {
	return State{Synced: true, Ready: true, Pending: 2, Quarantined: 1, InterfacesLost: 4, Problems: map[Problem]int{{"NetworkPolicy", "NotUnderstood"}: 2}, Rules: 40, Elements: 7, Endpoints: map[string]int{"programmed": 3, "closed": 0}}, true
}

func scrape(t *testing.T, m *Metrics) string {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	body, err := io.ReadAll(w.Result().Body)
	if err != nil || w.Code != 200 {
		t.Fatalf("scrape: %d %v\n%s", w.Code, err, body)
	}
	return string(body)
}

func TestNamesAndHelpAreClean(t *testing.T) {
	m := newMetrics(answer)
	m.Applied("nftables", true, time.Millisecond, 1, nil)
	found, err := testutil.GatherAndLint(m.Gatherer())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range found {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	form := regexp.MustCompile(`^(felixlike|go|process)_[a-z0-9_]+$`)
	families, err := m.Gatherer().Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if !form.MatchString(f.GetName()) {
			t.Errorf("%s: not of the form felixlike_<subsystem>_<what>", f.GetName())
		}
	}
}

func TestScrape(t *testing.T) {
	m := newMetrics(answer)
	m.Applied("nftables", true, 30*time.Millisecond, 12, nil)
	m.Applied("nftables", false, time.Millisecond, 0, errors.New("no"))
	m.Repaired("chain")
	m.PolicyProgrammed(2 * time.Millisecond)
	m.PodAdded(30 * time.Millisecond)
	m.WatchTables(func() []Table { return []Table{{Name: "conntrack", Entries: 12, Limit: 262144}} })
	m.Succeeded(time.Unix(1700000000, 500_000_000))
	text := scrape(t, m)
	for _, want := range []string{
		`felixlike_apply_duration_seconds_count{kind="full",stage="nftables"} 1`,
		`felixlike_apply_duration_seconds_bucket{kind="delta",stage="nftables",le="0.001"} 1`,
		`felixlike_apply_total{result="success",stage="nftables"} 1`,
		`felixlike_apply_total{result="failure",stage="nftables"} 1`,
		`felixlike_apply_total{result="failure",stage="openflow"} 0`,
		`felixlike_writes_total{stage="nftables"} 12`,
		`felixlike_drift_repaired_total{object="chain"} 1`,
		`felixlike_drift_repaired_total{object="set"} 0`,
		`felixlike_policy_programming_duration_seconds_count 1`,
		`felixlike_cni_wait_seconds_count 1`,
		`felixlike_last_success_timestamp_seconds 1.7000000005e+09`,
		`felixlike_table_entries{table="conntrack"} 12`, `felixlike_table_entries_limit{table="conntrack"} 262144`,
		`felixlike_datastore_synced 1`, `felixlike_ready 1`, `felixlike_pending_objects 2`, `felixlike_quarantined_objects 1`, `felixlike_interfaces_lost 4`,
		`felixlike_objects_with_problems{kind="NetworkPolicy",reason="NotUnderstood"} 2`,
		`felixlike_rules 40`, `felixlike_set_elements 7`,
		`felixlike_endpoints{state="programmed"} 3`, `felixlike_endpoints{state="closed"} 0`,
		`felixlike_build_info{goversion="` + runtime.Version() + `",version="` + version.Program() + `"} 1`,
		`process_cpu_seconds_total`, `go_goroutines`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in:\n%s", want, text)
		}
	}
}

// TestStateThatDoesNotAnswer: an agent whose loop is stuck is not ready, and the alert needs
// the series. The rest of its state is not known.
func TestStateThatDoesNotAnswer(t *testing.T) {
	text := scrape(t, newMetrics(func() (State, bool) { return State{}, false }))
	if strings.Contains(text, "felixlike_endpoints") || strings.Contains(text, "felixlike_datastore_synced") ||
		!strings.Contains(text, "felixlike_apply_total") || !strings.Contains(text, "felixlike_ready 0") {
		t.Error(text)
	}
}
