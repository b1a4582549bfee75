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
	s.kubectl(t, "delete", "-f", filepath.Join(s.kit.root, "deploy", "felixlike.yaml"), "--wait", "--timeout=90s")
	s.same(t, 30*time.Second, s.before, s.snapshots)
	t.Logf("uninstalled in %s", since(start))
}
