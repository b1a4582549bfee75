package cluster

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// killAgent kills the agent's process on a node, and not the switch's supervisor,
// which is the same program with the word ovs.
const killAgent = `
for p in /proc/[0-9]*; do
	case $(readlink $p/exe) in */felixlike-agent) ;; *) continue;; esac
	case $(tr '\0' ' ' <$p/cmdline) in *' ovs '*) ;; *) kill -9 ${p#/proc/} && echo ${p#/proc/};; esac
done`

// testOutage ends the API server, and an agent meanwhile: policy stays in force and
// connections go on. Afterwards the agents receive changes again.
func testOutage(t *testing.T, s *site) {
	onlyFull(t)
	const ns = "outage"
	s.underTraffic(t, ns, func() {
		start, err := s.StopAPIServer(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		// The tests that follow need it in any case.
		started := false
		defer func() {
			if started {
				return
			}
			if err := start(t.Context()); err != nil {
				t.Error(err)
			}
		}()
		for _, node := range s.Nodes() {
			if out := s.exec(t, node, killAgent); strings.TrimSpace(out) == "" {
				t.Errorf("%s: no agent was running", node)
			}
		}
		time.Sleep(10 * time.Second) // traffic goes on, without anybody to ask
		begin := time.Now()
		err = start(t.Context())
		started = true
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("the API server is back after %s", since(begin))
		s.kubectl(t, "wait", "--for=condition=Ready", "node", "--all", "--timeout=90s")
		s.kubectl(t, "-n", system, "rollout", "status", daemonSet, "--timeout=120s")
		// The agents receive a change: a new pod gets in, by its label.
		pods := s.start(t, ns, sleeper(ns, "late", s.Nodes()[1], `friend: "yes"`))
		if pods["late"] == nil || pods["a"] == nil {
			t.Fatal(errors.New("a pod is missing"))
		}
		expect(t, true, "late to a", pods["late"].flows(pods["a"], 80))
	})
}
