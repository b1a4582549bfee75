package cluster

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/felixlike/felixlike/test/cluster/kubelab"
)

// suiteImageName is the image that the pods of network-policy-api's suite run.
const suiteImageName = "registry.k8s.io/e2e-test-images/agnhost:2.45"

// suiteTime bounds one run of the suite.
const suiteTime = 40 * time.Minute

// TestClusterPolicies runs the conformance suite of network-policy-api on each backend, and
// writes the results and the suite's own report below docs/results/conformance.
func TestClusterPolicies(t *testing.T) {
	if suite() != clusterPolicies {
		t.Skipf("half an hour: set %s=%s", suiteVariable, clusterPolicies)
	}
	for _, backend := range words(backendsVariable, "nftables iptables openflow") {
		for _, proxy := range words(proxiesVariable, "iptables") {
			t.Run(backend+"/"+proxy, func(t *testing.T) {
				s := newSite(t, backend, proxy)
				if !t.Run("install", func(t *testing.T) { testInstall(t, s) }) {
					return
				}
				t.Run("suite", func(t *testing.T) { s.record(t, "clusterpolicy", clusterPolicySuite(t, s)) })
			})
		}
	}
}

// clusterPolicySuite runs the suite. Each of its tests that does not pass fails the test.
func clusterPolicySuite(t *testing.T, s *site) []kubelab.Spec {
	t.Helper()
	archive := suiteImage(t, s)
	s.onNodes(t, func(node string) error { return s.Import(t.Context(), node, archive) })
	program := filepath.Join(t.TempDir(), "suite")
	build := exec.CommandContext(t.Context(), "go", "test", "-c", "-o", program, ".")
	build.Dir = "networkpolicyapi"
	output(t, build)
	version := output(t, exec.CommandContext(t.Context(), filepath.Join(s.kit.root, "deploy", "version")))
	report := filepath.Join(s.kit.root, "docs", "results", "conformance", "clusterpolicy-"+s.backend+"-"+s.proxy+".yaml")

	ctx, cancel := context.WithTimeout(t.Context(), suiteTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, "ip", "netns", "exec", kubelab.ControlPlane, program, "-test.v", "-test.timeout", "0",
		"-report", report, "-version", strings.TrimSpace(version), "-information", s.runInformation())
	cmd.Env = append(os.Environ(), "KUBECONFIG="+s.Kubeconfig())
	log, err := os.Create(filepath.Join(s.kit.Work(), "clusterpolicies.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	err = cmd.Run()
	text, readErr := os.ReadFile(log.Name())
	if readErr != nil {
		t.Fatal(readErr)
	}
	specs := parseTests(string(text))
	failed := 0
	for _, spec := range specs {
		t.Logf("%6.1f s  %s %s", spec.Took.Seconds(), spec.Name, spec.Failure)
		if spec.Failure != "" {
			failed++
		}
	}
	if err != nil || len(specs) == 0 || failed > 0 {
		t.Errorf("%d tests, %d without success (%v):\n%s", len(specs), failed, err, text)
	}
	return specs
}

// runInformation says what a reader of the report has to know of the run.
func (s *site) runInformation() string {
	text := fmt.Sprintf("backend %s, kube-proxy %s; docs/results/conformance.md says how it was run", s.backend, s.proxy)
	if !hasSCTP() {
		text += "; the kernel has no SCTP sockets: SCTP is INIT and INIT ACK over raw sockets"
	}
	return text
}

// suiteImage builds the image of the suite's pods: upstream's program, and the stand-in that
// starts it.
func suiteImage(t *testing.T, s *site) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "agnhost")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./agnhost")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	output(t, build)
	archive := program + ".tar"
	err := s.kit.Image(t.Context(), archive, suiteImageName, program+":/agnhost", program+":/bin/bash", s.kit.Bin("agnhost")+":/upstream/agnhost")
	if err != nil {
		t.Fatal(err)
	}
	return archive
}

// output runs a command, which must succeed.
func output(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	text, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, text)
	}
	return string(text)
}

// testLine is the line with which go test ends a test that is directly below the only
// one at the top.
var testLine = regexp.MustCompile(`(?m)^    --- (PASS|FAIL|SKIP): [^/\s]+/([^/\s]+) \(([0-9.]+s)\)$`)

// parseTests returns the tests in the output of go test -v.
func parseTests(text string) []kubelab.Spec {
	var specs []kubelab.Spec
	for _, m := range testLine.FindAllStringSubmatch(text, -1) {
		spec := kubelab.Spec{Name: m[2]}
		spec.Took, _ = time.ParseDuration(m[3])
		if m[1] != "PASS" {
			spec.Failure = strings.ToLower(m[1])
		}
		specs = append(specs, spec)
	}
	return specs
}

func TestResultsOfTheSuite(t *testing.T) {
	const text = `=== RUN   TestClusterNetworkPolicy
    apply.go:150: Creating egress-udp ClusterNetworkPolicy
--- FAIL: TestClusterNetworkPolicy (20.00s)
    --- PASS: TestClusterNetworkPolicy/CNPAdminTierEgressUDP (12.50s)
        --- PASS: TestClusterNetworkPolicy/CNPAdminTierEgressUDP/Should_support_an_'allow-egress'_policy (3.01s)
    --- FAIL: TestClusterNetworkPolicy/CNPAdminTierGressRules (7.00s)
    --- SKIP: TestClusterNetworkPolicy/CNPBaselineTierIngressUDP (0.00s)
FAIL
`
	want := []kubelab.Spec{
		{Name: "CNPAdminTierEgressUDP", Took: 12500 * time.Millisecond},
		{Name: "CNPAdminTierGressRules", Took: 7 * time.Second, Failure: "fail"},
		{Name: "CNPBaselineTierIngressUDP", Failure: "skip"},
	}
	if diff := cmp.Diff(want, parseTests(text)); diff != "" {
		t.Error(diff)
	}
}
