package cluster

import (
	"path/filepath"
	"testing"
	"time"
)

// testUninstall removes felixlike as its documentation says: it leaves nothing.
func testUninstall(t *testing.T, s *site) {
	deploy := filepath.Join(s.kit.root, "deploy")
	s.uninstall(t, filepath.Join(deploy, "felixlike.yaml"), filepath.Join(deploy, "uninstall.yaml"))
}

// uninstall deletes the installed manifest, and has another one clean the nodes. They then look
// as they did before the installation.
func (s *site) uninstall(t *testing.T, installed, cleaning string) {
	t.Helper()
	start := time.Now()
	s.clean(t, installed, cleaning)
	s.same(t, 30*time.Second, s.before, s.snapshots)
	t.Logf("uninstalled in %s", since(start))
}

// clean is uninstall without a look at the nodes.
func (s *site) clean(t *testing.T, installed, cleaning string) {
	t.Helper()
	s.kubectl(t, "delete", "-f", installed, "--wait", "--timeout=90s")
	s.kubectl(t, "apply", "-f", cleaning)
	s.kubectl(t, "-n", "felixlike-uninstall", "rollout", "status", "daemonset/felixlike-uninstall", "--timeout=90s")
	t.Log(s.kubectl(t, "-n", "felixlike-uninstall", "logs", "daemonset/felixlike-uninstall", "-c", "uninstall"))
	s.kubectl(t, "delete", "-f", cleaning, "--wait", "--timeout=60s")
}
