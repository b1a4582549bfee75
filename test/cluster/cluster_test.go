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
				run := func(name string, part func(*testing.T, *site)) bool {
					passed := t.Run(name, func(t *testing.T) { part(t, s) })
					if !passed {
						s.logState(t) // at the end, the agents and their logs are gone
					}
					return passed
				}
				if !run("install", testInstall) {
					return
				}
				run("smoke", testSmoke)
				run("probes", testProbes)
				run("plugin", testPlugin)
				run("services", testServices)
				run("services without kube-proxy", testServicesWithoutProxy)
				run("policies for nodes", testNodePolicies)
				run("egress", testEgress)
				run("no open moment", testNoOpenMoment)
				run("storm", testStorm)
				run("rolling restart", testRollingRestart)
				run("rolling change", testRollingChange)
				run("API server outage", testOutage)
				run("datastore", testDatastore)
				run("specs", testChosenSpecs)
				run("RBAC", testRBAC)
				run("uninstall", testUninstall)
			})
		}
	}
}
