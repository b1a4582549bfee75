package cluster

import (
	"path/filepath"
	"testing"
	"time"
)

// testUninstall removes felixlike as its documentation says: it leaves nothing.
func (s *site) testUninstall(t *testing.T) {
	s.notReference(t)
	start := time.Now()
	deploy := filepath.Join(s.kit.root, "deploy")
	s.kubectl(t, "delete", "-f", filepath.Join(deploy, "felixlike.yaml"), "--wait", "--timeout=90s")
	s.kubectl(t, "apply", "-f", filepath.Join(deploy, "uninstall.yaml"))
	s.kubectl(t, "-n", "felixlike-uninstall", "rollout", "status", "daemonset/felixlike-uninstall", "--timeout=90s")
	t.Log(s.kubectl(t, "-n", "felixlike-uninstall", "logs", "daemonset/felixlike-uninstall", "-c", "uninstall"))
	s.kubectl(t, "delete", "-f", filepath.Join(deploy, "uninstall.yaml"), "--wait", "--timeout=60s")
	s.same(t, 30*time.Second, s.before, s.snapshots)
	t.Logf("uninstalled in %s", since(start))
}
