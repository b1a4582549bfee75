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
	"github.com/felixlike/felixlike/ovsfwd/flowtext"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
	"github.com/felixlike/felixlike/test/policytest"
)

// TestTracersAgree: over random clusters and packets, the desired state of each backend
// gives each packet the policies' verdict.
func TestTracersAgree(t *testing.T) {
	crowded := 0
	seeded.Check(t, func(rt *rapid.T) {
		c := policytest.TieredCluster(rt)
		policytest.Crowd(rt, c)
		c.Pods = slices.DeleteFunc(c.Pods, func(p *corev1.Pod) bool { return p.Status.Phase != corev1.PodRunning })
		packets := policytest.Packets(rt, c)
		for _, backend := range backends() {
			sites := sitesOf(t, c, backend)
			if slices.ContainsFunc(sites, (*Site).hasPortSets) {
				crowded++
			}
			for _, one := range packets {
				if inUse(sites, one.Source) && inUse(sites, one.Destination) && here(sites, one) {
					agree(rt, c, sites, backend, Packet{Source: one.Source, Destination: one.Destination, Protocol: one.Protocol, Port: one.Port})
				}
			}
		}
	})
	if crowded == 0 {
		t.Error("no cluster has so many rules of equal ports that backend openflow gives the ports a bit")
	}
}

// hasPortSets reports whether the switch has flows that match the bit of a set of ports.
func (s *Site) hasPortSets() bool {
	return s.Flows != nil && slices.ContainsFunc(s.Flows.tables[pipeline.TableIngress], func(t *subtable) bool {
		return slices.ContainsFunc(t.fields, func(f flowtext.Term) bool { return f.Field == openflow.Reg7 })
	})
}

// TestTracersAgreeAboutNodes: the same with policies for nodes. Packets have a node at one end at least; without a pod, their connections are in each state.
func TestTracersAgreeAboutNodes(t *testing.T) {
	verdicts := map[bool]int{}
	seeded.Check(t, func(rt *rapid.T) {
		c := policytest.TieredCluster(rt)
		policytest.HostPolicies(rt, c)
		c.Pods = slices.DeleteFunc(c.Pods, func(p *corev1.Pod) bool { return p.Status.Phase != corev1.PodRunning })
		packets := policytest.Packets(rt, c)
		conn := rapid.SampledFrom(Conns()).Draw(rt, "connection")
		for _, backend := range backends() {
			sites := sitesOf(t, c, backend)
			for _, one := range packets {
				p := Packet{Source: one.Source, Destination: one.Destination, Protocol: one.Protocol, Port: one.Port, Conn: conn}
				if p.Conn == Reopened && p.Protocol != model.TCP || sites[0].podNetwork(p.Source) != nil || sites[0].podNetwork(p.Destination) != nil {
					p.Conn = New // pods have tests of their own for the other states
				}
				node := slices.ContainsFunc(sites, func(s *Site) bool { return s.Own(p.Source) || s.Own(p.Destination) })
				if node && inUse(sites, one.Source) && inUse(sites, one.Destination) {
					verdicts[agree(rt, c, sites, backend, p)]++
				}
			}
		}
	})
	if verdicts[true] == 0 || verdicts[false] == 0 {
		t.Errorf("one-sided: %v", verdicts)
	}
}

func agree(rt *rapid.T, c *oracle.Cluster, sites []*Site, backend string, p Packet) (through bool) {
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
	return path.Fate.Through()
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
