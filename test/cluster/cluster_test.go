package cluster

import "testing"

// TestCluster installs felixlike into a cluster, uses it, and removes it.
func TestCluster(t *testing.T) {
	switch suite() {
	case none:
		t.Skipf("%s=%s", suiteVariable, none)
	case conformance:
		t.Skip("the suite is conformance")
	}
	for _, backend := range words(backendsVariable, "nftables") {
		for _, proxy := range words(proxiesVariable, "iptables") {
			t.Run(backend+"/"+proxy, func(t *testing.T) {
				s := newSite(t, backend, proxy)
				s.before = s.snapshots(t)
				if !t.Run("install", s.testInstall) {
					return
				}
				t.Run("smoke", s.testSmoke)
				t.Run("probes", s.testProbes)
				t.Run("plugin", s.testPlugin)
				t.Run("services", s.testServices)
				t.Run("no open moment", s.testNoOpenMoment)
				t.Run("storm", s.testStorm)
				t.Run("rolling restart", s.testRollingRestart)
				t.Run("rolling change", s.testRollingChange)
				t.Run("API server outage", s.testOutage)
				t.Run("datastore", s.testDatastore)
				t.Run("specs", s.testChosenSpecs)
				t.Run("RBAC", s.testRBAC)
				t.Run("uninstall", s.testUninstall)
			})
		}
	}
}
