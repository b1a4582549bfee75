package cluster

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/felixlike/felixlike/felixlike/report"
	"github.com/felixlike/felixlike/model"
)

// switchLabels select the pods of Open vSwitch.
const switchLabels = "app.kubernetes.io/component=ovs"

// switchPods returns the pods of Open vSwitch by node.
func (s *site) switchPods(t *testing.T) map[string]corev1.Pod {
	t.Helper()
	found, err := s.Pods(t.Context(), system, switchLabels)
	if err != nil {
		t.Fatal(err)
	}
	byNode := map[string]corev1.Pod{}
	for _, p := range found {
		if p.DeletionTimestamp == nil {
			byNode[p.Spec.NodeName] = p
		}
	}
	return byNode
}

// sameSwitches fails the test unless the pods of Open vSwitch are those from before and no
// container of them has been started again.
func sameSwitches(t *testing.T, s *site, before map[string]corev1.Pod) {
	t.Helper()
	now := s.switchPods(t)
	for _, node := range s.Nodes() {
		was, is := before[node], now[node]
		if was.UID == "" || was.UID != is.UID || restarts(was) != restarts(is) {
			t.Errorf("%s: Open vSwitch ran in pod %s (%d restarts), and runs in pod %s (%d restarts)", node, was.Name, restarts(was), is.Name, restarts(is))
		}
	}
}

func restarts(p corev1.Pod) (n int32) {
	for _, c := range p.Status.ContainerStatuses {
		n += c.RestartCount
	}
	return n
}

// replaceSwitches upgrades Open vSwitch as docs/install/upgrade.md says: it deletes the pods one by one,
// and waits for each node.
func (s *site) replaceSwitches(t *testing.T) {
	t.Helper()
	start := time.Now()
	for _, node := range s.Nodes() {
		was := s.switchPods(t)[node]
		s.kubectl(t, "-n", system, "delete", "pod", "-l", switchLabels, "--field-selector", "spec.nodeName="+node)
		until(t, rolledTime, func() error {
			is := s.switchPods(t)[node]
			ready := slices.ContainsFunc(is.Status.Conditions, func(c corev1.PodCondition) bool {
				return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
			})
			if is.UID == "" || is.UID == was.UID || !ready {
				return fmt.Errorf("%s: pod %s of Open vSwitch is not ready, or is the old one", node, is.Name)
			}
			status, err := s.agent(t, node).Status(t.Context())
			if err == nil && !report.Ready(status) {
				err = fmt.Errorf("%s: the agent is degraded", node)
			}
			return err
		})
	}
	t.Logf("Open vSwitch is replaced (%s)", since(start))
}

// pingEvery is the pause between two echo requests.
const pingEvery = 20 * time.Millisecond

// ping is a running ping.
type ping struct {
	what string
	cmd  *exec.Cmd
	out  bytes.Buffer
}

// startPings sends echo requests from friends on both nodes to a pod, by both families.
func startPings(t *testing.T, pods map[string]*pod) []*ping {
	t.Helper()
	var all []*ping
	for _, from := range []string{"b", "c"} {
		for _, f := range model.Families() {
			p := &ping{what: fmt.Sprintf("%s -> a IPv%s", from, f)}
			p.cmd = exec.Command("ping", "-q", "-n", "-i", strconv.FormatFloat(pingEvery.Seconds(), 'f', -1, 64), pods["a"].address(f).String())
			p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.out
			if err := pods[from].station.Namespace().Do(p.cmd.Start); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = p.cmd.Process.Kill() })
			all = append(all, p)
		}
	}
	return all
}

// pingSummary is the last line of ping -q that counts.
var pingSummary = regexp.MustCompile(`(\d+) packets transmitted, (\d+) received`)

// lost ends pings, and returns how many echo requests got no answer, and logs them.
func lost(t *testing.T, all []*ping) (sum int) {
	t.Helper()
	for _, p := range all {
		_ = p.cmd.Process.Signal(os.Interrupt)
		_ = p.cmd.Wait() // exit code 1 if no answer came at all
		found := pingSummary.FindStringSubmatch(p.out.String())
		if found == nil {
			t.Errorf("%s: %s", p.what, p.out.String())
			continue
		}
		sent, _ := strconv.Atoi(found[1])
		received, _ := strconv.Atoi(found[2])
		t.Logf("%s: %d of %d echo requests every %s got no answer", p.what, sent-received, sent, pingEvery)
		sum += sent - received
	}
	return sum
}

// atMostLost bounds the echo requests without an answer while agents alone are replaced: on a busy
// machine with the userspace datapath, some packets are lost at any time.
const atMostLost = 10

// testAgentsAlone replaces the agents, with a new version or without: Open vSwitch runs on, and
// traffic with it.
func testAgentsAlone(t *testing.T, s *site, ns string, replace func()) {
	t.Helper()
	before := s.switchPods(t)
	if n := s.underTraffic(t, ns, replace); n > atMostLost {
		t.Errorf("%d echo requests got no answer, want at most %d", n, atMostLost)
	}
	sameSwitches(t, s, before)
}
