// Package metrics holds the agent's Prometheus metrics, in a separate registry. Counts and times are
// observed as they happen; states are read at each scrape. There is no series for a pod, a policy or an
// address, so a busy node has as many series as an idle one.
//
// The package knows the driver only by the numbers that it gets. It is tested by linting and by the text of a
// scrape.
//
// The HELP of a metric has its meaning; no metric has a label for a pod or a policy.
// felixlike_policy_programming_duration_seconds begins when the datastore learns of a
// change (with manifests when it sees a changed file; the time until the file is quiet
// and read counts) and ends with the policy stage's commit. Only changes that matter to
// this node count. felixlike_apply_duration_seconds{kind="full"} are applies that read
// everything first.
package metrics

import (
	"net/http"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/felixlike/felixlike/felixlike/version"
)

// Metrics are the agent's metrics. Its methods may be called from any
// goroutine.
type Metrics struct {
	registry      *prometheus.Registry
	applyDuration *prometheus.HistogramVec
	applies       *prometheus.CounterVec
	writes        *prometheus.CounterVec
	programming   prometheus.Histogram
	repaired      *prometheus.CounterVec
	lastSuccess   prometheus.Gauge
	added         prometheus.Histogram
	audited       *prometheus.CounterVec
	verify        *verify
}

// Values of labels.
const (
	kindDelta, kindFull          = "delta", "full"
	resultSuccess, resultFailure = "success", "failure"
)

// Results of a question of the audit.
const (
	AuditAgrees  = "agrees"
	AuditDiffers = "differs"
	AuditFailed  = "failed"
)

// buckets reach from a single element that changed to a switch that hangs.
func buckets() []float64 {
	return []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}
}

// New returns the metrics of an agent with these stages. It calls state at each scrape; if that returns
// false, its metrics are missing. Repairable are the kinds of objects that a foreign change may hit.
func New(stages, repairable []string, state func() (State, bool)) *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		applyDuration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "felixlike_apply_duration_seconds", Buckets: buckets(),
			Help: "Time that one stage (a receiver such as nftables or openflow) took to program the desired state, including applies that failed. Kind full: everything the receiver holds was read first; delta: only differences were sent.",
		}, []string{"stage", "kind"}),
		applies: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "felixlike_apply_total",
			Help: "Applies of a stage by result. Failures are retried, and the programmed state stays in force.",
		}, []string{"stage", "result"}),
		writes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "felixlike_writes_total",
			Help: "Mutating messages sent to a stage's receiver. It does not grow while nothing changes.",
		}, []string{"stage"}),
		programming: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "felixlike_policy_programming_duration_seconds", Buckets: buckets(),
			Help: "Time from the moment the datastore learned of a change that matters to this node to the commit of its policy in the dataplane.",
		}),
		repaired: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "felixlike_drift_repaired_total",
			Help: "Foreign changes to the agent's objects that were repaired, by kind of object. If it grows, another program writes into the agent's table.",
		}, []string{"object"}),
		lastSuccess: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "felixlike_last_success_timestamp_seconds",
			Help: "When all stages were last programmed without an error, in seconds since 1970. Zero until then. It stays as it is while nothing has to be programmed.",
		}),
	}
	m.added = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "felixlike_cni_wait_seconds", Buckets: buckets(),
		Help: "Time that adding a pod (CNI ADD) waited for the pod's policy to be in force once its interface was there, including waits that were given up.",
	})
	m.audited, m.verify = newAudited(), newVerify()
	// Series exist from the start, so that the first event is an increase.
	for _, s := range stages {
		m.applies.WithLabelValues(s, resultSuccess)
		m.applies.WithLabelValues(s, resultFailure)
		m.writes.WithLabelValues(s)
	}
	for _, object := range repairable {
		m.repaired.WithLabelValues(object)
	}
	build := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "felixlike_build_info",
		Help: "1, with the version of the agent and that of Go as labels.",
	}, []string{"version", "goversion"})
	build.WithLabelValues(version.Program(), runtime.Version()).Set(1)
	m.registry.MustRegister(m.applyDuration, m.applies, m.writes, m.programming, m.repaired, m.lastSuccess, m.added, m.audited, m.verify.proofs, m.verify.cpu, build,
		&stateCollector{state: state}, collectors.NewGoCollector(), collectors.NewBuildInfoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

func newAudited() *prometheus.CounterVec {
	audited := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "felixlike_audit_questions_total",
		Help: "Questions to the switch where a sample packet between two pods would go, by result: agrees; differs (twice in a row: the agent is not ready until the answers agree); failed (no answer).",
	}, []string{"result"})
	for _, result := range []string{AuditAgrees, AuditDiffers, AuditFailed} {
		audited.WithLabelValues(result)
	}
	return audited
}

// Applied notes one apply of a stage.
func (m *Metrics) Applied(stage string, full bool, took time.Duration, writes int, err error) {
	kind, result := kindDelta, resultSuccess
	if full {
		kind = kindFull
	}
	if err != nil {
		result = resultFailure
	}
	m.applyDuration.WithLabelValues(stage, kind).Observe(took.Seconds())
	m.applies.WithLabelValues(stage, result).Inc()
	m.writes.WithLabelValues(stage).Add(float64(writes))
}

// PolicyProgrammed notes the time from a change to its policy in force.
func (m *Metrics) PolicyProgrammed(took time.Duration) { m.programming.Observe(took.Seconds()) }

// PodAdded notes how long a pod that was added waited for its policy.
func (m *Metrics) PodAdded(waited time.Duration) { m.added.Observe(waited.Seconds()) }

// Audited notes the result of a question of the audit.
func (m *Metrics) Audited(result string) { m.audited.WithLabelValues(result).Inc() }

// Repaired notes a repaired foreign change.
func (m *Metrics) Repaired(object string) { m.repaired.WithLabelValues(object).Inc() }

// Succeeded notes when all stages were programmed.
func (m *Metrics) Succeeded(at time.Time) {
	m.lastSuccess.Set(float64(at.UnixMilli()) / 1000)
}

// Gatherer returns the source of a scrape.
func (m *Metrics) Gatherer() prometheus.Gatherer { return m.registry }

// Handler answers scrapes.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}
