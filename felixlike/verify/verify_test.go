package verify

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/felixlike/driver"
	"github.com/felixlike/felixlike/felixlike/driver/drivertest"
	"github.com/felixlike/felixlike/felixlike/driver/moduletest"
	"github.com/felixlike/felixlike/felixlike/metrics"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/test/eventually"
)

// prover is a proof with answers of the test.
type prover struct {
	mu    sync.Mutex
	calls int
	// answer gives the answer of a call; calls are counted from 1.
	answer func(ctx context.Context, call int) Answer
}

func (p *prover) Prove(ctx context.Context) Answer {
	p.mu.Lock()
	p.calls++
	call, answer := p.calls, p.answer
	p.mu.Unlock()
	return answer(ctx, call)
}

func (p *prover) set(answer func(ctx context.Context, call int) Answer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answer, p.calls = answer, 0
}

func (p *prover) asked() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.calls
}

func always(a Answer) func(context.Context, int) Answer {
	return func(context.Context, int) Answer { return a }
}

// fixture is a driver that verifies.
type fixture struct {
	*moduletest.Fixture
	*prover
	*Verify
	table *drivertest.Table
	// quiet is set while the stage finds everything as it should be.
	quiet atomic.Bool
	log   *drivertest.LogBuffer
	view  *driver.View
}

func start(t *testing.T, answer func(context.Context, int) Answer) *fixture {
	t.Helper()
	return startWith(t, Options{}, answer)
}

func startWith(t *testing.T, o Options, answer func(context.Context, int) Answer) *fixture {
	t.Helper()
	f := &fixture{prover: &prover{answer: answer}, table: drivertest.NewTable(t), log: &drivertest.LogBuffer{}, view: &driver.View{}}
	o.Prove = f.prover.Prove
	if o.Least == 0 {
		o.Least = time.Millisecond
	}
	f.Verify = New(f.view, o)
	stage := f.table.WatchedStage()
	stage.Apply = func(ctx context.Context) (backend.Applied, error) {
		applied, err := f.table.Apply(ctx)
		if f.quiet.Load() {
			applied.Writes = 0
		}
		return applied, err
	}
	f.Fixture = moduletest.Start(t, driver.Config{Stages: []backend.Stage{stage}, Log: f.log.Logger()}, f.view, f.Module())
	f.Begin(t)
	return f
}

// resync has the state proved, as the driver does at each full read.
func (f *fixture) resync(t *testing.T) {
	t.Helper()
	if err := f.view.Do(t.Context(), f.Module().OnResync); err != nil {
		t.Fatal(err)
	}
}

// reread has the stage read everything, and holds it until the returned function is called.
func (f *fixture) reread(t *testing.T) (release func()) {
	t.Helper()
	hold, held := make(chan struct{}), make(chan struct{})
	once := sync.OnceFunc(func() { close(held) })
	f.table.Set(func() { f.table.OnApply = func() { once(); <-hold } })
	if err := f.view.Do(t.Context(), f.view.Reread); err != nil {
		t.Fatal(err)
	}
	<-held
	return sync.OnceFunc(func() { close(hold) })
}

// is waits for the result of a proof in status.
func (f *fixture) is(t *testing.T, result, reason string) {
	t.Helper()
	eventually.True(t, "result "+result, func() bool {
		s := f.Fixture.Status().Verify
		return s.Result == result && s.Reason == reason
	}, func() string { return s(f.Fixture.Status().Verify) })
}

func s(v *control.Verify) string { return v.Result + ": " + v.Reason }

func (f *fixture) scrape() string {
	recorder := httptest.NewRecorder()
	f.Metrics().ServeHTTP(recorder, httptest.NewRequest("GET", "/metrics", nil))
	return recorder.Body.String()
}

// TestEqual: the state is proved after the start and after each resync, not in between, and the node is ready.
func TestEqual(t *testing.T) {
	f := start(t, always(Answer{Compared: true, CPU: time.Microsecond, Memory: 1 << 20}))
	f.is(t, metrics.VerifyEqual, "")
	for proofs := 1; proofs < 4; proofs++ {
		time.Sleep(20 * time.Millisecond) // proofs that nobody asked for would run
		if got := f.asked(); got != proofs {
			t.Fatalf("%d proofs, want %d", got, proofs)
		}
		f.resync(t)
		eventually.True(t, "the next proof", func() bool { return f.asked() > proofs })
	}
	if missing := f.Missing(t); missing != "" {
		t.Errorf("not ready: %s", missing)
	}
	if got := f.Fixture.Status().Verify; got.At.IsZero() || got.CPU != time.Microsecond || got.Memory != 1<<20 {
		t.Errorf("status %+v", got)
	}
}

// TestDifference: a difference that a second proof confirms makes the node not ready. It is a problem, an Event and a metric, with one line in the log and
// one full read of the dataplane, until a proof finds none.
func TestDifference(t *testing.T) {
	const what = "shop/web -> shop/db tcp 80: programmed: dropped; policies: accepted"
	f := start(t, always(Answer{Difference: what}))
	f.is(t, metrics.VerifyDiffers, what)
	eventually.True(t, "not ready", func() bool {
		return f.Missing(t) == "the programmed state differs from the policies: "+what
	}, func() string { return f.Missing(t) })
	eventually.True(t, "proofs are repeated", func() bool { return f.asked() >= 6 }) // without another resync
	notices, err := f.Notices(t.Context())
	if err != nil || len(notices) != 1 || notices[0].Kind != noticeVerdictsDiffer || notices[0].Object.Kind != "Node" {
		t.Errorf("notices %+v, %v", notices, err)
	}
	if all := f.Fixture.Status().Problems; len(all) != 1 || !strings.Contains(all[0].Reason, what) {
		t.Errorf("problems %+v", all)
	}
	if text := f.scrape(); strings.Contains(text, `felixlike_verify_proofs_total{result="differs"} 0`) || !strings.Contains(text, "felixlike_ready 0") {
		t.Error("the metrics do not show the difference")
	}
	f.table.Mu.Lock()
	if f.table.Invalidated != 1 {
		t.Errorf("everything was read again %d times", f.table.Invalidated)
	}
	f.table.Mu.Unlock()
	// What says nothing about the packets does not end the difference.
	for _, other := range []Answer{{Err: errors.New("no felixctl")}, {NotProved: "chain x: unknown"}} {
		f.set(always(other))
		eventually.True(t, "proofs without a result", func() bool { return f.asked() >= 2 })
		if !strings.Contains(f.Missing(t), what) {
			t.Errorf("after %+v: ready", other)
		}
	}
	f.set(always(Answer{NotProved: "learned flows", Compared: true}))
	eventually.True(t, "ready", func() bool { return f.Missing(t) == "" })
	if n := len(f.log.Lines("differs from the policies; reading everything again")); n != 1 {
		t.Errorf("%d lines about the difference", n)
	}
	if n := len(f.log.Lines("agrees with the policies again")); n != 1 {
		t.Errorf("%d lines about its end", n)
	}
}

// TestUnconfirmed: a difference that the second proof does not find, or cannot confirm, is not reported.
func TestUnconfirmed(t *testing.T) {
	for result, second := range map[string]Answer{
		metrics.VerifyEqual: {Compared: true}, metrics.VerifyNotProved: {NotProved: "learned flows", Compared: true}, metrics.VerifyFailed: {Err: errors.New("killed")},
	} {
		f := start(t, func(_ context.Context, call int) Answer {
			if call == 1 {
				return Answer{Difference: "x"}
			}
			return second
		})
		reason := second.NotProved
		if second.Err != nil {
			reason = second.Err.Error()
		}
		f.is(t, result, reason)
		if missing := f.Missing(t); missing != "" {
			t.Errorf("%s: not ready: %s", result, missing)
		}
		if n := f.log.Lines("differs from the policies"); len(n) > 0 {
			t.Errorf("%s: %v", result, n)
		}
		if got := f.asked(); got != 2 {
			t.Errorf("%s: %d proofs", result, got)
		}
	}
}

// TestNoProof: a state that is not proved, or a felixctl that does not run, is shown and is no fault. The log has one line for one reason.
func TestNoProof(t *testing.T) {
	f := start(t, always(Answer{NotProved: "chain x: unknown form"}))
	f.is(t, metrics.VerifyNotProved, "chain x: unknown form")
	f.set(always(Answer{Err: errors.New("felixctl is missing")}))
	for proofs := range 3 {
		f.resync(t)
		eventually.True(t, "the next proof", func() bool { return f.asked() > proofs })
		f.is(t, metrics.VerifyFailed, "felixctl is missing")
	}
	if missing := f.Missing(t); missing != "" || len(f.Fixture.Status().Problems) > 0 {
		t.Errorf("not ready: %s; problems %v", missing, f.Fixture.Status().Problems)
	}
	if n := len(f.log.Lines("cannot be proved")); n != 1 {
		t.Errorf("%d lines about one reason", n)
	}
}

// TestChangeMeanwhile: a change of the model ends a proof at once, during the first and the second proof. Its result does not count, and it is repeated
// without a resync.
func TestChangeMeanwhile(t *testing.T) {
	for _, at := range []int{1, 2} {
		running := make(chan struct{}, 1)
		f := start(t, func(ctx context.Context, call int) Answer {
			if call > at {
				return Answer{Compared: true}
			}
			if call == at {
				running <- struct{}{}
				<-ctx.Done()
			}
			return Answer{Difference: "half of a change"}
		})
		<-running
		if got := f.Fixture.Status().Verify; got.Result != "" {
			t.Errorf("status %+v before a proof has ended", got)
		}
		f.Source.Send(true, drivertest.PodOn("new", "node1"))
		f.is(t, metrics.VerifyEqual, "")
		if lines := f.log.Lines("differs from the policies"); len(lines) > 0 || f.Missing(t) != "" {
			t.Errorf("%v; %s", lines, f.Missing(t))
		}
		if n := len(f.log.Lines("before a second proof could confirm a difference")); n != 1 {
			t.Errorf("%d lines about the abandoned difference", n)
		}
		if !strings.Contains(f.scrape(), `felixlike_verify_proofs_total{result="abandoned"} 1`) {
			t.Error("the metrics do not show the abandoned proof")
		}
	}
}

// TestStageMeanwhile: a stage that runs during a proof makes its result void if it writes something, as a repair does, or fails. A full read that finds
// everything as it should be does not: a proof may take longer than the time between two resyncs. While a stage runs, no proof begins or ends.
func TestStageMeanwhile(t *testing.T) {
	for name, void := range map[string]bool{"writes": true, "fails": true, "finds nothing": false} {
		t.Run(name, func(t *testing.T) {
			running, end := make(chan struct{}, 2), make(chan struct{})
			f := start(t, func(ctx context.Context, call int) Answer {
				running <- struct{}{}
				if call == 1 {
					<-end
				}
				return Answer{Compared: true, NotProved: fmt.Sprint("proof ", call)}
			})
			<-running
			f.quiet.Store(name != "writes")
			if name == "fails" {
				f.table.Set(func() { f.table.Err = errors.New("busy") })
			}
			release := f.reread(t)
			defer release()
			close(end)
			time.Sleep(20 * time.Millisecond) // the proof would end, and another one begin
			if got := f.Fixture.Status().Verify; f.asked() != 1 || got.Result != "" || got.Abandoned != 0 {
				t.Errorf("%d proofs while a stage runs, status %+v", f.asked(), got)
			}
			release()
			if name == "fails" {
				eventually.True(t, "the proof is abandoned", func() bool { return f.Fixture.Status().Verify.Abandoned == 1 })
				f.table.Set(func() { f.table.Err = nil })
			}
			proof := 1
			if void {
				proof = 2
			}
			f.is(t, metrics.VerifyNotProved, fmt.Sprint("proof ", proof))
		})
	}
}

// TestNoProofEnds: status and metrics say so after ten abandoned proofs in a row, or if a proof has been due for ten minutes. Each pause after an abandoned
// proof is twice as long as the one before.
func TestNoProofEnds(t *testing.T) {
	var f *fixture
	began, ready := make(chan time.Time, 2*mostAbandoned), make(chan struct{})
	f = start(t, func(ctx context.Context, call int) Answer {
		<-ready
		if call <= mostAbandoned {
			began <- time.Now()
			f.Source.Send(true, drivertest.PodOn(fmt.Sprint("pod", call), "node1"))
		}
		<-ctx.Done()
		return Answer{Err: ctx.Err()}
	})
	close(ready)
	late := func() {
		t.Helper()
		eventually.True(t, "no proof ends", func() bool {
			v := f.Fixture.Status().Verify
			return v.Result == metrics.VerifyNotProved && strings.HasPrefix(v.Reason, "no proof has ended since 20") && v.At.IsZero()
		}, func() string { return s(f.Fixture.Status().Verify) })
		if text := f.scrape(); !strings.Contains(text, `felixlike_verify_proofs_total{result="not proved"} 1`) {
			t.Error("the metrics do not show it")
		}
	}
	late()
	if n := f.Fixture.Status().Verify.Abandoned; n < mostAbandoned {
		t.Errorf("%d abandoned proofs", n)
	}
	last := <-began
	for i := range mostAbandoned - 1 {
		next := <-began
		if pause := next.Sub(last); pause < time.Millisecond<<i {
			t.Errorf("pause %d is %s", i+1, pause)
		}
		last = next
	}

	f = start(t, always(Answer{Compared: true}))
	f.is(t, metrics.VerifyEqual, "")
	defer f.reread(t)() // no proof can begin
	f.resync(t)
	eventually.True(t, "a proof is due", func() (due bool) {
		f.note(func() { due = !f.waiting.IsZero() })
		return due
	})
	if got := f.Fixture.Status().Verify.Result; got != metrics.VerifyEqual {
		t.Errorf("result %s at once", got)
	}
	f.note(func() { f.waiting = f.waiting.Add(-f.Patience) })
	late()
}

// TestDifferenceNotConfirmed: a difference that no proof confirms for ten minutes, whatever the reason, stays a problem and an Event that say when it was
// seen and why no proof has compared the state since. It no longer keeps the node not ready.
func TestDifferenceNotConfirmed(t *testing.T) {
	const what = "shop/web -> shop/db tcp 80"
	for why, begin := range map[string]func(f *fixture){
		"no felixctl":     func(f *fixture) { f.set(always(Answer{Err: errors.New("no felixctl")})) },
		"chain x unknown": func(f *fixture) { f.set(always(Answer{NotProved: "chain x unknown"})) },
		"quarantine: 1 objects are quarantined": func(f *fixture) {
			f.table.Set(func() { f.table.Refused = []tables.Refusal{{Object: "chain", Name: "x", Reason: "too long"}} })
			f.Source.Send(true, drivertest.PodOn("new", "node1"))
		},
		"objects or the node's state changed during each proof": func(f *fixture) {
			f.set(func(ctx context.Context, call int) Answer {
				f.Source.Send(true, drivertest.PodOn(fmt.Sprint("pod", call), "node1"))
				<-ctx.Done()
				return Answer{Err: ctx.Err()}
			})
		},
	} {
		t.Run(why, func(t *testing.T) {
			f := start(t, always(Answer{Difference: what}))
			eventually.True(t, "not ready", func() bool { return f.Missing(t) == "the programmed state differs from the policies: "+what })
			begin(f)
			text := " (last seen at " + time.Now().UTC().Format("2006")
			eventually.True(t, "not compared", func() bool {
				missing := f.Missing(t)
				return strings.Contains(missing, what+text) && strings.Contains(missing, "not compared since: "+why)
			}, func() string { return f.Missing(t) })
			f.note(func() { f.seen = f.seen.Add(-f.Patience) })
			eventually.True(t, "ready", func() bool { return !strings.Contains(f.Missing(t), what) }, func() string { return f.Missing(t) })
			notices, err := f.Notices(t.Context())
			if err != nil || !slices.ContainsFunc(notices, func(n datastore.Notice) bool {
				return n.Kind == noticeVerdictsDiffer && strings.Contains(n.Reason, what+text)
			}) {
				t.Errorf("notices %+v, %v", notices, err)
			}
			if all := f.Fixture.Status().Problems; !slices.ContainsFunc(all, func(p model.Problem) bool { return strings.Contains(p.Reason, what+text) }) {
				t.Errorf("problems %+v", all)
			}
		})
	}
}

// TestBackendChanges: status names the backend that was proved, and another one is proved without a resync.
func TestBackendChanges(t *testing.T) {
	f := start(t, always(Answer{Compared: true}))
	f.is(t, metrics.VerifyEqual, "")
	if got := f.Fixture.Status().Verify.Backend; got != "fake" {
		t.Errorf("backend %q", got)
	}
	if err := f.view.Do(t.Context(), func() { f.view.Backend().(*drivertest.Backend).NameIs = "other" }); err != nil {
		t.Fatal(err)
	}
	eventually.True(t, "the other backend is proved", func() bool { return f.Fixture.Status().Verify.Backend == "other" })
}

// TestPause: after a proof that took some CPU time, the next one waits for fifty times that.
func TestPause(t *testing.T) {
	const used = 4 * time.Millisecond
	var mu sync.Mutex
	var begun []time.Time
	f := start(t, func(context.Context, int) Answer {
		mu.Lock()
		defer mu.Unlock()
		begun = append(begun, time.Now())
		return Answer{Compared: true, CPU: used}
	})
	for proofs := range 3 {
		f.resync(t)
		eventually.True(t, "the next proof", func() bool { return f.asked() > proofs })
	}
	mu.Lock()
	defer mu.Unlock()
	for i := range begun[1:] {
		if pause := begun[i+1].Sub(begun[i]); pause < 50*used {
			t.Errorf("proof %d begins %s after the one before, which took %s", i+2, pause, used)
		}
	}
}

// TestQuarantined: while objects are quarantined, nothing is proved: packets that depend on them are dropped, whatever the policies say.
func TestQuarantined(t *testing.T) {
	f := start(t, always(Answer{Compared: true}))
	f.is(t, metrics.VerifyEqual, "")
	f.table.Set(func() { f.table.Refused = []tables.Refusal{{Object: "chain", Name: "x", Reason: "too long"}} })
	f.Source.Send(true, drivertest.PodOn("new", "node1"))
	eventually.True(t, "the object is quarantined", func() bool { return len(f.Fixture.Status().Quarantined) == 1 })
	f.set(always(Answer{Difference: "what depends on the object"}))
	f.resync(t)
	f.is(t, metrics.VerifyNotProved, "quarantine: 1 objects are quarantined, and packets that depend on them are dropped whatever the policies say")
	if f.asked() > 0 {
		t.Error("a proof has run")
	}
}
