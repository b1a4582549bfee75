// Package networkpolicyapi runs the conformance suite of network-policy-api against the
// cluster of KUBECONFIG. It is a module of its own, so that felixlike does not
// depend on what the suite depends on. TestClusterPolicies in the folder above runs it.
package networkpolicyapi

import (
	"flag"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/config"
	"sigs.k8s.io/yaml"

	policy "sigs.k8s.io/network-policy-api/apis/v1alpha2"
	conformance "sigs.k8s.io/network-policy-api/conformance/apis/v1alpha1"
	"sigs.k8s.io/network-policy-api/conformance/tests"
	timeouts "sigs.k8s.io/network-policy-api/conformance/utils/config"
	"sigs.k8s.io/network-policy-api/conformance/utils/suite"
)

var (
	reportFile  = flag.String("report", "", "file to write the suite's report to")
	version     = flag.String("version", "", "version of felixlike, for the report")
	information = flag.String("information", "", "what the report says of the run")
)

// Times of a probe. Upstream's request timeout is 3 s, and its interval 500 ms: every denied
// probe would take 6 s.
const (
	requestTimeout = time.Second
	interval       = 100 * time.Millisecond
)

// TestClusterNetworkPolicy runs all tests of the suite, with all its features.
func TestClusterNetworkPolicy(t *testing.T) {
	if *reportFile == "" {
		t.Skip("no -report: TestClusterPolicies in the folder above runs this on a cluster")
	}
	s := newSuite(t)
	s.Setup(t)
	if err := s.Run(t, tests.ConformanceTests); err != nil {
		t.Fatal(err)
	}
	report, err := s.Report()
	if err != nil {
		t.Fatal(err)
	}
	write(t, report)
}

func newSuite(t *testing.T) *suite.ConformanceProfileTestSuite {
	t.Helper()
	api, err := config.GetConfig()
	if err != nil {
		t.Fatal(err)
	}
	objects, err := client.New(api, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := policy.Install(objects.Scheme()); err != nil {
		t.Fatal(err)
	}
	clients, err := kubernetes.NewForConfig(api)
	if err != nil {
		t.Fatal(err)
	}
	s, err := suite.NewConformanceProfileTestSuite(suite.ConformanceProfileOptions{
		Options: suite.Options{
			Client: objects, ClientSet: clients, KubeConfig: *api,
			SupportedFeatures: suite.ExperimentalFeatures.Clone(),
			TimeoutConfig:     timeouts.TimeoutConfig{RequestTimeout: requestTimeout, PokeInterval: interval},
		},
		Implementation: conformance.Implementation{
			Organization: "felixlike", Project: "felixlike", URL: "https://github.com/felixlike/felixlike",
			Version: *version, Contact: []string{"https://github.com/felixlike/felixlike/issues"},
			AdditionalInformation: *information,
		},
		ConformanceProfiles: suite.ParseConformanceProfiles(string(suite.CNPConformanceProfileName)),
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// write writes the report, with its lists in a stable order.
func write(t *testing.T, report *conformance.ConformanceReport) {
	t.Helper()
	for _, p := range report.ProfileReports {
		slices.Sort(p.Standard.FailedTests)
		if p.Experimental != nil {
			slices.Sort(p.Experimental.FailedTests)
			slices.SortFunc(p.Experimental.SupportedFeatures, strings.Compare)
		}
	}
	text, err := yaml.Marshal(report)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(*reportFile, text, 0o644); err != nil {
		t.Fatal(err)
	}
}
