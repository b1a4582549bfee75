package wanted_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/felixlike/felixlike/cmd/felixctl/dump"
	"github.com/felixlike/felixlike/cmd/felixctl/dump/wanted"
	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/test/bench/workload"
	"github.com/felixlike/felixlike/test/tablestest"
)

// maxVisits bounds the kernel's mean number of visits per rule when it validates the
// programmed rules. In the reference workload each policy is in ten lists of different
// pods.
const maxVisits = 4

// The cost of changing one rule grows with the number of programmed rules, not with the
// product of linked chains, also on kernels that validate by following every path.
func TestPathsAreLinear(t *testing.T) {
	for name, m := range map[string]*control.Model{
		workload.W1:     w1(t),
		"shared policy": sharedPolicy(1000, 1000),
		"replicas":      replicas(1000),
		"tiers":         tiers(1000),
	} {
		for _, backend := range []string{config.NFTables, config.IPTables} {
			s, err := wanted.Of(m, backend)
			if err != nil {
				t.Fatal(err)
			}
			for _, table := range s.Tables {
				chains, elements := walked(table)
				rules, visits := tablestest.Walks(chains, elements)
				t.Logf("%s, %s %s %s: %d rules, %d visits, %.1f a rule", name, backend, table.Family, table.Name, rules, visits, float64(visits)/float64(rules))
				if visits > maxVisits*rules {
					t.Errorf("%s, %s %s %s: the kernel visits %d rules %d times, at most %d times each is wanted", name, backend, table.Family, table.Name, rules, visits, maxVisits)
				}
			}
		}
	}
}

// walked returns the chains of a table, and the verdicts of its maps.
func walked(table *dump.Table) ([]tables.Chain, map[string][]tables.Action) {
	var chains []tables.Chain
	for _, c := range table.Chains {
		chain := tables.Chain{Name: c.Name}
		if c.Hook != nil {
			chain.Hook = &tables.Hook{}
		}
		for _, r := range c.Rules {
			chain.Rules = append(chain.Rules, r.Rule)
		}
		chains = append(chains, chain)
	}
	elements := map[string][]tables.Action{}
	for _, s := range table.Sets {
		if s.Verdicts {
			for _, e := range s.Elements {
				elements[s.Name] = append(elements[s.Name], e.Verdict)
			}
		}
	}
	return chains, elements
}

// w1 is the model of the benchmark's reference workload.
func w1(t *testing.T) *control.Model {
	t.Helper()
	for _, p := range workload.Profiles() {
		if p.Name == workload.W1 {
			m, _, err := wanted.FromEvents(workload.New(p).Events(), workload.Node, nil)
			if err != nil {
				t.Fatal(err)
			}
			return m
		}
	}
	t.Fatal("there is no reference workload")
	return nil
}

// node returns the model of a node with no pods.
func node() *control.Model {
	return &control.Model{Node: "n", Nodes: []*model.Node{{
		Name: "n", Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.1")},
		PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.10.0.0/16"), netip.MustParsePrefix("fd00:10::/64")},
	}}}
}

// addPod adds the i-th pod, under the same policies in both directions.
func addPod(m *control.Model, i int, applied model.Applied) {
	id := model.PodID{Namespace: "x", Name: fmt.Sprintf("p%04d", i)}
	four, six := netip.MustParseAddr("10.10.0.0").As4(), netip.MustParseAddr("fd00:10::").As16()
	four[2], four[3], six[14], six[15] = byte((i+2)>>8), byte(i+2), byte((i+2)>>8), byte(i+2)
	addresses := []netip.Addr{netip.AddrFrom4(four), netip.AddrFrom16(six)}
	m.Endpoints = append(m.Endpoints, &model.Endpoint{ID: id, Ingress: applied, Egress: applied})
	m.Pods = append(m.Pods, control.Pod{ID: id, Addresses: addresses})
	m.Attachments = append(m.Attachments, control.Attachment{
		Pod: id, Interface: fmt.Sprintf("fx-%d", i), OFPort: uint32(100 + i), MAC: "02:00:00:00:00:01", Addresses: addresses,
	})
}

// addPolicy adds a policy with as many rules in both directions, all of them for ports.
func addPolicy(m *control.Model, tier model.Tier, name string, rules int) model.PolicyID {
	id := model.PolicyID{Tier: tier, Name: name}
	if tier == model.TierNetworkPolicy {
		id.Namespace = "x"
	}
	p := &model.Policy{ID: id}
	for i := range rules {
		port := model.PortRange{Protocol: model.TCP, First: uint16(1000 + i), Last: uint16(1000 + i)}
		for _, d := range model.Directions() {
			r := model.Rule{Name: fmt.Sprintf("%s[%d]", d, i), Action: model.Allow, AnyPeer: true, Ports: []model.PortRange{port}}
			if d == model.Egress {
				p.Egress = append(p.Egress, r)
			} else {
				p.Ingress = append(p.Ingress, r)
			}
		}
	}
	m.Policies = append(m.Policies, p)
	return id
}

// sharedPolicy is pods of which each has a policy of its own, and all have one of
// many rules.
func sharedPolicy(pods, rules int) *control.Model {
	m := node()
	all := addPolicy(m, model.TierNetworkPolicy, "all", rules)
	for i := range pods {
		own := addPolicy(m, model.TierNetworkPolicy, fmt.Sprintf("own-%04d", i), 1)
		addPod(m, i, model.Applied{NetworkPolicies: []model.PolicyID{all, own}})
	}
	return m
}

// replicas is pods under the same policy.
func replicas(pods int) *control.Model {
	m := node()
	id := addPolicy(m, model.TierNetworkPolicy, "app", 10)
	for i := range pods {
		addPod(m, i, model.Applied{NetworkPolicies: []model.PolicyID{id}})
	}
	return m
}

// tiers is pods of which each has a policy of its own, between admin policies and
// below a baseline that all have; every other pod has the baseline in its place.
func tiers(pods int) *control.Model {
	m := node()
	var admin []model.PolicyID
	for i := range 20 {
		admin = append(admin, addPolicy(m, model.TierAdmin, fmt.Sprintf("admin-%02d", i), 10))
	}
	baseline := addPolicy(m, model.TierBaseline, "default", 10)
	for i := range pods {
		a := model.Applied{Admin: admin, Baseline: []model.PolicyID{baseline}}
		if i%2 == 0 {
			a.NetworkPolicies = []model.PolicyID{addPolicy(m, model.TierNetworkPolicy, fmt.Sprintf("own-%04d", i), 10)}
		}
		addPod(m, i, a)
	}
	return m
}
