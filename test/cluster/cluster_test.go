package cluster

import "testing"

// TestCluster installs felixlike into a cluster, uses it, and removes it.
func TestCluster(t *testing.T) {
	switch suite() {
	case none:
		t.Skipf("%s=%s", suiteVariable, none)
	case conformance, clusterPolicies:
		t.Skipf("the suite is %s", suite())
	}
	for _, backend := range words(backendsVariable, "nftables") {
		for _, proxy := range words(proxiesVariable, "iptables") {
			t.Run(backend+"/"+proxy, func(t *testing.T) {
				s := newSite(t, backend, proxy)
				s.before = s.snapshots(t)
				run := func(name string, part func(*testing.T)) bool {
					passed := t.Run(name, part)
					if !passed {
						s.logState(t) // at the end, the agents and their logs are gone
					}
					return passed
				}
				if !run("install", s.testInstall) {
					return
				}
				run("smoke", s.testSmoke)
				run("probes", s.testProbes)
				run("plugin", s.testPlugin)
				run("services", s.testServices)
				run("no open moment", s.testNoOpenMoment)
				run("storm", s.testStorm)
				run("rolling restart", s.testRollingRestart)
				run("rolling change", s.testRollingChange)
				run("API server outage", s.testOutage)
				run("datastore", s.testDatastore)
				run("specs", s.testChosenSpecs)
				run("RBAC", s.testRBAC)
				run("uninstall", s.testUninstall)
			})
		}
	}
}
