package policy_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/felixlike/felixlike/felixlike/antrea"
	"github.com/felixlike/felixlike/felixlike/policy"
	"github.com/felixlike/felixlike/felixlike/policy/compile"
	"github.com/felixlike/felixlike/model"
)

// newEgress builds an Egress of our own from the YAML of its spec.
func newEgress(t testing.TB, name, spec string) *antrea.NodeEgress {
	t.Helper()
	e := &antrea.NodeEgress{}
	e.Name = name
	if err := yaml.UnmarshalStrict([]byte(spec), &e.Spec); err != nil {
		t.Fatal(err)
	}
	return e
}

func addressedNode(name, podCIDR string, addresses ...string) *corev1.Node {
	n := &corev1.Node{Spec: corev1.NodeSpec{PodCIDRs: []string{podCIDR}}}
	n.Name = name
	for _, a := range addresses {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a})
	}
	return n
}

// TestEgress: an Egress has the addresses of the pods that it selects on all nodes, those of its own family, and
// follows their labels.
func TestEgress(t *testing.T) {
	s := newState(t)
	s.SetNamespace(newNamespace("shop team=blue"))
	s.SetNamespace(newNamespace("other"))
	s.SetNode(addressedNode("here", "10.0.0.0/24", "192.0.2.1"))
	s.SetNode(addressedNode("there", "10.0.1.0/24", "192.0.2.2"))
	s.SetPod(newPod("shop/a app=web", "10.0.0.2", "fd00::2"))
	s.SetPod(onNode(newPod("shop/b app=web", "10.0.1.2"), "there"))
	s.SetPod(newPod("other/c app=web", "10.0.0.3"))
	host := newPod("shop/host app=web", "192.0.2.1")
	host.Spec.HostNetwork = true
	s.SetPod(host)
	s.flush()
	s.SetAntrea(newEgress(t, "out", "{node: there, egressIP: 192.0.2.100, appliedTo: {namespaceSelector: {matchLabels: {team: blue}}, podSelector: {matchLabels: {app: web}}}}"))
	equal(t, "a new Egress", s.flush(), `egress out 192.0.2.100 at "there", assigned true, of [10.0.0.2 10.0.1.2]`)
	s.SetPod(newPod("shop/a app=db", "10.0.0.2", "fd00::2"))
	s.SetNamespace(newNamespace("other team=blue"))
	equal(t, "other labels", s.flush(), `egress out 192.0.2.100 at "there", assigned true, of [10.0.0.3 10.0.1.2]`)
	s.DeletePod(model.PodID{Namespace: "shop", Name: "b"})
	s.SetAntrea(newEgress(t, "out", "{node: here, egressIP: 'fd00::100', appliedTo: {podSelector: {}}}"))
	equal(t, "another object", s.flush(), `egress out fd00::100 at "here", assigned true, of [fd00::2]`)
	s.SetNode(addressedNode("there", "10.0.1.0/24", "192.0.2.2", "fd00::77"))
	s.flush()
	if again := s.flush(); again != "" || len(s.AntreaProblems()) > 0 {
		t.Errorf("without a change: %q, %v", again, s.AntreaProblems())
	}
	s.DeleteAntrea(antrea.ID{Kind: antrea.KindNodeEgress, Name: "out"})
	s.flush()
	if len(s.model.Egresses) > 0 {
		t.Errorf("left: %v", s.model.Egresses)
	}
}

// TestEgressFailsClosed: without an address that one node holds, packets of the selected pods are dropped, and the problem
// names object, field and reason.
func TestEgressFailsClosed(t *testing.T) {
	for _, c := range []struct{ spec, field, reason, pods string }{
		{"{node: here, egressIP: 192.0.2.100x, appliedTo: {podSelector: {matchLabels: {app: web}}}}", "spec.egressIP", "no address", "[10.0.0.2 fd00::2]"},
		{"{node: here, egressIP: 127.0.0.1, appliedTo: {podSelector: {matchLabels: {app: web}}}}", "spec.egressIP", "no address", "[10.0.0.2 fd00::2]"},
		{"{node: here, appliedTo: {podSelector: {matchLabels: {app: web}}}}", "spec.egressIP", "required without externalIPPool", "[10.0.0.2 fd00::2]"},
		{"{node: here, egressIP: 192.0.2.100, externalIPPool: p, appliedTo: {podSelector: {matchLabels: {app: web}}}}", "spec.node", "not with externalIPPool", "[10.0.0.2 fd00::2]"},
		{"{egressIP: 192.0.2.100, appliedTo: {podSelector: {matchLabels: {app: web}}}}", "spec.node", "required without nodeSelector and externalIPPool", "[10.0.0.2 fd00::2]"},
		{"{node: nowhere, egressIP: 192.0.2.100, appliedTo: {podSelector: {matchLabels: {app: web}}}}", "spec.egressIP", "no node nowhere", "[10.0.0.2 fd00::2]"},
		{"{node: here, egressIP: 192.0.2.2, appliedTo: {podSelector: {matchLabels: {app: web}}}}", "spec.egressIP", "an address of node there", "[10.0.0.2 fd00::2]"},
		{"{node: here, egressIP: 10.0.1.9, appliedTo: {podSelector: {matchLabels: {app: web}}}}", "spec.egressIP", "in the pod CIDRs of node there", "[10.0.0.2 fd00::2]"},
		{"{node: here, nodeSelector: {}, egressIP: 192.0.2.100, appliedTo: {podSelector: {matchLabels: {app: web}}}}", "spec.nodeSelector", "not with node", "[10.0.0.2 fd00::2]"},
		{"{nodeSelector: {matchLabels: {a: '*'}}, egressIP: 192.0.2.100, appliedTo: {podSelector: {matchLabels: {app: web}}}}", "spec.nodeSelector.matchLabels", "Invalid value", "[10.0.0.2 fd00::2]"},
		// From files there is no election.
		{"{nodeSelector: {}, egressIP: 192.0.2.100, appliedTo: {podSelector: {matchLabels: {app: web}}}}", "spec.egressIP", "name the node in spec.node", "[10.0.0.2 fd00::2]"},
		{"{node: here, egressIP: 192.0.2.100, appliedTo: {}}", "spec.appliedTo", "packets of all pods", "[10.0.0.2 10.0.0.3 fd00::2]"},
		{"{node: here, egressIP: 192.0.2.100, appliedTo: {group: g}}", "spec.appliedTo.group", "packets of all pods", "[10.0.0.2 10.0.0.3 fd00::2]"},
		{"{node: here, egressIP: 192.0.2.100, appliedTo: {podSelector: {matchExpressions: [{key: a, operator: Is}]}}}", "spec.appliedTo.podSelector.matchExpressions[0].operator", "packets of all pods", "[10.0.0.2 10.0.0.3 fd00::2]"},
	} {
		s := newState(t)
		s.SetNamespace(newNamespace("shop"))
		s.SetNode(addressedNode("here", "10.0.0.0/24", "192.0.2.1"))
		s.SetNode(addressedNode("there", "10.0.1.0/24", "192.0.2.2"))
		s.SetPod(newPod("shop/a app=web", "10.0.0.2", "fd00::2"))
		s.SetPod(newPod("shop/b app=db", "10.0.0.3"))
		s.flush()
		s.SetAntrea(newEgress(t, "out", c.spec))
		s.flush()
		if len(s.model.Egresses) != 1 || s.model.Egresses[0].Address.IsValid() || fmt.Sprint(s.model.Egresses[0].Pods) != c.pods {
			t.Errorf("%s: %+v, want pods %s without an address", c.spec, s.model.Egresses, c.pods)
		}
		found := s.AntreaProblems()
		if len(found) != 1 || found[0].Object.String() != "egress.felixlike.io/out" || found[0].Field != c.field || !strings.Contains(found[0].Reason, c.reason) || !strings.Contains(found[0].Reason, "are dropped") {
			t.Errorf("%s: %v, want %s: %s", c.spec, found, c.field, c.reason)
		}
	}
}

// TestEgressOfAntrea: an Egress without a node is for the node that has the address in its status. It has no part in
// ClusterNetworkPolicies: pods of unknown namespaces wait for both.
func TestEgressOfAntrea(t *testing.T) {
	s := newState(t)
	s.SetNamespace(newNamespace("shop"))
	s.SetNode(addressedNode("there", "10.0.1.0/24", "192.0.2.2", "192.0.2.100"))
	s.SetPod(newPod("shop/a", "10.0.0.2"))
	e := &antrea.Egress{}
	e.Name = "out"
	if err := yaml.UnmarshalStrict([]byte("{egressIP: 192.0.2.100, appliedTo: {podSelector: {}}}"), &e.Spec); err != nil {
		t.Fatal(err)
	}
	if s.AwaitsNamespace("new") {
		t.Error("a pod waits for its namespace without an Egress")
	}
	s.flush()
	s.SetAntrea(e)
	equal(t, "an address of a node", s.flush(), `egress out 192.0.2.100 at "there", assigned false, of [10.0.0.2]`)
	if !s.AwaitsNamespace("new") {
		t.Error("a pod of an unknown namespace does not wait, and an Egress may select it")
	}
	s.SetNode(addressedNode("there", "10.0.1.0/24", "192.0.2.2"))
	s.flush()
	if found := s.AntreaProblems(); len(found) != 1 || !strings.Contains(found[0].Reason, "no node has 192.0.2.100 in its status") {
		t.Errorf("problems: %v", found)
	}
}

// TestEgressesOfOneAddress: the first Egress by name gives an address to a node, and the others share it there.
// A node holds at most 255 addresses; the next one is refused by name.
func TestEgressesOfOneAddress(t *testing.T) {
	s := newState(t)
	s.SetNamespace(newNamespace("shop"))
	s.SetNode(addressedNode("here", "10.0.0.0/24", "192.0.2.1"))
	s.SetNode(addressedNode("there", "10.0.1.0/24", "192.0.2.2"))
	put := func(name, node, address string) {
		s.SetAntrea(newEgress(t, name, fmt.Sprintf("{node: %s, egressIP: %s, appliedTo: {podSelector: {}}}", node, address)))
	}
	put("a", "here", "192.0.2.100")
	put("b", "there", "192.0.2.100")
	put("c", "here", "192.0.2.100")
	for i := range 255 {
		put(fmt.Sprintf("d%03d", i), "here", fmt.Sprintf("198.51.100.%d", i))
	}
	s.flush()
	var refused []string
	for _, p := range s.AntreaProblems() {
		refused = append(refused, p.Object.Name+": "+p.Reason)
	}
	if len(refused) != 2 || !strings.HasPrefix(refused[0], "b: egress.felixlike.io/a has given 192.0.2.100 to node here") ||
		!strings.HasPrefix(refused[1], "d254: node here holds 255 addresses") {
		t.Errorf("refused: %q", refused)
	}
	for _, e := range s.model.Egresses {
		if name := e.Object.Name; e.Address.IsValid() != (name != "b" && name != "d254") {
			t.Errorf("%s has %v", name, e.Address)
		}
	}
}

// heldBy returns Leases by which nodes hold addresses.
func heldBy(holders map[netip.Addr]string) map[netip.Addr]model.EgressLease {
	all := map[netip.Addr]model.EgressLease{}
	for a, node := range holders {
		all[a] = model.EgressLease{Holder: node}
	}
	return all
}

// TestElectedEgress: an Egress with a nodeSelector has the node that has been elected, and packets of its family alone are dropped until
// then. This node is a candidate if it matches. The first Egress of an address decides for all.
func TestElectedEgress(t *testing.T) {
	s := newState(t)
	s.Egresses().SetLeases(heldBy(nil))
	s.SetNamespace(newNamespace("shop"))
	for i, name := range []string{"here", "there", "elsewhere"} {
		n := addressedNode(name, fmt.Sprintf("10.0.%d.0/24", i), fmt.Sprintf("192.0.2.%d", i+1))
		n.Labels = map[string]string{"egress": map[bool]string{true: "no", false: "yes"}[name == "elsewhere"]}
		s.SetNode(n)
	}
	s.SetPod(newPod("shop/a", "10.0.0.2", "fd00::2"))
	s.flush()
	address := netip.MustParseAddr("192.0.2.100")
	put := func(name, spec string) {
		s.SetAntrea(newEgress(t, name, "{"+spec+", appliedTo: {podSelector: {}}}"))
		s.flush()
	}
	expect := func(when, name, node string, candidate bool, of int, problem string) {
		t.Helper()
		s.flush()
		var got model.EgressAddress
		for _, e := range s.model.Egresses {
			if e.Object.Name == name {
				got = e
			}
		}
		var reasons []string
		for _, p := range s.AntreaProblems() {
			if p.Object.Name == name {
				reasons = append(reasons, p.Field+": "+p.Reason)
			}
		}
		if !got.Leased || got.Address != address || got.Node != node || (got.Candidacy != nil) != candidate || candidate && got.Candidacy.Of != of {
			t.Errorf("%s: %+v %+v", when, got, got.Candidacy)
		}
		if all := strings.Join(reasons, "; "); problem == "" && all != "" || !strings.Contains(all, problem) {
			t.Errorf("%s: %q, want %q", when, all, problem)
		}
		if fmt.Sprint(got.Pods) != "[10.0.0.2]" {
			t.Errorf("%s: pods %v", when, got.Pods)
		}
	}
	if s.Egresses().ElectHolders() {
		t.Error("an election without an Egress")
	}
	put("b", "egressIP: 192.0.2.100, nodeSelector: {matchLabels: {egress: 'yes'}}")
	if !s.Egresses().ElectHolders() {
		t.Error("no election")
	}
	expect("new", "b", "", true, 2, "spec.nodeSelector: no node has taken 192.0.2.100 yet")
	s.Egresses().SetLeases(heldBy(map[netip.Addr]string{address: "there"}))
	expect("elected", "b", "there", true, 2, "")
	s.DeleteNode("there")
	expect("without the node", "b", "", true, 1, "no node has taken")
	here := addressedNode("here", "10.0.0.0/24", "192.0.2.1")
	s.SetNode(here)
	expect("no candidates", "b", "", false, 0, "spec.nodeSelector: no node matches its nodeSelector")
	here = here.DeepCopy()
	here.Labels = map[string]string{"egress": "yes"}
	s.SetNode(here)
	s.Egresses().SetLeases(heldBy(map[netip.Addr]string{address: "here"}))
	put("c", "egressIP: 192.0.2.100, nodeSelector: {matchLabels: {egress: 'no'}}")
	expect("the same address", "c", "here", false, 0, "")
	put("d", "egressIP: 192.0.2.100, node: here")
	if all := s.AntreaProblems(); len(all) != 1 || !strings.Contains(all[0].Reason, "egress.felixlike.io/b has left the node of 192.0.2.100 to an election") {
		t.Errorf("a fixed node: %v", all)
	}
	put("e", "egressIP: 192.0.2.3, nodeSelector: {}")
	if all := s.AntreaProblems(); len(all) != 2 || !strings.Contains(all[1].Reason, "192.0.2.3 is an address of node elsewhere, which no other node can take") {
		t.Errorf("an address of a node: %v", all)
	}
}

// TestElectionIsSpread: each candidate has another place in the order of an address, and the first places are spread over the nodes. A node
// with 255 addresses is no candidate for another.
func TestElectionIsSpread(t *testing.T) {
	const nodes = 4
	first, ranks := map[string]int{}, map[netip.Addr]map[int]bool{}
	for n := range nodes {
		local := fmt.Sprintf("n%d", n)
		e := policy.New(local)
		e.Egresses().SetLeases(heldBy(nil))
		for i := range nodes {
			e.SetNode(addressedNode(fmt.Sprintf("n%d", i), fmt.Sprintf("10.0.%d.0/24", i), fmt.Sprintf("192.0.2.%d", i+1)))
		}
		for i := range 256 {
			e.SetAntrea(newEgress(t, fmt.Sprintf("e%03d", i), fmt.Sprintf("{nodeSelector: {}, egressIP: 198.51.100.%d, appliedTo: {podSelector: {}}}", i)))
		}
		egresses := func() (all []model.EgressAddress) {
			for _, u := range e.Flush() {
				if u, ok := u.(model.EgressesUpdate); ok {
					all = u.Egresses
				}
			}
			return all
		}
		for _, a := range egresses() {
			if a.Candidacy.Rank == 0 {
				first[local]++
			}
			if ranks[a.Address] == nil {
				ranks[a.Address] = map[int]bool{}
			}
			ranks[a.Address][a.Candidacy.Rank] = true
		}
		full := map[netip.Addr]string{}
		for i := range 255 {
			full[netip.AddrFrom4([4]byte{198, 51, 100, byte(i)})] = local
		}
		e.Egresses().SetLeases(heldBy(full))
		if all := egresses(); all[255].Candidacy != nil || all[254].Candidacy == nil {
			t.Errorf("%s with 255 addresses: %+v, %+v", local, all[254], all[255])
		}
	}
	for a, r := range ranks {
		if len(r) != nodes {
			t.Errorf("%s has the ranks %v", a, r)
		}
	}
	for n, count := range first {
		if count < 256/nodes/2 || count > 256/nodes*2 {
			t.Errorf("%s is the first for %d addresses of 256", n, count)
		}
	}
}

// newPool builds a pool of our own from the YAML of its spec.
func newPool(t testing.TB, name, spec string) *antrea.OwnExternalIPPool {
	t.Helper()
	p := &antrea.OwnExternalIPPool{}
	p.Name = name
	if err := yaml.UnmarshalStrict([]byte(spec), &p.Spec); err != nil {
		t.Fatal(err)
	}
	return p
}

// TestPool: an Egress with a pool has the address that a Lease says is its own, or a claim to the next one. Each mistake names object, field
// and reason, and concerns no other Egress.
func TestPool(t *testing.T) {
	s := newState(t)
	leases := map[netip.Addr]model.EgressLease{}
	s.Egresses().SetLeases(leases)
	s.SetNamespace(newNamespace("shop"))
	here := addressedNode("here", "10.0.0.0/24", "192.0.2.3")
	here.Labels = map[string]string{"egress": "yes"}
	s.SetNode(here)
	s.SetPod(newPod("shop/a", "10.0.0.2"))
	put := func(name, spec string) {
		e := newEgress(t, name, "{"+spec+", appliedTo: {podSelector: {}}}")
		e.UID = types.UID("uid-" + name)
		s.SetAntrea(e)
	}
	expect := func(when string, want ...string) {
		t.Helper()
		s.flush()
		var got []string
		for _, e := range s.model.Egresses {
			line := fmt.Sprintf("%s: %v at %q", e.Object.Name, e.Address, e.Node)
			if e.Pool != nil {
				line += fmt.Sprintf(" allocated %v claim %v", e.Pool.Allocated, e.Pool.Claim)
			}
			got = append(got, strings.ReplaceAll(line, "invalid IP", "-"))
		}
		for _, p := range s.AntreaProblems() {
			got = append(got, fmt.Sprintf("%s %s: %s", p.Object.Name, p.Field, strings.TrimSuffix(p.Reason, compile.EgressDrops)))
		}
		equal(t, when, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	put("a", "externalIPPool: p")
	expect("no pool", `a: - at "" allocated - claim -`, "a spec.externalIPPool: there is no externalippool.felixlike.io/p")
	// The first and last address of a prefix, that of the node, the pod CIDR, and an address that an Egress names are left out.
	s.SetAntrea(newPool(t, "p", "{ipRanges: [{cidr: 10.0.0.0/24}, {cidr: 192.0.2.0/29}, {start: 'fd00::1', end: 'fd00::1'}], nodeSelector: {matchLabels: {egress: 'yes'}}}"))
	put("b", "externalIPPool: p, egressIP: 192.0.2.2")
	put("c", "externalIPPool: p")
	put("d", "externalIPPool: p, egressIP: 192.0.2.9")
	const waits, untaken = "no node has taken an address of ExternalIPPool p yet", "b spec.externalIPPool: no node has taken 192.0.2.2 yet"
	outside := "d spec.egressIP: 192.0.2.9 is not in ExternalIPPool p"
	expect("claims", `a: - at "" allocated - claim 192.0.2.1`, `b: 192.0.2.2 at ""`, `c: - at "" allocated - claim 192.0.2.4`, `d: - at ""`,
		"a spec.externalIPPool: "+waits, untaken, "c spec.externalIPPool: "+waits, outside)
	leases = map[netip.Addr]model.EgressLease{
		netip.MustParseAddr("192.0.2.5"): {Holder: "here", Owner: "uid-a", Pool: "p", Created: 7},
		// A second one of the same Egress, one of an Egress that is gone, and one from another pool.
		netip.MustParseAddr("192.0.2.1"): {Holder: "here", Owner: "uid-a", Pool: "p", Created: 8},
		netip.MustParseAddr("192.0.2.4"): {Holder: "here", Owner: "uid-z", Pool: "p"},
		netip.MustParseAddr("192.0.2.6"): {Holder: "here", Owner: "uid-c", Pool: "q"},
	}
	s.Egresses().SetLeases(leases)
	if got, want := s.Egresses().PoolUsages(), []policy.PoolUsage{{Name: "p", Total: 254 + 6 + 1, Used: 2}}; !slices.Equal(got, want) {
		t.Errorf("usage: %v, want %v: a has one address, and b names one", got, want)
	}
	expect("one allocated", `a: 192.0.2.5 at "here" allocated 192.0.2.5 claim -`, `b: 192.0.2.2 at ""`, `c: - at "" allocated - claim fd00::1`, `d: - at ""`,
		untaken, "c spec.externalIPPool: "+waits, outside)
	put("e", "externalIPPool: p")
	put("f", "externalIPPool: p")
	put("g", "externalIPPool: p")
	put("h", "externalIPPool: p")
	s.DeleteAntrea(antrea.ID{Kind: antrea.KindNodeEgress, Name: "d"})
	expect("exhausted", `a: 192.0.2.5 at "here" allocated 192.0.2.5 claim -`, `b: 192.0.2.2 at ""`, `c: - at "" allocated - claim fd00::1`,
		`e: - at "" allocated - claim 192.0.2.1`, `f: - at "" allocated - claim 192.0.2.4`, `g: - at "" allocated - claim 192.0.2.6`, `h: - at "" allocated - claim -`,
		untaken, "c spec.externalIPPool: "+waits, "e spec.externalIPPool: "+waits, "f spec.externalIPPool: "+waits, "g spec.externalIPPool: "+waits,
		"h spec.externalIPPool: no address of ExternalIPPool p is free")
	for _, name := range []string{"e", "f", "g", "h"} {
		s.DeleteAntrea(antrea.ID{Kind: antrea.KindNodeEgress, Name: name})
	}
	s.SetAntrea(newPool(t, "p", "{ipRanges: [{cidr: 192.0.2.2/32}, {cidr: x}, {start: 192.0.2.9}, {start: '127.0.0.1', end: 127.0.0.2}, {start: 192.0.2.9, end: 192.0.2.8}], nodeSelector: {}}"))
	expect("a smaller pool", `a: - at "" allocated 192.0.2.5 claim -`, `b: 192.0.2.2 at ""`, `c: - at "" allocated - claim -`,
		`p spec.ipRanges[1]: "x" is not a CIDR; it has no addresses`, "p spec.ipRanges[2]: needs either cidr, or start and end; it has no addresses",
		"p spec.ipRanges[3]: has addresses of 127.0.0.0/8, which packets to other networks cannot have; it has no addresses",
		"p spec.ipRanges[4]: 192.0.2.9 is not before 192.0.2.8; it has no addresses",
		"a spec.externalIPPool: ExternalIPPool p no longer has 192.0.2.5, which belongs to this Egress: add it to the pool again, or delete the Egress and create it again",
		untaken, "c spec.externalIPPool: no address of ExternalIPPool p is free")
	s.SetAntrea(newPool(t, "p", "{ipRanges: [{cidr: 192.0.2.0/24}], nodeSelector: {matchLabels: {egress: 'no'}}}"))
	expect("no candidates", `a: 192.0.2.5 at "here" allocated 192.0.2.5 claim -`, `b: 192.0.2.2 at ""`, `c: - at "" allocated - claim 192.0.2.7`,
		"b spec.externalIPPool: no node matches its nodeSelector", "c spec.externalIPPool: no node matches its nodeSelector")
	s.SetAntrea(newPool(t, "p", "{ipRanges: [{cidr: 192.0.2.0/24}], nodeSelector: {}, subnetInfo: {gateway: 192.0.2.1}}"))
	expect("not supported", `a: - at "" allocated 192.0.2.5 claim -`, `b: - at ""`, `c: - at "" allocated - claim -`,
		"p spec.subnetInfo: not supported; no node holds an address of the pool", "a spec.externalIPPool: ExternalIPPool p has a mistake",
		"b spec.externalIPPool: ExternalIPPool p has a mistake", "c spec.externalIPPool: ExternalIPPool p has a mistake")
}
