package trace

import (
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/felixlike/felixlike/felixlike/policy/oracle"
	"github.com/felixlike/felixlike/internal/seeded"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/policytest"
)

// TestTracersAgree: over random clusters and packets, the desired state of each backend
// gives each packet the policies' verdict.
func TestTracersAgree(t *testing.T) {
	seeded.Check(t, func(rt *rapid.T) {
		c := policytest.TieredCluster(rt)
		c.Pods = slices.DeleteFunc(c.Pods, func(p *corev1.Pod) bool { return p.Status.Phase != corev1.PodRunning })
		packets := policytest.Packets(rt, c)
		for _, backend := range backends() {
			sites := sitesOf(t, c, backend)
			for _, one := range packets {
				if inUse(sites, one.Source) && inUse(sites, one.Destination) && here(sites, one) {
					agree(rt, c, sites, backend, Packet{Source: one.Source, Destination: one.Destination, Protocol: one.Protocol, Port: one.Port})
				}
			}
		}
	})
}

func agree(rt *rapid.T, c *oracle.Cluster, sites []*Site, backend string, p Packet) {
	judged, err := Judge(p, c, nil)
	if err != nil {
		rt.Fatal(err)
	}
	path, err := Follow(p, sites, nil)
	if err != nil {
		rt.Fatalf("%s: %s: %v", backend, p, err)
	}
	if what := Compare(judged, path); what != "" {
		rt.Fatalf("%s: %s: %s\n%s", backend, p, what, stepsText(path))
	}
}

// inUse reports whether an address may be in use. Packets to an address of a pod
// prefix that no pod has are dropped under any policies.
func inUse(sites []*Site, a netip.Addr) bool {
	inside := false
	for _, s := range sites {
		if s.attachment(a) != nil || s.node().Gateway(model.FamilyOf(a)) == a {
			return true
		}
		inside = inside || s.podNetwork(a) != nil
	}
	return !inside
}

// here reports whether one of the ends is of the cluster.
func here(sites []*Site, p oracle.Packet) bool {
	return slices.ContainsFunc(sites, func(s *Site) bool { return s.owns(p.Source) || s.owns(p.Destination) })
}
