package backend

import (
	"errors"
	"net/netip"
	"strconv"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/hostnet"
	"github.com/felixlike/felixlike/test/tablestest"
)

// TestEgressTable: the table is there while there is an Egress, a restarted agent writes nothing, and the first Egress of a
// pod decides.
func TestEgressTable(t *testing.T) {
	ns := tablestest.NewNamespace(t, "nft", "conntrack")
	node := func(name, address, pods string) model.Update {
		return model.NodeUpdate{Node: &model.Node{
			Name: name, Addresses: []netip.Addr{netip.MustParseAddr(address)}, PodCIDRs: []netip.Prefix{netip.MustParsePrefix(pods)},
		}}
	}
	address := netip.MustParseAddr
	egress := func(name, at, a string, pods ...string) model.EgressAddress {
		e := model.EgressAddress{Object: model.ObjectRef{Kind: "Egress", Name: name}, Node: at, Assigned: true}
		if a != "" {
			e.Address = address(a)
		}
		for _, p := range pods {
			e.Pods = append(e.Pods, address(p))
		}
		return e
	}
	leased := func(name, at, a string, pods ...string) model.EgressAddress {
		e := egress(name, at, a, pods...)
		e.Leased = true
		return e
	}
	updates := []model.Update{
		node("n1", "192.168.50.1", "10.10.0.0/24"), node("n2", "192.168.50.2", "10.10.1.0/24"),
		model.EgressesUpdate{Egresses: []model.EgressAddress{
			egress("a", "n1", "192.168.50.100", "10.10.0.2", "10.10.0.3"),
			egress("b", "n2", "192.168.50.101", "10.10.0.3", "10.10.0.4"),
			egress("c", "", "", "10.10.0.4", "10.10.0.5", "fd00::5"),
			egress("d", "n1", "fd00::100", "fd00::2"),
			leased("e", "n1", "192.168.50.110", "10.10.0.6"),
			leased("f", "", "192.168.50.111", "10.10.0.7"), // no node has taken it
		}},
	}
	stage := func() Stage {
		s, _ := Egress(Config{Node: "n1", NetNS: ns.FD}, &hostnet.Addresses{NetNS: ns.FD})
		return s
	}
	list := func() string { return ns.Run(t, "nft", "-s", "list", "ruleset") }
	if did := run(t, stage(), updates[:2]...); did.Writes != 0 || list() != "" {
		t.Errorf("without an Egress: %d writes\n%s", did.Writes, list())
	}
	s := stage()
	run(t, s, updates...)
	programmed := list()
	for _, want := range []string{
		"elements = { 10.10.0.2, 10.10.0.3 }", "elements = { 10.10.0.4, 10.10.0.5,\n\t\t\t     10.10.0.7 }", "elements = { fd00::2 }", "elements = { fd00::5 }",
		"ip saddr @pods-of-192.168.50.100 ", "snat ip to 192.168.50.100", "ip6 saddr @pods-of-fd00..100 ", "snat ip6 to fd00::100",
		"ip saddr @not-outside-4 ", "ip saddr @peer-pods-4 counter drop", "elements = { 10.10.1.0/24 }", "elements = { 10.10.0.4 }", "type nat hook postrouting priority srcnat - 2",
		"ip saddr @pods-of-192.168.50.110 ", "elements = { 192.168.50.110, 192.168.50.111 }", "type filter hook postrouting priority srcnat + 10",
		"ip saddr @leased-4 fib saddr type != local counter drop", "ip6 saddr @leased-6 fib saddr type != local counter drop",
	} {
		if !strings.Contains(programmed, want) {
			t.Errorf("no %q in\n%s", want, programmed)
		}
	}
	if strings.Contains(programmed, "192.168.50.101") {
		t.Errorf("an address of another node:\n%s", programmed)
	}
	if did := run(t, stage(), updates...); did.Writes != 0 || list() != programmed {
		t.Errorf("a restart: %d writes\n%s", did.Writes, list())
	}
	connections := func() string { return ns.Run(t, "conntrack", "-L") }
	for i, mark := range []string{"0x24000000", "0x20000000"} {
		ns.Run(t, "conntrack", "-I", "-p", "udp", "-s", "10.10.0.4", "-d", "203.0.113.9", "--sport", "4000", "--dport", strconv.Itoa(7000+i), "-t", "100", "-m", mark)
	}
	if did := run(t, s, model.EgressesUpdate{}); did.Writes != 1 || list() != "" {
		t.Errorf("without the Egresses: %d writes\n%s", did.Writes, list())
	}
	if all := connections(); strings.Contains(all, "dport=7000") || !strings.Contains(all, "dport=7001") {
		t.Errorf("connections that leave by another node go with the table, others do not:\n%s", all)
	}
	if run(t, s, updates[2]); list() != programmed {
		t.Errorf("once more:\n%s", list())
	}
}

// TestEgressEndsConnectionsUntilDone: connections that leave by another node are ended with the table, also if that fails at first: with
// Egresses that go, and at a start that removes the table of an earlier process. Once it is done, it is not done again.
func TestEgressEndsConnectionsUntilDone(t *testing.T) {
	ns := tablestest.NewNamespace(t, "nft")
	updates := []model.Update{
		model.NodeUpdate{Node: &model.Node{Name: "n1", PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.10.0.0/24")}}},
		model.EgressesUpdate{Egresses: []model.EgressAddress{{Object: model.ObjectRef{Kind: "Egress", Name: "a"}, Node: "n2", Address: netip.MustParseAddr("192.168.50.100"), Pods: []netip.Addr{netip.MustParseAddr("10.10.0.2")}}}},
	}
	var tries int
	stage := func() Stage {
		tries = 0
		s, _ := egress(Config{Node: "n1", NetNS: ns.FD}, &hostnet.Addresses{NetNS: ns.FD}, func(int) error {
			if table := ns.Run(t, "nft", "list", "ruleset"); !strings.Contains(table, "meta mark set meta mark | 0x04000000") {
				t.Errorf("nothing leads their packets away any more:\n%s", table)
			}
			if tries++; tries == 1 {
				return errors.New("no buffer space")
			}
			return nil
		})
		return s
	}
	ends := func(when string, s Stage) {
		t.Helper()
		if _, err := s.Apply(t.Context()); err == nil {
			t.Errorf("%s: the failure is not reported", when)
		}
		if _, err := s.Apply(t.Context()); err != nil || tries < 2 {
			t.Errorf("%s: %v, %d tries: it is not tried again", when, err, tries)
		}
		done := tries
		if _, err := s.Apply(t.Context()); err != nil || tries > max(done, 3) {
			t.Errorf("%s: %v, tried again after it is done", when, err)
		}
		if all := ns.Run(t, "nft", "list", "ruleset"); all != "" {
			t.Errorf("%s: left\n%s", when, all)
		}
	}
	s := stage()
	run(t, s, updates...)
	s.Managers[0].OnUpdate(model.EgressesUpdate{})
	s.Managers[0].CompleteDeferredWork()
	ends("the Egress is gone", s)
	run(t, stage(), updates...)
	s = stage()
	s.Managers[0].OnUpdate(updates[0])
	s.Managers[0].CompleteDeferredWork()
	ends("a start without Egress", s)
}
