package policy_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/felixlike/felixlike/felixlike/antrea"
)

func addressed(name string, id int64, addresses ...string) *antrea.NetNamespace {
	o := project(name, id)
	o.UID, o.EgressIPs = types.UID(name), addresses
	return o
}

func hostSubnet(name string, addresses, prefixes []string) *antrea.HostSubnet {
	o := &antrea.HostSubnet{Host: name, EgressIPs: addresses, EgressCIDRs: prefixes}
	o.Name = name
	return o
}

func twoProjects(t *testing.T) *state {
	s := newState(t)
	s.Egresses().SetLeases(heldBy(nil))
	for i, name := range []string{"here", "there"} {
		n := addressedNode(name, fmt.Sprintf("10.0.%d.0/24", i), fmt.Sprintf("192.0.2.%d", i+1))
		n.CreationTimestamp.Time = time.Unix(1, 0) // younger than the projects
		s.SetNode(n)
	}
	for _, name := range []string{"shop", "bank"} {
		s.SetNamespace(newNamespace(name))
	}
	s.SetPod(newPod("shop/a", "10.0.0.2", "fd00::2"))
	s.SetPod(newPod("bank/b", "10.0.0.3"))
	s.SetIsolation(true)
	s.flush()
	return s
}

// addresses describes the Egresses, and their problems.
func (s *state) addresses() string {
	var all []string
	for _, e := range s.model.Egresses {
		all = append(all, fmt.Sprintf("%s %s at %q of %s", e.Object.Name, e.Address, e.Node, e.Pods))
	}
	for _, p := range s.AntreaProblems() {
		all = append(all, p.Error())
	}
	return strings.Join(all, "\n")
}

// TestProjectAddresses: packets of the pods of a namespace to the outside have an address that HostSubnets give to a node, those of joined
// namespaces too; without one they are dropped, and the problem says why. It means nothing without isolation.
func TestProjectAddresses(t *testing.T) {
	const kind = "netnamespace.network.openshift.io/"
	dropped := func(of string) string {
		return "; IPv4 packets of all pods of " + of + " to the outside of the cluster are dropped"
	}
	for name, c := range map[string]struct {
		objects []antrea.Object
		want    string
	}{
		"the node that has it": {
			[]antrea.Object{addressed("shop", 7, "192.0.2.100"), hostSubnet("there", []string{"192.0.2.100"}, nil)},
			`shop 192.0.2.100 at "there" of [10.0.0.2]`,
		},
		"joined": {
			[]antrea.Object{addressed("shop", 7), addressed("bank", 7, "192.0.2.100"), hostSubnet("there", []string{"192.0.2.100"}, nil)},
			`bank 192.0.2.100 at "there" of [10.0.0.2 10.0.0.3]` + "\n" + kind + "bank: netid: 7 is also the number of shop: these namespaces are joined",
		},
		"joined with other addresses": {
			[]antrea.Object{addressed("shop", 7, "192.0.2.100"), addressed("bank", 7, "192.0.2.101"), hostSubnet("there", []string{"192.0.2.100", "192.0.2.101"}, nil)},
			`bank invalid IP at "" of [10.0.0.2 10.0.0.3]` + "\n" + kind + "bank: netid: 7 is also the number of shop: these namespaces are joined\n" +
				kind + "bank: egressIPs: bank is joined with shop, whose egressIPs are 192.0.2.100" + dropped("bank, shop"),
		},
		"global": {
			[]antrea.Object{addressed("shop", 0, "192.0.2.100"), addressed("bank", 0), hostSubnet("there", []string{"192.0.2.100"}, nil)},
			`shop 192.0.2.100 at "there" of [10.0.0.2]`,
		},
		"of two that are not joined": {
			[]antrea.Object{addressed("shop", 7, "192.0.2.100", "192.0.2.101"), addressed("bank", 8, "192.0.2.100"), hostSubnet("here", []string{"192.0.2.100", "192.0.2.101"}, nil)},
			`bank invalid IP at "" of [10.0.0.3]` + "\n" + `shop invalid IP at "" of []` + "\n" + `shop 192.0.2.101 at "here" of [10.0.0.2]` + "\n" +
				kind + "bank: egressIPs: 192.0.2.100 is an address of bank, shop, which are not joined" + dropped("bank") + "\n" +
				kind + "shop: egressIPs: 192.0.2.100 is an address of bank, shop, which are not joined; no pod has this address",
		},
		"on no node": {
			[]antrea.Object{addressed("shop", 7, "192.0.2.100")},
			`shop invalid IP at "" of [10.0.0.2]` + "\n" + kind + "shop: egressIPs: 192.0.2.100 is in no HostSubnet's egressIPs or egressCIDRs" + dropped("shop"),
		},
		"on two nodes": {
			[]antrea.Object{addressed("shop", 7, "192.0.2.100"), hostSubnet("here", []string{"192.0.2.100"}, nil), hostSubnet("there", []string{"192.0.2.100"}, nil)},
			`shop invalid IP at "" of [10.0.0.2]` + "\n" + kind + "shop: egressIPs: 192.0.2.100 is in the egressIPs of the HostSubnets here, there" + dropped("shop"),
		},
		"no address": {
			[]antrea.Object{addressed("shop", 7, "127.0.0.1"), hostSubnet("here", []string{"127.0.0.1"}, []string{"192.0.2"})},
			`shop invalid IP at "" of [10.0.0.2 fd00::2]` + "\n" +
				`hostsubnet.network.openshift.io/here: egressIPs[0]: "127.0.0.1" is no address that packets to other networks can have; the node gets no address by it` + "\n" +
				`hostsubnet.network.openshift.io/here: egressCIDRs[0]: "192.0.2" is no prefix; the node gets no address by it` + "\n" +
				kind + `shop: egressIPs: "127.0.0.1" is no address that packets to other networks can have` + strings.Replace(dropped("shop"), "IPv4", "IPv4 and IPv6", 1),
		},
		"both families": {
			[]antrea.Object{addressed("shop", 7, "192.0.2.100", "fd00:1::100"), hostSubnet("here", []string{"192.0.2.100", "fd00:1::100"}, nil)},
			`shop 192.0.2.100 at "here" of [10.0.0.2]` + "\n" + `shop fd00:1::100 at "here" of [fd00::2]`,
		},
		"in one family": {
			[]antrea.Object{addressed("shop", 7, "192.0.2.100", "fd00:1::100", "bad", "bad"), hostSubnet("here", []string{"192.0.2.100"}, nil)},
			`shop 192.0.2.100 at "here" of [10.0.0.2]` + "\n" + `shop invalid IP at "" of [fd00::2]` + "\n" + `shop invalid IP at "" of []` + "\n" +
				kind + "shop: egressIPs: fd00:1::100 is in no HostSubnet's egressIPs or egressCIDRs; IPv6 packets of all pods of shop to the outside of the cluster are dropped\n" +
				kind + `shop: egressIPs: "bad" is no address that packets to other networks can have; IPv6 packets of all pods of shop to the outside of the cluster are dropped`,
		},
		"joined with a name that no namespace has": {
			[]antrea.Object{addressed("shop", 7, "192.0.2.100"), addressed(strings.Repeat("x", 64), 7), hostSubnet("here", []string{"192.0.2.100"}, nil)},
			`shop 192.0.2.100 at "here" of [10.0.0.2]` + "\n" + kind + "shop: netid: 7 is also the number of " + strings.Repeat("x", 64) + ": these namespaces are joined",
		},
		"a name that no namespace has": {
			[]antrea.Object{addressed(strings.Repeat("x", 64), 7, "192.0.2.100"), hostSubnet("here", []string{"192.0.2.100"}, nil)}, "",
		},
		"of another node": {
			[]antrea.Object{addressed("shop", 7, "192.0.2.2"), hostSubnet("here", []string{"192.0.2.2"}, nil)},
			`shop invalid IP at "" of [10.0.0.2]` + "\n" + kind + "shop: egressIPs: 192.0.2.2 is an address of node there, not of here" + dropped("shop"),
		},
		"of another node, by election": {
			[]antrea.Object{addressed("shop", 7, "192.0.2.2"), hostSubnet("here", nil, []string{"192.0.2.0/24"})},
			`shop invalid IP at "" of [10.0.0.2]` + "\n" + kind + "shop: egressIPs: 192.0.2.2 is an address of node there, which no other node can take: name the node in the egressIPs of its HostSubnet, without egressCIDRs" + dropped("shop"),
		},
		"of a pod": {
			[]antrea.Object{addressed("shop", 7, "10.0.1.9"), hostSubnet("here", []string{"10.0.1.9"}, nil)},
			`shop invalid IP at "" of [10.0.0.2]` + "\n" + kind + "shop: egressIPs: 10.0.1.9 is in the pod CIDRs of node there" + dropped("shop"),
		},
		"a node that is gone": {
			[]antrea.Object{addressed("shop", 7, "192.0.2.100"), hostSubnet("nowhere", []string{"192.0.2.100"}, nil)},
			`shop invalid IP at "" of [10.0.0.2]` + "\n" + kind + "shop: egressIPs: there is no node nowhere" + dropped("shop"),
		},
		"of candidates that are gone": {
			[]antrea.Object{addressed("shop", 7, "192.0.2.100"), hostSubnet("nowhere", nil, []string{"192.0.2.0/24"})},
			`shop 192.0.2.100 at "" of [10.0.0.2]` + "\n" + kind + "shop: egressIPs: there is no node whose HostSubnet has 192.0.2.100 in egressCIDRs" + dropped("shop"),
		},
		"another name": {
			[]antrea.Object{addressed("shop", 7, "192.0.2.100"), func() antrea.Object {
				o := hostSubnet("here", []string{"192.0.2.100"}, nil)
				o.Host = "there"
				return o
			}()},
			`shop invalid IP at "" of [10.0.0.2]` + "\n" + `hostsubnet.network.openshift.io/here: host: "there" is not the name of the object; the node gets no address by it` + "\n" +
				kind + "shop: egressIPs: 192.0.2.100 is in no HostSubnet's egressIPs or egressCIDRs" + dropped("shop"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := twoProjects(t)
			for _, o := range c.objects {
				s.SetAntrea(o)
			}
			s.flush()
			for _, n := range s.model.Nodes {
				// Whatever its age, a project takes nothing from a node.
				if len(n.Addresses) != 1 || len(n.PodCIDRs) != 1 {
					t.Errorf("node %s has %v, %v", n.Name, n.Addresses, n.PodCIDRs)
				}
			}
			equal(t, "addresses", s.addresses(), c.want)
			s.SetIsolation(false)
			s.flush()
			equal(t, "without isolation", s.addresses(), "")
			s.SetIsolation(true)
			s.flush()
			equal(t, "with isolation again", s.addresses(), c.want)
			for _, o := range c.objects {
				s.DeleteAntrea(o.ID())
			}
			s.flush()
			equal(t, "deleted", s.addresses(), "")
		})
	}
}

// TestSharedAddresses: the pods of a namespace are shared out over the addresses that a node has, and an address that goes or comes moves its own
// pods alone. The nodes with an address in egressCIDRs elect one of them, whatever egressIPs say.
func TestSharedAddresses(t *testing.T) {
	s := twoProjects(t)
	for i := range 200 {
		s.SetPod(newPod(fmt.Sprintf("shop/p%d", i), fmt.Sprintf("10.0.0.%d", i+4)))
	}
	one, two := netip.MustParseAddr("192.0.2.100"), netip.MustParseAddr("192.0.2.101")
	s.SetAntrea(addressed("shop", 7, one.String(), two.String()))
	s.SetAntrea(hostSubnet("here", []string{one.String()}, []string{"192.0.2.100/31"}))
	s.SetAntrea(hostSubnet("there", nil, []string{"192.0.2.0/24"}))
	s.flush()
	pods := func(when string, want map[netip.Addr]string) map[netip.Addr][]netip.Addr {
		t.Helper()
		s.flush()
		all := map[netip.Addr][]netip.Addr{}
		for _, e := range s.model.Egresses {
			if !e.Leased || e.Candidacy == nil || e.Candidacy.Of != 2 || e.Node != want[e.Address] {
				t.Errorf("%s: %+v, want node %q", when, e, want[e.Address])
			}
			all[e.Address] = e.Pods
		}
		if got := len(all[one]) + len(all[two]); got != 201 {
			t.Errorf("%s: %d pods have an address", when, got)
		}
		return all
	}
	if !s.Egresses().ElectHolders() {
		t.Error("no election")
	}
	both := map[netip.Addr]string{one: "here", two: "there"}
	pods("before an election", nil)
	s.Egresses().SetLeases(heldBy(both))
	before := pods("both are held", both)
	if n := len(before[one]); n < 60 || n > 140 {
		t.Errorf("one of two addresses has %d of 201 pods", n)
	}
	s.Egresses().SetLeases(heldBy(map[netip.Addr]string{two: "there"}))
	if alone := pods("one is held", map[netip.Addr]string{two: "there"}); len(alone[two]) != 201 {
		t.Errorf("the address that a node has has %d pods", len(alone[two]))
	}
	s.Egresses().SetLeases(heldBy(both))
	if after := pods("both are held again", both); !slices.Equal(after[one], before[one]) || !slices.Equal(after[two], before[two]) {
		t.Errorf("pods %v, %v before", after, before)
	}
	// Five are shared out evenly, too.
	five := []string{"192.0.2.100", "192.0.2.101", "192.0.2.102", "192.0.2.103", "192.0.2.104"}
	s.SetAntrea(addressed("shop", 7, five...))
	s.SetAntrea(hostSubnet("here", five, nil))
	s.flush()
	for _, e := range s.model.Egresses {
		if n := len(e.Pods); n < 20 || n > 60 {
			t.Errorf("%s, one of five addresses, has %d of 201 pods", e.Address, n)
		}
	}
	// A pod with an Egress has the address of that.
	s.SetAntrea(newEgress(t, "out", "{node: here, egressIP: 192.0.2.77, appliedTo: {podSelector: {}}}"))
	s.flush()
	if first := s.model.Egresses[0]; first.Object.Name != "out" || len(first.Pods) == 0 {
		t.Errorf("first %+v", first)
	}
}

// TestProjectBesideEgress: an address that an Egress has, or a pool, is none of a project's, whichever is older; and a pool allocates no address of a
// project, also while no node may have that.
func TestProjectBesideEgress(t *testing.T) {
	const kind = "netnamespace.network.openshift.io/"
	s := twoProjects(t)
	s.SetAntrea(addressed("shop", 7, "192.0.2.100"))
	s.SetAntrea(newPool(t, "outside", "{ipRanges: [{start: 192.0.2.100, end: 192.0.2.101}], nodeSelector: {}}"))
	e := newEgress(t, "out", "{externalIPPool: outside, appliedTo: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: bank}}}}")
	e.UID = "out"
	s.SetAntrea(e)
	s.flush()
	if claim := s.model.Egresses[0].Pool.Claim; claim.String() != "192.0.2.101" {
		t.Errorf("an Egress claims %s", claim)
	}
	late := newEgress(t, "out", "{node: there, egressIP: 192.0.2.100, appliedTo: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: bank}}}}")
	late.CreationTimestamp.Time = time.Unix(100, 0)
	s.SetAntrea(late)
	s.SetAntrea(hostSubnet("there", []string{"192.0.2.100"}, nil))
	s.flush()
	equal(t, "one address", s.addresses(), `out 192.0.2.100 at "there" of [10.0.0.3]`+"\n"+`shop invalid IP at "" of [10.0.0.2]`+"\n"+
		kind+"shop: egressIPs: 192.0.2.100 is the address of egress.felixlike.io/out; IPv4 packets of all pods of shop to the outside of the cluster are dropped")
}
