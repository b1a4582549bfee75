package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Results of a proof of the programmed state (setting verify).
const (
	VerifyEqual     = "equal"
	VerifyDiffers   = "differs"
	VerifyNotProved = "not proved"
	VerifyFailed    = "cannot run"
	VerifyAbandoned = "abandoned"
)

// verify counts the proofs, and their cost.
type verify struct {
	proofs *prometheus.CounterVec
	cpu    prometheus.Counter
}

func newVerify() *verify {
	v := &verify{
		proofs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "felixlike_verify_proofs_total",
			Help: "Proofs that the programmed state gives all packets the verdicts of the policies (setting verify), by result: equal; differs (confirmed by a second proof: the agent is not ready until a proof finds no difference, or none could confirm it for ten minutes); not proved (an object that the proof does not understand, a part that it cannot compare, or no proof has ended for ten minutes or ten tries); cannot run (felixctl is missing, or failed); abandoned (policies or the dataplane changed meanwhile).",
		}, []string{"result"}),
		cpu: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "felixlike_verify_cpu_seconds_total",
			Help: "CPU time of these proofs. They are processes of their own: process_cpu_seconds_total does not have it.",
		}),
	}
	for _, result := range []string{VerifyEqual, VerifyDiffers, VerifyNotProved, VerifyFailed, VerifyAbandoned} {
		v.proofs.WithLabelValues(result)
	}
	return v
}

// Verified notes the result of a proof, and its CPU time.
func (m *Metrics) Verified(result string, cpu time.Duration) {
	m.verify.proofs.WithLabelValues(result).Inc()
	m.verify.cpu.Add(cpu.Seconds())
}
