package cluster

import (
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/test/cluster/kubelab"
)

// chosenSpecs are the few upstream specs of the quick suite: isolation, selectors
// across namespaces, ports, and egress.
const chosenSpecs = `Netpol NetworkPolicy between server and client should (support a 'default-deny-all' policy|enforce egress policy allowing traffic to a server in a different namespace based on PodSelector and NamespaceSelector)`

// testChosenSpecs runs a few upstream specs.
func testChosenSpecs(t *testing.T, s *site) {
	onlyFull(t) // their program takes minutes to build
	for _, spec := range s.specs(t, chosenSpecs, "") {
		t.Logf("%6.1f s  %s", spec.Took.Seconds(), spec.Name)
	}
}

// specs runs upstream specs; each that fails fails the test.
func (s *site) specs(t *testing.T, focus, skip string) []kubelab.Spec {
	t.Helper()
	specs, err := s.RunSpecs(t.Context(), focus, skip, parallel(t))
	if err != nil {
		t.Fatal(err)
	}
	if len(specs) == 0 {
		t.Fatalf("no spec is called %s", focus)
	}
	for _, spec := range specs {
		if spec.Failure != "" {
			t.Errorf("%s\n%s", spec.Name, spec.Failure)
		}
	}
	if t.Failed() {
		s.keepSpecLog(t)
	}
	return specs
}

// keepSpecLog leaves the log where the next run does not overwrite it.
func (s *site) keepSpecLog(t *testing.T) {
	t.Helper()
	text, err := os.ReadFile(s.SpecLog())
	if err != nil {
		t.Error(err)
		return
	}
	kept, err := os.CreateTemp("", "felixlike-specs-*.log")
	if err != nil {
		t.Error(err)
		return
	}
	defer kept.Close()
	if _, err := kept.Write(text); err != nil {
		t.Error(err)
	}
	t.Logf("the log of the specs is in %s", kept.Name())
}

// hasSCTP reports whether the kernel has SCTP sockets, which upstream's SCTP specs
// need in pods.
func hasSCTP() bool {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_SCTP)
	if err != nil {
		return false
	}
	return unix.Close(fd) == nil
}

// skipped are upstream specs that cannot run here, with the reason.
func skipped() (expression string, reasons []string) {
	var all []string
	skip := func(expression, reason string) {
		all = append(all, expression)
		reasons = append(reasons, reason)
	}
	if !hasSCTP() {
		skip("SCTP", "SCTP: the kernel has no SCTP sockets")
	}
	return strings.Join(all, "|"), reasons
}
