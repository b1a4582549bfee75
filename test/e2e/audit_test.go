package e2e

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/health"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/eventually"
	"github.com/felixlike/felixlike/test/lab"
)

// TestAuditNamesForeignFlows adds flows of another program to a node. They are no objects of the agent, so no stage
// repairs them; but packets of pods are dropped. The agent is not ready and names the flow, until it is gone.
func TestAuditNamesForeignFlows(t *testing.T) {
	t.Parallel()
	inEachPlace(t, auditNamesForeignFlows)
}

func auditNamesForeignFlows(t *testing.T, l *lab.Lab) {
	set(t, l, state(t, threeNodes, onlyFromC))
	n := l.Node("node1")
	isReady := func() (bool, string) { return readiness(t, n) }
	eventually.True(t, "the agent is ready", func() bool { ready, _ := isReady(); return ready })
	repaired := repairs(t, n)
	// Table 80 leads packets to pods, under every backend.
	ofctl(t, n, "add-flow", "cookie=0x77,table=80,priority=60000,ip,actions=drop")
	ofctl(t, n, "add-flow", "cookie=0x77,table=80,priority=60000,ipv6,actions=drop")
	const names = "priority 60000, cookie 0x77"
	eventually.True(t, "the agent names the foreign flow", func() bool {
		ready, why := isReady()
		return !ready && strings.Contains(why, names)
	})
	expect(t, l, false, "x/a", "x/b", model.TCP, 80)
	status, err := n.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(problems(status), names) {
		t.Errorf("problems: %s", problems(status))
	}
	if more := repairs(t, n) - repaired; more != 0 {
		t.Errorf("%d repairs: the agent sees the flows without the audit", more)
	}
	ofctl(t, n, "del-flows", "cookie=0x77/-1,table=80")
	eventually.True(t, "the agent is ready again", func() bool { ready, _ := isReady(); return ready })
	expect(t, l, true, "x/a", "x/b", model.TCP, 80)
	text, err := os.ReadFile(n.LogFile())
	if err != nil {
		t.Fatal(err)
	}
	if said := strings.Count(string(text), "the datapath differs from the model; reading everything again"); said != 1 {
		t.Errorf("%d lines of the log about one episode", said)
	}
}

// readiness asks the agent of a node whether it is ready, and why not. An agent that does not answer is not ready.
func readiness(t *testing.T, n *lab.Node) (ready bool, why string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	ready, why, err := control.NewClient(n.ControlSocket()).Probe(ctx, health.ReadyPath)
	if err != nil {
		return false, err.Error()
	}
	return ready, why
}

// problems returns the reasons of a status.
func problems(s control.Status) string {
	var all []string
	for _, p := range s.Problems {
		all = append(all, p.Reason)
	}
	return strings.Join(all, "; ")
}
