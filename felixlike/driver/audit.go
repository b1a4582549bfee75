package driver

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/felixlike/metrics"
	"github.com/felixlike/felixlike/internal/panics"
	"github.com/felixlike/felixlike/model"
)

const (
	// noticeDatapathDiffers says that the switch does something else with a packet than the agent has programmed.
	noticeDatapathDiffers = "DatapathDiffers"
	// auditTimeout bounds one question. ovs-vswitchd answers within a few milliseconds.
	auditTimeout = time.Second
	// auditShare bounds the audit's share of one processor: a pause is so many times as long as the work before.
	auditShare = 100
)

// audit asks the switch at a low rate where sample packets between pods of this node would go, and compares the
// answer with the model. So it finds what no stage can see: a stage compares its own objects with the desired ones,
// and flows of other programs are not its objects.
//
// A backend in the switch is asked for the verdict on a packet from pod to pod. Under a netfilter backend the switch
// only forwards: it must lead the packet of the pod to the host, and that of the host to the pod.
//
// The audit asks only while nothing is pending and no stage runs, and it drops an answer if anything was applied
// meanwhile. It reports a difference that it sees twice, with the model read again in between. Then it asks for a
// full read of the dataplane, and repeats the question until the answers agree.
type audit struct {
	cfg       *Config
	queue     *queue
	cluster   *cluster
	stages    *stages
	scheduler *scheduler
	metrics   *metrics.Metrics
	random    *rand.Rand
	// turn counts the samples: each pod is the destination in its turn, and allowed and denied packets alternate.
	turn int
	// suspect is the packet whose answer differed at the last question, or nil.
	suspect *flow

	mu sync.Mutex
	// found is the reported difference, or "".
	found string
}

// Gateway is the bridge's port to the host.
type Gateway struct {
	Port uint32
	MAC  net.HardwareAddr
}

// question is a sample packet, and what the switch must do with it.
type question struct {
	flow
	from, to *model.Attachment
	inSwitch bool
	// allowed is the verdict of policy.
	allowed bool
	// noted and started are the tracker's count of updates and the start of the newest run.
	noted   uint64
	started time.Time
}

func newAudit(cfg *Config, q *queue, c *cluster, s *stages, sc *scheduler, m *metrics.Metrics) *audit {
	return &audit{
		cfg: cfg, queue: q, cluster: c, stages: s, scheduler: sc, metrics: m,
		random: rand.New(rand.NewPCG(1, 1)), // the same questions after each start
	}
}

// run audits until ctx ends.
func (a *audit) run(ctx context.Context) error {
	if a.cfg.Trace == nil {
		return nil
	}
	wait := a.cfg.AuditEvery
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
		if err := panics.Guard(func() error { wait = a.step(ctx); return nil }); err != nil {
			a.stages.panics.With(a.stages.log(), err).Error("the audit of the datapath has panicked", "error", err)
			wait = auditShare * a.cfg.AuditEvery
		}
	}
}

// step asks one question, and returns the wait until the next one.
func (a *audit) step(ctx context.Context) time.Duration {
	soon := a.cfg.AuditEvery / 5
	began := time.Now()
	q, busy := a.next(ctx)
	switch {
	case busy:
		return soon
	case q == nil:
		return a.cfg.AuditEvery
	}
	asking, cancel := context.WithTimeout(ctx, auditTimeout)
	defer cancel()
	why, err := a.differs(asking, q)
	pause := max(a.cfg.AuditEvery, auditShare*time.Since(began))
	if err != nil {
		// A switch that does not answer is reported by the one who watches it.
		a.metrics.Audited(metrics.AuditFailed)
		a.stages.log().Debug("the audit of the datapath has no answer", "error", err)
		return a.cfg.AuditEvery
	}
	if !a.still(ctx, q) {
		return soon
	}
	if !a.judge(ctx, q, why) {
		return min(soon, pause)
	}
	return pause
}

// judge takes an answer: why is the difference, or "". It reports whether the answer agrees.
func (a *audit) judge(ctx context.Context, q *question, why string) (agrees bool) {
	before := a.problem()
	switch {
	case why == "":
		a.metrics.Audited(metrics.AuditAgrees)
		a.suspect = nil
		if before != "" {
			a.set("")
			a.stages.log().Info("the datapath agrees with the model again", "packet", q.String())
		}
		return true
	case a.suspect == nil:
		a.suspect = &q.flow
		return false
	case before == "":
		a.stages.log().Error("the datapath differs from the model; reading everything again", "difference", why)
		a.queue.call(ctx, a.distrust)
	}
	a.metrics.Audited(metrics.AuditDiffers)
	a.set(why)
	return false
}

// distrust makes the next pass read everything. It runs in the loop.
func (a *audit) distrust() {
	for _, r := range a.stages.runners {
		r.stale, r.distrusted = true, true
	}
	a.scheduler.dirty = true
}

// differs asks the switch, and returns what differs.
func (a *audit) differs(ctx context.Context, q *question) (string, error) {
	out := q.from.OFPort
	if !q.inSwitch {
		led, err := a.cfg.Trace(ctx, q.packet(q.from.OFPort, q.from.MAC, a.cfg.Gateway.MAC))
		if err != nil {
			return "", err
		}
		if !led.Leaves(a.cfg.Gateway.Port) {
			return fmt.Sprintf("%s: the switch does not lead it to the host; last flow %s", q, led.Last), nil
		}
		out = a.cfg.Gateway.Port
	}
	// Pods send to the gateway's MAC address, and the host to the pod's.
	from, to := q.from.MAC, a.cfg.Gateway.MAC
	if !q.inSwitch {
		from, to = a.cfg.Gateway.MAC, q.to.MAC
	}
	came, err := a.cfg.Trace(ctx, q.packet(out, from, to))
	switch delivered := came.Leaves(q.to.OFPort); {
	case err != nil || delivered == q.allowed:
		return "", err
	case q.inSwitch && delivered:
		return fmt.Sprintf("%s: policy denies it, and the switch delivers it; last flow %s", q, came.Last), nil
	case q.inSwitch:
		return fmt.Sprintf("%s: policy allows it, and the switch drops it; last flow %s", q, came.Last), nil
	}
	return fmt.Sprintf("%s: the switch does not deliver it to the pod when it comes from the host; last flow %s", q, came.Last), nil
}

// next returns the next question: the suspect's again, if there is one. busy is set if nothing can be asked now.
func (a *audit) next(ctx context.Context) (q *question, busy bool) {
	gone := false
	err := a.queue.ask(ctx, func() {
		if busy = !a.idle(); busy {
			return
		}
		q = &question{
			inSwitch: a.stages.backend.Place() == backend.InSwitch, noted: a.cluster.tracker.noted, started: a.newest(),
		}
		var ok bool
		if a.suspect != nil {
			ok = a.again(q)
			gone = !ok
		} else {
			ok = a.choose(q)
		}
		if !ok {
			q = nil
		}
	})
	if gone {
		// One of its pods is gone, or its state says why it is closed.
		a.suspect = nil
		a.set("")
	}
	return q, busy || err != nil
}

// idle reports whether everything is programmed and nothing runs. It runs in the loop.
func (a *audit) idle() bool {
	return a.cluster.inSync() && a.scheduler.programmed > 0 && a.scheduler.lastApply.Error == "" && !a.scheduler.dirty &&
		a.stages.pass == nil && a.stages.running == 0 && a.stages.handover == nil && !a.scheduler.turns.pending() && !a.cluster.tiered.waits()
}

// newest returns the start of the newest run of a stage. It runs in the loop.
func (a *audit) newest() (at time.Time) {
	for _, r := range a.stages.runners {
		at = later(at, r.started)
	}
	return at
}

// still reports whether nothing has changed or was applied since the question.
func (a *audit) still(ctx context.Context, q *question) (same bool) {
	err := a.queue.ask(ctx, func() {
		same = a.idle() && a.cluster.tracker.noted == q.noted && a.newest().Equal(q.started)
	})
	return err == nil && same
}

func (a *audit) set(found string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.found = found
}

func (a *audit) problem() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.found
}

// notices returns the reported difference. It may be called from any goroutine.
func (a *audit) notices() []datastore.Notice {
	found := a.problem()
	if found == "" {
		return nil
	}
	return []datastore.Notice{{Kind: noticeDatapathDiffers, Problem: model.Problem{
		Object: model.NodeRef(a.cfg.Node), Reason: "the datapath differs from the model: " + found,
	}}}
}
