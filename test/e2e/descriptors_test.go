package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/eventually"
	"github.com/felixlike/felixlike/test/lab"
)

const (
	// manyDescriptors is far above the 1,024 that select(2) knows.
	manyDescriptors = 5000
	// resync is the least that may be configured.
	resync = time.Second
)

// TestManyDescriptors runs agents with all their descriptors above
// 5,000, through every backend and several resyncs of each.
func TestManyDescriptors(t *testing.T) {
	t.Parallel()
	needLab(t)
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil || limit.Max < manyDescriptors+1000 {
		t.Skipf("%d open files are allowed at most (%v)", limit.Max, err)
	}
	l := newLabWith(t, lab.Config{Agent: crowdedAgent(t)})
	set(t, l, state(t, threeNodes, onlyFromC))
	nodes := []*lab.Node{l.Node("node1"), l.Node("node2")}
	pids := make([]int, len(nodes))
	for i, n := range nodes {
		pids[i] = n.AgentPID()
		open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pids[i]))
		if err != nil || len(open) < manyDescriptors {
			t.Fatalf("the agent of %s has %d descriptors (%v)", n.Name(), len(open), err)
		}
	}
	for _, backend := range slices.Concat(backends()[1:], backends()[:1]) {
		var clients []*control.Client
		var began []control.Status
		for _, n := range nodes {
			change(t, n, backend)
			client := control.NewClient(n.ControlSocket())
			s, err := client.Status(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			clients, began = append(clients, client), append(began, s)
		}
		for i, n := range nodes {
			eventually.True(t, "a resync of "+n.Name(), func() bool {
				s, err := clients[i].Status(t.Context())
				return err == nil && s.LastApply.At.Sub(began[i].LastApply.At) > 2*resync && s.LastApply.Error == ""
			})
		}
		expect(t, l, true, "x/c", "x/a", model.TCP, 80)
		expect(t, l, false, "x/b", "x/a", model.TCP, 80)
	}
	for i, n := range nodes {
		if pid := n.AgentPID(); pid != pids[i] {
			t.Errorf("the agent of %s has ended: process %d, now %d", n.Name(), pids[i], pid)
		}
	}
}

// crowdedAgent returns a program that opens many files and becomes the agent.
func crowdedAgent(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), lab.AgentProgram)
	script := fmt.Sprintf("#!/bin/bash\nfor ((i = 0; i < %d; i++)); do exec {fd}</dev/null; done\nexec %s \"$@\" --resync-interval %s\n",
		manyDescriptors, filepath.Join(buildDir, lab.AgentProgram), resync)
	if err := os.WriteFile(path, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}
