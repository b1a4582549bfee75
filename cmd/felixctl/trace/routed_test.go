package trace

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/policy/oracle"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/truthtable"
)

// routedTo returns the subnets of a node, /24 and /120, and the neighbours that lead to its peers without a tunnel: each peer of
// the subnet itself, the router for others.
func routedTo(m *control.Model) (subnets []netip.Prefix, hops []model.Hop) {
	if m.Settings.TrafficMode == model.Encap {
		return nil, nil
	}
	length := map[model.Family]int{model.IPv4: 24, model.IPv6: 120}
	for _, n := range m.Nodes {
		for _, a := range n.Addresses {
			if n.Name == m.Node {
				subnets = append(subnets, netip.PrefixFrom(a, length[model.FamilyOf(a)]))
			}
		}
	}
	router := model.MAC{2, 0, 0, 0, 0, 1}
	for _, n := range m.Nodes {
		for _, a := range n.Addresses {
			h := model.Hop{Address: a, Interface: "eth0", Neighbour: a, MAC: model.MAC{2, 0, 0, 0, 1, n.Name[len(n.Name)-1]}}
			near := slices.ContainsFunc(subnets, func(s netip.Prefix) bool { return s.Contains(a) })
			if !near {
				h.Neighbour, h.MAC = netip.MustParseAddr("192.168.50.1"), router
			}
			if n.Name != m.Node {
				hops = append(hops, h)
			}
		}
	}
	return subnets, hops
}

// routedSites renders a cluster for a backend, each node in its mode.
func routedSites(t testing.TB, c *oracle.Cluster, backend string, mode func(node string) model.TrafficMode) []*Site {
	t.Helper()
	var sites []*Site
	for _, n := range c.Nodes {
		sites = append(sites, siteWith(t, c, n.Name, &control.Model{
			Node: n.Name, Backend: backend, Settings: control.Settings{Bridge: "br-int", Masquerade: true, TrafficMode: mode(n.Name)},
		}))
	}
	return sites
}

// behindRouter moves pods to a third node, in another subnet.
func behindRouter(s truthtable.Step) truthtable.Step {
	near, far := netip.MustParsePrefix("10.10.0.0/25"), netip.MustParsePrefix("10.10.0.128/25")
	s.Nodes = append(slices.Clone(s.Nodes), truthtable.Node{Name: "node3", IP: netip.MustParseAddr("192.168.60.13"), PodCIDR: far})
	s.Nodes[0].PodCIDR = near
	s.Pods = slices.Clone(s.Pods)
	for i := range s.Pods {
		if far.Contains(s.Pods[i].IP) {
			s.Pods[i].Node = "node3"
		}
	}
	return s
}

// TestRoutedTruthTables follows every probe of the sample without a tunnel between nodes of one subnet. A path between nodes has a step for
// the table that believes its source, and one for the tunnel only to the third node in mode hybrid.
func TestRoutedTruthTables(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	for i, step := range readSteps(t, "../../../test/truthtable/testdata/sample.jsonl") {
		if i%3 != 0 {
			continue
		}
		step := behindRouter(step)
		for _, backend := range backends() {
			for _, mode := range []model.TrafficMode{model.NoEncap, model.Hybrid} {
				for _, family := range model.Families() {
					t.Run(step.String()+"/"+backend+"/"+mode.String()+"/IPv"+family.String(), func(t *testing.T) {
						o := step.Objects(family)
						c := &oracle.Cluster{Nodes: o.Nodes, Namespaces: o.Namespaces, Pods: o.Pods, Policies: o.Policies}
						sites := routedSites(t, c, backend, func(string) model.TrafficMode { return mode })
						compare(t, &step, sites, family)
						if i == 0 {
							passes(t, &step, sites, family, mode)
						}
					})
				}
			}
		}
	}
}

// passes checks the way of allowed packets from node1 to both others.
func passes(t *testing.T, step *truthtable.Step, sites []*Site, f model.Family, mode model.TrafficMode) {
	t.Helper()
	for to, tunnelled := range map[string]bool{"x/c": false, "z/a": mode == model.Hybrid} {
		path, err := Follow(packetOf(t, step, truthtable.Probe{From: "y/a", To: to, Protocol: "TCP", Port: 80}, f), sites, nil)
		if err != nil || !path.Fate.Through() {
			t.Errorf("to %s: %v, %v", to, path, err)
			continue
		}
		text := stepsText(path)
		if strings.Contains(text, "| tunnel |") != tunnelled || strings.Contains(text, "felixlike-senders | chain senders | iif eth0") == tunnelled || strings.Contains(text, "out by eth0") == tunnelled {
			t.Errorf("to %s in mode %s:\n%s", to, mode, text)
		}
	}
}

// TestRoutedSenderIsNotBelieved: a packet of a peer whose neighbour is not known is dropped, and so is one between nodes of different modes.
func TestRoutedSenderIsNotBelieved(t *testing.T) {
	step, _ := first(t)
	routed := behindRouter(*step)
	o := routed.Objects(model.IPv4)
	c := &oracle.Cluster{Nodes: o.Nodes, Namespaces: o.Namespaces, Pods: o.Pods}
	p := packetOf(t, &routed, truthtable.Probe{From: "y/a", To: "x/c", Protocol: "TCP", Port: 80}, model.IPv4)
	for _, backend := range backends() {
		sites := routedSites(t, c, backend, func(string) model.TrafficMode { return model.NoEncap })
		sites[1].Hops = nil
		if path, err := Follow(p, sites, nil); err != nil || path.Fate != Dropped || !strings.Contains(path.At, "chain senders") {
			t.Errorf("%s: a neighbour that is not known: %v, %v", backend, path, err)
		}
		for _, from := range []model.TrafficMode{model.Encap, model.NoEncap} {
			sites := routedSites(t, c, backend, func(node string) model.TrafficMode {
				if (node == "node1") == (from == model.Encap) {
					return model.Encap
				}
				return model.NoEncap
			})
			if path, err := Follow(p, sites, nil); err != nil || path.Fate != Dropped || !strings.HasPrefix(path.At, "node2") {
				t.Errorf("%s: from a node in mode %s to one in another: %v, %v", backend, from, path, err)
			}
		}
	}
}

// TestNoWayIsAnError: where no route leads to the pods of a node, the tracer does not guess.
func TestNoWayIsAnError(t *testing.T) {
	step, _ := first(t)
	o := step.Objects(model.IPv6)
	for _, n := range o.Nodes {
		n.Status.Addresses = slices.DeleteFunc(n.Status.Addresses, func(a corev1.NodeAddress) bool {
			return n.Name == "node2" && strings.Contains(a.Address, ":")
		})
	}
	c := &oracle.Cluster{Nodes: o.Nodes, Namespaces: o.Namespaces, Pods: o.Pods}
	sites := routedSites(t, c, config.NFTables, func(string) model.TrafficMode { return model.NoEncap })
	p := packetOf(t, step, truthtable.Probe{From: "y/a", To: "x/c", Protocol: "TCP", Port: 80}, model.IPv6)
	if _, err := Follow(p, sites, nil); err == nil || !strings.Contains(err.Error(), "has no way to node node2 by IPv6") {
		t.Errorf("%v", err)
	}
}
