package cluster

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/stopwatch"
)

// Names of the installed objects.
const (
	system    = "felixlike-system"
	daemonSet = "daemonset/felixlike"
)

// installTime bounds the time until nodes and agents are ready, with the images
// present.
const installTime = 30 * time.Second

// overlay returns the kustomization of a backend.
func (s *site) overlay(backend string) string {
	return filepath.Join(s.kit.root, "deploy", "overlays", backend)
}

// testInstall installs felixlike as its documentation says, and measures the time
// until the nodes are ready for pods.
func testInstall(t *testing.T, s *site) {
	if out := s.kubectl(t, "get", "nodes", "--no-headers"); strings.Count(out, "NotReady") != len(s.Nodes()) {
		t.Fatalf("a node is ready before anything is installed:\n%s", out)
	}
	// The agents read the kinds of Antrea's API if they are served.
	s.kubectl(t, "create", "-f", filepath.Join(s.kit.root, "deploy", "components", "antrea-crds", "crds.yaml"))
	s.kubectl(t, "wait", "--for=condition=Established", "crd", "--all", "--timeout=1m")
	start, watch := time.Now(), stopwatch.Start(t)
	switch {
	case s.proxy == none:
		s.applyWith(t, fmt.Sprintf("serviceProxy: full\napiServer: [%s]\n", outside()[model.IPv4]))
	case s.backend == "nftables":
		s.kubectl(t, "apply", "-f", filepath.Join(s.kit.root, "deploy", "felixlike.yaml"))
	default:
		s.kubectl(t, "apply", "-k", s.overlay(s.backend))
	}
	s.kubectl(t, "wait", "--for=condition=Ready", "node", "--all", "--timeout=5m")
	nodes := since(start)
	s.kubectl(t, "-n", system, "rollout", "status", daemonSet, "--timeout=5m")
	took := watch.Lap(t)
	t.Logf("after kubectl apply: nodes ready %s, all agents ready %s", nodes, took)
	if took.Net() > installTime {
		t.Errorf("it took longer than %s", installTime)
	}
}

// applyWith applies the overlay of the site's backend with more settings of the agent.
func (s *site) applyWith(t *testing.T, settings string) {
	t.Helper()
	const first = "  agent.yaml: |\n"
	manifests := s.kubectl(t, "kustomize", s.overlay(s.backend))
	if strings.Count(manifests, first) != 1 {
		t.Fatalf("not one configuration of the agent in %s", s.overlay(s.backend))
	}
	var more strings.Builder
	for line := range strings.Lines(settings) {
		more.WriteString("    " + line)
	}
	s.apply(t, strings.Replace(manifests, first, first+more.String(), 1))
}

// testSmoke tries pods across nodes, Services and logs.
func testSmoke(t *testing.T, s *site) {
	out, err := s.Smoke(t.Context())
	t.Log(out)
	if err != nil {
		t.Error(err)
	}
	s.kubectl(t, "delete", "daemonset/web", "service/web", "--wait")
	until(t, readyTime, func() error { return s.gone(t, "default", "app=web") })
}
