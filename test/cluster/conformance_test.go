package cluster

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/test/cluster/kubelab"
	"github.com/felixlike/felixlike/test/cluster/results"
)

// policySpecs are all upstream specs of NetworkPolicy.
const policySpecs = `\[sig-network\] Netpol`

// networkSpecs are the conformance specs of sig-network; those of DNS need a DNS
// server in the cluster, which kubelab does not have.
const networkSpecs = `\[sig-network\].*\[Conformance\]`

// TestConformance runs the upstream specs on each backend with each mode of
// kube-proxy, and writes down what came of it below docs/conformance.
func TestConformance(t *testing.T) {
	if suite() != conformance {
		t.Skipf("hours: set %s=%s", suiteVariable, conformance)
	}
	for _, backend := range words(backendsVariable, "nftables iptables openflow") {
		for _, proxy := range words(proxiesVariable, "iptables nftables") {
			t.Run(backend+"/"+proxy, func(t *testing.T) {
				s := newSite(t, backend, proxy)
				if !t.Run("install", s.testInstall) {
					return
				}
				skip, _ := skipped()
				t.Run("policy", func(t *testing.T) { s.record(t, "policy", s.specs(t, policySpecs, skip)) })
				t.Run("network", func(t *testing.T) {
					s.record(t, "network", s.specs(t, networkSpecs, strings.Trim(skip+"|DNS", "|")))
				})
			})
		}
	}
}

// record writes down what specs came to.
func (s *site) record(t *testing.T, kind string, specs []kubelab.Spec) {
	t.Helper()
	r := results.Run{Kind: kind, Backend: s.backend, Proxy: s.proxy}
	failed := 0
	for _, spec := range specs {
		outcome := results.Passed
		if spec.Failure != "" {
			outcome = "failed"
			failed++
		}
		r.Specs = append(r.Specs, results.Spec{Name: spec.Name, Outcome: outcome, Took: spec.Took})
	}
	docs := filepath.Join(s.kit.root, "docs")
	if err := r.Save(filepath.Join(docs, "conformance")); err != nil {
		t.Fatal(err)
	}
	if err := results.Update(filepath.Join(docs, "CONFORMANCE.md"), filepath.Join(docs, "conformance")); err != nil {
		t.Fatal(err)
	}
	t.Logf("%s: %d specs, %d failed", kind, len(specs), failed)
}
