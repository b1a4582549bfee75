// Package audit asks the switch at a low rate where sample packets between pods of this node would go, and compares the answer with the model. It
// reads the model in the driver's loop, and asks beside it. It programs nothing: after a difference, it has the driver read everything. It is tested
// with a switch of made-up answers under a driver here, and with Open vSwitch in test/e2e.
package audit

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/felixlike/driver"
	"github.com/felixlike/felixlike/felixlike/metrics"
	"github.com/felixlike/felixlike/internal/panics"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/vswitchd"
)

const (
	// noticeDatapathDiffers says that the switch does something else with a packet than the agent has programmed.
	noticeDatapathDiffers = "DatapathDiffers"
	// auditTimeout bounds one question. ovs-vswitchd answers within a few milliseconds.
	auditTimeout = time.Second
	// auditShare bounds the audit's share of one processor: a pause is so many times as long as the work before.
	auditShare = 100
)

// Audit asks the switch and compares its answers with the model. So it finds what no stage can see: a stage compares its own objects with the desired ones,
// and flows of other programs are not its objects.
//
// A backend in the switch is asked for the verdict on a packet from pod to pod. Under a netfilter backend the switch
// only forwards: it must lead the packet of the pod to the host, and that of the host to the pod.
//
// The audit asks only while nothing is pending and no stage runs, and it drops an answer if anything was applied
// meanwhile. It reports a difference that it sees twice, with the model read again in between. Then it asks for a
// full read of the dataplane, and repeats the question until the answers agree.
type Audit struct {
	Options
	view   *driver.View
	random *rand.Rand
	// turn counts the samples: each pod is the destination in its turn, and allowed and denied packets alternate.
	turn int
	// suspect is the packet whose answer differed at the last question, or nil.
	suspect *flow

	mu sync.Mutex
	// found is the reported difference, or "".
	found string
}

// Options are what an Audit uses.
type Options struct {
	// Trace asks the switch which way a packet would take.
	Trace func(ctx context.Context, p vswitchd.TracedPacket) (vswitchd.Traced, error)
	// Gateway is the bridge's port to the host.
	Gateway Gateway
	// LostInterfaces returns the recorded attachments whose interface is gone. It may be nil.
	LostInterfaces func() []model.Attachment
	// Every is the time between two questions; 0 is 5 s. A question costs about a millisecond, most of it in ovs-vswitchd.
	Every time.Duration
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
	// revision and started are the model's revision and the start of the newest run.
	revision uint64
	started  time.Time
}

// New returns an Audit that has not started.
func New(v *driver.View, o Options) *Audit {
	if o.Every == 0 {
		o.Every = 5 * time.Second
	}
	return &Audit{
		Options: o, view: v,
		random: rand.New(rand.NewPCG(1, 1)), // the same questions after each start
	}
}

// Module returns the module of the audit.
func (a *Audit) Module() driver.Module { return driver.Module{Run: a.run, Notices: a.notices} }

// run audits until ctx ends.
func (a *Audit) run(ctx context.Context) error {
	wait := a.Every
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
		if err := panics.Guard(func() error { wait = a.step(ctx); return nil }); err != nil {
			a.view.Panicked(err).Error("the audit of the datapath has panicked", "error", err)
			wait = auditShare * a.Every
		}
	}
}

// step asks one question, and returns the wait until the next one.
func (a *Audit) step(ctx context.Context) time.Duration {
	soon := a.Every / 5
	began := time.Now()
	q, busy := a.next(ctx)
	switch {
	case busy:
		return soon
	case q == nil:
		return a.Every
	}
	asking, cancel := context.WithTimeout(ctx, auditTimeout)
	defer cancel()
	why, err := a.differs(asking, q)
	pause := max(a.Every, auditShare*time.Since(began))
	if err != nil {
		// A switch that does not answer is reported by the one who watches it.
		a.view.Metrics().Audited(metrics.AuditFailed)
		a.view.Log().Debug("the audit of the datapath has no answer", "error", err)
		return a.Every
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
func (a *Audit) judge(ctx context.Context, q *question, why string) (agrees bool) {
	before := a.problem()
	switch {
	case why == "":
		a.view.Metrics().Audited(metrics.AuditAgrees)
		a.suspect = nil
		if before != "" {
			// Log first: who reads the new status must find the line.
			a.view.Log().Info("the datapath agrees with the model again", "packet", q.String())
			a.set("")
		}
		return true
	case a.suspect == nil:
		a.suspect = &q.flow
		return false
	case before == "":
		a.view.Log().Error("the datapath differs from the model; reading everything again", "difference", why)
		_ = a.view.Do(ctx, a.view.Reread) // fails only when the agent ends
	}
	a.view.Metrics().Audited(metrics.AuditDiffers)
	a.set(why)
	return false
}

// differs asks the switch, and returns what differs.
func (a *Audit) differs(ctx context.Context, q *question) (string, error) {
	out := q.from.OFPort
	if !q.inSwitch {
		led, err := a.Trace(ctx, q.packet(q.from.OFPort, q.from.MAC, a.Gateway.MAC))
		if err != nil {
			return "", err
		}
		if !led.Leaves(a.Gateway.Port) {
			return fmt.Sprintf("%s: the switch does not lead it to the host; last flow %s", q, led.Last), nil
		}
		out = a.Gateway.Port
	}
	// Pods send to the gateway's MAC address, and the host to the pod's.
	from, to := q.from.MAC, a.Gateway.MAC
	if !q.inSwitch {
		from, to = a.Gateway.MAC, q.to.MAC
	}
	came, err := a.Trace(ctx, q.packet(out, from, to))
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
func (a *Audit) next(ctx context.Context) (q *question, busy bool) {
	gone := false
	err := a.view.Do(ctx, func() {
		if busy = !a.view.Idle(); busy {
			return
		}
		q = &question{
			inSwitch: a.view.Backend().Place() == backend.InSwitch, revision: a.view.Attempted(), started: a.view.LastRun(),
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

// still reports whether nothing has changed or was applied since the question.
func (a *Audit) still(ctx context.Context, q *question) (same bool) {
	err := a.view.Do(ctx, func() {
		same = a.view.Idle() && a.view.Attempted() == q.revision && a.view.LastRun().Equal(q.started)
	})
	return err == nil && same
}

func (a *Audit) set(found string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.found = found
}

func (a *Audit) problem() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.found
}

// notices returns the reported difference. It may be called from any goroutine.
func (a *Audit) notices() []datastore.Notice {
	found := a.problem()
	if found == "" {
		return nil
	}
	return []datastore.Notice{{Kind: noticeDatapathDiffers, Problem: model.Problem{
		Object: model.NodeRef(a.view.Node()), Reason: "the datapath differs from the model: " + found,
	}}}
}
