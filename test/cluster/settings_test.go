package cluster

import (
	"os"
	"strconv"
	"strings"
	"testing"
)

// Settings, by environment variables. Lists have spaces between their words.
const (
	// backendsVariable lists the backends to test; default: nftables.
	backendsVariable = "FELIXLIKE_CLUSTER_BACKENDS"
	// proxiesVariable lists the modes of kube-proxy: iptables (default), nftables, or
	// none for TestConformance alone: the agents serve Services.
	proxiesVariable = "FELIXLIKE_CLUSTER_PROXIES"
	// suiteVariable is "quick" (the default), "full", "conformance": all upstream
	// specs, with a table of results, or "clusterpolicies": upstream's suite of
	// ClusterNetworkPolicy. With "none" no cluster is brought up.
	suiteVariable = "FELIXLIKE_CLUSTER_SUITE"
	// parallelVariable is the number of upstream specs that run at a time.
	parallelVariable = "FELIXLIKE_CLUSTER_PARALLEL"
	// releasesVariable names a folder with the files of the releases v0.1.0 and v0.1.1, each in a
	// folder of its own, as make release writes them. By default TestRelease builds both, for this
	// machine's architecture alone.
	releasesVariable = "FELIXLIKE_RELEASES"
	// keepVariable names a file: while it exists, a cluster on which a test has
	// failed is left up, to look at.
	keepVariable = "FELIXLIKE_CLUSTER_KEEP"
)

// Suites.
const (
	none        = "none"
	quick       = "quick"
	full        = "full"
	conformance = "conformance"
	// clusterPolicies is the conformance suite of network-policy-api.
	clusterPolicies = "clusterpolicies"
)

// words returns the words of a variable, or else the default's.
func words(variable, otherwise string) []string {
	if all := strings.Fields(os.Getenv(variable)); len(all) > 0 {
		return all
	}
	return strings.Fields(otherwise)
}

// suite returns the suite to run.
func suite() string { return words(suiteVariable, quick)[0] }

// onlyFull skips a test in the quick suite.
func onlyFull(t *testing.T) {
	t.Helper()
	if suite() == quick {
		t.Skipf("not in the quick suite: set %s=full", suiteVariable)
	}
}

// parallel returns the number of upstream specs to run at a time.
func parallel(t *testing.T) int {
	t.Helper()
	n, err := strconv.Atoi(words(parallelVariable, "4")[0])
	if err != nil || n < 1 {
		t.Fatalf("%s: not a number of specs: %q", parallelVariable, os.Getenv(parallelVariable))
	}
	return n
}
