package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/metrics"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/eventually"
	"github.com/felixlike/felixlike/test/lab"
)

// TestVerifyNamesForeignFlow adds a flow of another program, for one port that no policy names. It is no object of the agent, so no stage repairs it, and
// the audit does not send packets of this port. The proof finds it; the agent is not ready, and names the packets and what happens to them, until the
// flow is gone.
func TestVerifyNamesForeignFlow(t *testing.T) {
	t.Parallel()
	for _, backend := range places() {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			verifyNamesForeignFlow(t, newLabWith(t, lab.Config{Backend: backend, Verify: config.VerifyOnResync}))
		})
	}
}

func verifyNamesForeignFlow(t *testing.T, l *lab.Lab) {
	const before, more = "{pod: b}}, spec: {nodeName: node1, containers: [{name: c, ports: [{containerPort: 80}", ", {containerPort: 7777}"
	set(t, l, state(t, strings.Replace(threeNodes, before, before+more, 1), onlyFromC))
	n := l.Node("node1")
	verified := func() *control.Verify { return statusAt(t, n).Verify }
	text := func() string { v := verified(); return v.Result + ": " + v.Reason }
	eventually.True(t, "the state is proved", func() bool { return verified().Result == metrics.VerifyEqual }, text)
	if ready, why := readiness(t, n); !ready {
		t.Errorf("not ready: %s", why)
	}
	if v := verified(); v.CPU <= 0 || v.Memory <= 0 || v.Memory > 1<<30 {
		t.Errorf("a proof took %s of CPU time and %d bytes", v.CPU, v.Memory)
	}
	if v := verified(); len(v.Classes) > 0 { // the rules are the same: no packet has to be followed
		t.Errorf("compared: %+v", v.Classes)
	} else {
		t.Logf("one proof: CPU time %s, %d MiB", v.CPU, v.Memory>>20)
	}
	if out, _, _ := felixctl(t, "status", "--socket", n.ControlSocket()); !strings.Contains(out, " ago ("+statusAt(t, n).Backend+")\n  onResync; ") {
		t.Errorf("status\n%s", out)
	}
	repaired := repairs(t, n)
	expect(t, l, true, "x/a", "x/b", model.TCP, 7777)
	ofctl(t, n, "add-flow", "cookie=0x77,table=80,priority=60000,tcp,tp_dst=7777,actions=drop")
	ofctl(t, n, "add-flow", "cookie=0x77,table=80,priority=60000,tcp6,tp_dst=7777,actions=drop")
	// ovs-vswitchd removes its cached flows a moment later.
	eventually.True(t, "the flow drops", func() bool { return !probeFor(t, l, probeTimeout, "x/a", "x/b", model.TCP, 7777) })
	const names = "the programmed state differs from the policies: "
	eventually.True(t, "the proof finds the flow", func() bool {
		ready, why := readiness(t, n)
		return !ready && strings.Contains(why, names)
	}, text)
	if v := verified(); v.Result != metrics.VerifyDiffers || !strings.Contains(v.Reason, "tcp 7777: programmed: dropped") {
		t.Errorf("verify: %s: %s", v.Result, v.Reason)
	}
	if all := problems(statusAt(t, n)); !strings.Contains(all, names) {
		t.Errorf("problems: %s", all)
	}
	if out, _, code := felixctl(t, "status", "--socket", n.ControlSocket()); code != 1 || !strings.Contains(out, "verify: differs, ") {
		t.Errorf("exit code %d\n%s", code, out)
	}
	if more := repairs(t, n) - repaired; more != 0 {
		t.Errorf("%d repairs: the agent sees the flow without the proof", more)
	}
	ofctl(t, n, "del-flows", "cookie=0x77/-1,table=80")
	eventually.True(t, "the agent is ready again", func() bool { ready, _ := readiness(t, n); return ready }, text)
	expect(t, l, true, "x/a", "x/b", model.TCP, 7777)
}

// TestVerifyFollowsChange adds such a flow, which no proof sees before the next resync, in an hour. With everyChange, the change of a policy that the flow
// has nothing to do with is followed by a proof, which finds it. While policies change all the time, the proofs of these changes use less than 2 % of a
// processor.
func TestVerifyFollowsChange(t *testing.T) {
	t.Parallel()
	for _, backend := range places() {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			verifyFollowsChange(t, newLabWith(t, lab.Config{Backend: backend, Verify: config.VerifyEveryChange}))
		})
	}
}

func verifyFollowsChange(t *testing.T, l *lab.Lab) {
	const proofs, processor = "felixlike_verify_proofs_total", "felixlike_verify_cpu_seconds_total"
	set(t, l, state(t, threeNodes, onlyFromC))
	n := l.Node("node1")
	verified := func() *control.Verify { return statusAt(t, n).Verify }
	text := func() string { v := verified(); return v.Result + ": " + v.Reason }
	eventually.True(t, "the state is proved", func() bool { return verified().Result == metrics.VerifyEqual }, text)

	// The pause after each proof is at least fifty times its processor time, so two proofs use 2 % of the time until the third.
	var ends []time.Time
	count, used := metric(t, n, proofs), -metric(t, n, processor)
	for i := 0; len(ends) < 3; i++ {
		set(t, l, state(t, threeNodes, onlyFromC, fmt.Sprintf(changingPolicy, 8000+i)))
		if now := metric(t, n, proofs); now > count {
			if count, ends = now, append(ends, time.Now()); len(ends) == 2 {
				used += metric(t, n, processor)
			}
		}
	}
	began := ends[0]
	t.Logf("two proofs in %s of changes used %.2f s of a processor", ends[2].Sub(began), used)
	if used <= 0 || used > ends[2].Sub(began).Seconds()/50 {
		t.Errorf("two proofs in %s of changes used %.2f s of a processor, want less than 2 %%", ends[2].Sub(began), used)
	}
	eventually.True(t, "the last change is proved", func() bool { v := verified(); return v.Result == metrics.VerifyEqual && v.At.After(began) }, text)

	proved := verified()
	ofctl(t, n, "add-flow", "cookie=0x77,table=80,priority=60000,tcp,tp_dst=7777,actions=drop")
	ofctl(t, n, "add-flow", "cookie=0x77,table=80,priority=60000,tcp6,tp_dst=7777,actions=drop")
	changed := time.Now()
	set(t, l, state(t, threeNodes, onlyFromC))
	eventually.True(t, "the proof finds the flow", func() bool {
		ready, why := readiness(t, n)
		return !ready && strings.Contains(why, "the programmed state differs from the policies: ")
	}, text)
	t.Logf("found after %s, the proof before took %s of a processor", time.Since(changed), proved.CPU)
	if v := verified(); !strings.Contains(v.Reason, "tcp 7777: programmed: dropped") {
		t.Errorf("verify: %s: %s", v.Result, v.Reason)
	}
	ofctl(t, n, "del-flows", "cookie=0x77/-1,table=80")
	eventually.True(t, "the agent is ready again", func() bool { ready, _ := readiness(t, n); return ready }, text)
}

const changingPolicy = `
{kind: NetworkPolicy, metadata: {namespace: x, name: changing}, spec: {podSelector: {matchLabels: {pod: a}},
  ingress: [{from: [{podSelector: {matchLabels: {pod: b}}}], ports: [{port: %d}]}]}}
`

func statusAt(t *testing.T, n *lab.Node) control.Status {
	t.Helper()
	s, err := n.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s
}
