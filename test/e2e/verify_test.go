package e2e

import (
	"strings"
	"testing"

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

func statusAt(t *testing.T, n *lab.Node) control.Status {
	t.Helper()
	s, err := n.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s
}
