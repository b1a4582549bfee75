package cluster

import (
	"net/netip"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/felixlike/felixlike/test/cluster/kubelab"
	"github.com/felixlike/felixlike/test/cluster/results"
)

// policySpecs are all upstream specs of NetworkPolicy.
const policySpecs = `\[sig-network\] Netpol`

// networkSpecs are the conformance specs of sig-network.
const networkSpecs = `\[sig-network\].*\[Conformance\]`

// serviceSpecs are the specs of Services, of all that leads to them, and of both families.
const serviceSpecs = `\[sig-network\] (Services|Conntrack|Traffic Distribution|Networking Granular Checks: Services|EndpointSlice|HostPort|DNS|\[Feature:IPv6DualStack\])`

// serviceSkips are those of them that are not run: they restart components as pods, need a gate or a cloud, configure the DNS server of the cluster,
// or want a node to be seen under its own address through a tunnel, where it has that of its gateway port.
const serviceSkips = `\[Disruptive\]|OffByDefault|Provider:GCE|DNS configMap|should implement NodePort and HealthCheckNodePort correctly`

// TestConformance runs the upstream specs on each backend with each mode of
// kube-proxy, and those of Services without it, and writes the results below docs/results/conformance.
func TestConformance(t *testing.T) {
	if suite() != conformance {
		t.Skipf("two hours and a half: set %s=%s", suiteVariable, conformance)
	}
	for _, backend := range words(backendsVariable, "nftables iptables openflow") {
		for _, proxy := range words(proxiesVariable, "iptables nftables none") {
			t.Run(backend+"/"+proxy, func(t *testing.T) {
				s := newSiteForSpecs(t, backend, proxy)
				if !t.Run("install", func(t *testing.T) { testInstall(t, s) }) {
					return
				}
				skip, _ := skipped()
				s.prepare(t)
				if proxy == none {
					s.record(t, "services", s.specs(t, serviceSpecs, strings.Trim(skip+"|"+serviceSkips, "|")))
					return
				}
				t.Run("policy", func(t *testing.T) { s.record(t, "policy", s.specs(t, policySpecs, skip)) })
				t.Run("network", func(t *testing.T) { s.record(t, "network", s.specs(t, networkSpecs, skip)) })
			})
		}
	}
}

// newSiteForSpecs brings a cluster up. Without kube-proxy it has three nodes: as many zones are needed by the specs that find the nearest endpoint.
func newSiteForSpecs(t *testing.T, backend, proxy string) *site {
	t.Helper()
	if proxy != none {
		return newSite(t, backend, proxy)
	}
	k := findKit(t)
	image, err := imageOf()
	if err != nil {
		t.Fatal(err)
	}
	return newSiteOf(t, k, backend, kubelab.Config{Nodes: 3, Proxy: proxy, APIServerFlags: auditFlags(t, k)}, image)
}

// prepare gives the cluster what specs need of it: DNS, ways of the API server to pods, and a zone for each node.
func (s *site) prepare(t *testing.T) {
	t.Helper()
	if err := s.StartDNS(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.leadControlPlane(t)
	for _, node := range s.Nodes() {
		s.kubectl(t, "label", "node", node, corev1.LabelTopologyZone+"=zone-"+node)
	}
}

// record writes the results of specs.
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
	if err := r.Save(filepath.Join(docs, "results", "conformance")); err != nil {
		t.Fatal(err)
	}
	if err := results.Update(filepath.Join(docs, "results", "conformance.md"), filepath.Join(docs, "results", "conformance")); err != nil {
		t.Fatal(err)
	}
	t.Logf("%s: %d specs, %d failed", kind, len(specs), failed)
}

// leadControlPlane gives the API server, which runs on no node, routes to the pods: it
// is a proxy to them.
func (s *site) leadControlPlane(t *testing.T) {
	t.Helper()
	var nodes corev1.NodeList
	if err := s.Get(t.Context(), &nodes, "nodes"); err != nil {
		t.Fatal(err)
	}
	for _, n := range nodes.Items {
		for _, cidr := range n.Spec.PodCIDRs {
			for _, a := range n.Status.Addresses {
				via, err := netip.ParseAddr(a.Address)
				if a.Type != corev1.NodeInternalIP || err != nil || netip.MustParsePrefix(cidr).Addr().Is4() != via.Is4() {
					continue
				}
				cmd := exec.Command("ip", "-n", kubelab.ControlPlane, "route", "replace", cidr, "via", a.Address)
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
				}
			}
		}
	}
}
