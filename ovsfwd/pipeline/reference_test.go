package pipeline

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/flowtext"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
	"github.com/felixlike/felixlike/test/ovstest"
)

// TestReference installs the full pipeline, reads it back and holds it against
// the rows of the reference.
func TestReference(t *testing.T) {
	const otherRelease = "of the other release; rows of both cannot be installed together"
	leftOut := map[string]string{
		"F002": "takes any tunnel source; ours is guarded by peer, and by table 10",
		"F006": "takes any tunnel source, and " + otherRelease,
		"F028": otherRelease, "F029": otherRelease, "F030": otherRelease, "F031": otherRelease, "F032": otherRelease,
		"F066": "marks do not cross a tap device, and anybody on the host can set one: F074 is installed instead",
	}
	for id, d := range ovstest.Deviations() {
		leftOut[id] = d.Why
	}
	// Rows of policies are compared where policies are rendered.
	forwarding := map[string]bool{}
	for _, id := range []string{"F054", "F061", "F064", "F065", "F066", "F073", "F074", "F077", "F078", "F083", "F084", "F089"} {
		forwarding[id] = true
	}
	base := testPods()
	base[0].Addresses, base[1].Addresses = base[0].Addresses[:1], base[1].Addresses[:1]
	snat := referenceNode("10.10.0.0/24")
	snat.SNAT = testSNAT(7)
	for _, test := range []struct {
		scenarios []string
		node      Node
		pods      []*model.Attachment
		peers     []*model.Node
		// away are pods whose address another node has, served pods of that node whose address this one has.
		away, served []netip.Addr
	}{
		{[]string{"BASE"}, referenceNode("10.10.0.0/24"), base, []*model.Node{{
			Name: "n2", Addresses: addrs("192.168.77.101"), PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.10.1.0/24")},
		}}, nil, nil},
		// Without pods: tables 45 to 101 are as they are without any policy.
		{[]string{"K8SNP", "ACNP"}, referenceNode("10.10.1.0/24"), nil, nil, nil, nil},
		{[]string{"SNAT"}, snat, nil, nil, nil, nil},
		{[]string{"EGRESS"}, referenceNode("10.10.0.0/24"), base, []*model.Node{{
			Name: "n2", Addresses: addrs("192.168.77.102"), PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.10.1.0/24")},
		}}, addrs("10.10.0.3"), addrs("10.10.1.7")},
	} {
		t.Run(strings.Join(test.scenarios, " "), func(t *testing.T) {
			b := ovstest.NewBridge(t)
			test.node.Userspace = b.Userspace()
			flows := Base(test.node)
			for _, p := range test.pods {
				flows = append(flows, Endpoint(test.node, p)...)
			}
			for _, p := range test.peers {
				flows = append(flows, Peer(test.node, p)...)
			}
			if test.away != nil {
				flows = append(flows, EgressBase(test.node, test.peers)...)
				flows = append(flows, EgressPeer(test.node, test.peers[0], test.away, test.served)...)
			}
			install(t, b, flows)
			var rows []ovstest.Row
			for _, row := range ovstest.Reference(t, test.scenarios...) {
				if slices.Contains([]string{"BASE", "SNAT", "EGRESS"}, row.Scenario) || forwarding[row.ID] {
					rows = append(rows, row)
				}
			}
			ovstest.Comparison{LeftOut: leftOut, Extra: ovstest.Elsewhere(t, whyExtra)}.Check(t, b.Installed(), rows)
		})
	}
}

// TestReferenceOfTheOtherRelease installs the flows of the other release in place of those that differ, F024 to F026 and F034 to F036.
func TestReferenceOfTheOtherRelease(t *testing.T) {
	const firstRelease = "of the first release; rows of both cannot be installed together"
	leftOut := map[string]string{
		"F002": "takes any tunnel source, and " + firstRelease,
		"F006": "takes any tunnel source; ours is guarded by peer, and by table 10",
		"F024": firstRelease, "F025": firstRelease, "F026": firstRelease, "F034": firstRelease, "F035": firstRelease,
	}
	b := ovstest.NewBridge(t)
	node, pods := referenceNode("10.10.0.0/24"), testPods()
	node.Userspace = b.Userspace()
	flows := Base(node)
	for _, p := range pods {
		p.Addresses = p.Addresses[:1]
		flows = append(flows, Endpoint(node, p)...)
	}
	flows = append(flows, Peer(node, &model.Node{
		Name: "n2", Addresses: addrs("192.168.77.101"), PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.10.1.0/24")},
	})...)
	install(t, b, flows)
	toOtherRelease(t, b)
	extra := ovstest.Elsewhere(t, whyExtra)
	ovstest.Comparison{LeftOut: leftOut, Extra: func(f *flowtext.Flow) string {
		f, err := ovstest.ParseFlow(swapped().Replace(f.String()))
		if err != nil {
			t.Fatal(err)
		}
		return extra(f)
	}}.Check(t, b.Installed(), ovstest.Reference(t, "BASE"))
}

// toOtherRelease replaces the flows of the full pipeline by those of the other release of the reference. Two of their differences are in these
// flows: a packet of the tunnel is known by the virtual MAC address and not by a bit of reg0, and tables 71 and 72 have each other's
// numbers. No setting of the pipeline makes these flows.
func toOtherRelease(t *testing.T, b *ovstest.Bridge) {
	t.Helper()
	bit := fmt.Sprintf("%#x/%#x", macRewrite, macRewrite)
	known := strings.NewReplacer("set_field:"+bit+"->reg0,", "", "reg0="+bit, "dl_dst="+VirtualMAC().String())
	text := swapped().Replace(known.Replace(strings.Join(b.Flows(), "\n")))
	file := filepath.Join(t.TempDir(), "flows")
	if err := os.WriteFile(file, []byte(text+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	b.Ofctl("replace-flows", file)
}

// swapped gives tables 71 and 72 each other's number.
func swapped() *strings.Replacer {
	return strings.NewReplacer("table=71,", "table=72,", "table=72,", "table=71,", "goto_table:71", "goto_table:72", "goto_table:72", "goto_table:71")
}

// referenceNode is the node of a scenario: one family, as there.
func referenceNode(podCIDR string) Node {
	n := testNode()
	p := netip.MustParsePrefix(podCIDR)
	n.Mode, n.PodCIDRs = Full, []netip.Prefix{p}
	n.Gateways = []netip.Addr{p.Addr().Next()}
	n.ServiceCIDRs = []netip.Prefix{netip.MustParsePrefix("10.96.0.0/12")}
	n.HostAddresses = append(addrs("192.168.77.100"), n.Gateways...)
	return n
}

// whyExtra explains the flows that the reference does not have. The order is
// that of specificity: the first reason that fits counts.
func whyExtra(f *flowtext.Flow) string {
	has := func(fields ...openflow.Field) bool {
		return slices.ContainsFunc(f.Match, func(t flowtext.Term) bool { return slices.Contains(fields, t.Field) })
	}
	is := func(table uint8, priorities ...uint16) bool {
		if f.Table != table {
			return false
		}
		for _, p := range priorities {
			if f.Priority == p {
				return true
			}
		}
		return len(priorities) == 0
	}
	const related = 1 << 2
	ethType, _ := f.Term(openflow.EthType)
	protocol, _ := f.Term(openflow.IPProto)
	v6 := ethType.Value.Lo == unix.ETH_P_IPV6
	reg0, _ := f.Term(openflow.Reg0)
	inPort, _ := f.Term(openflow.InPort)
	source, _ := f.Term(openflow.IPv4Src)
	node := flowtext.Word{Lo: 192<<24 | 168<<16 | 77<<8 | 100}
	switch {
	case f.Table == TableMoved, reg0.Mask.Lo&uint64(movedAsked|movedCollides|movedBack|moved) != 0:
		return "a connection through a Service and one directly to its endpoint may have one source port"
	case f.Table == TableUplink, f.Table == TableTranslated, inPort.Value.Lo == 7, inPort.Value.Lo == uint64(openflow.LocalPort),
		reg0.Mask.Lo&0xffff == 0xffff && reg0.Value.Lo&0xffff == uint64(sourceUplink), reg0.Mask.Lo&uint64(translate) != 0, source.Value == node,
		is(TableL3Forwarding, priorityNotOutside, priorityTranslateKnown, priorityOutside):
		return "translation in a zone of its own, behind policy, and dropped where it fails"
	case is(TableSpoofGuard, priorityAway, priorityAwayUnknown, priorityForged), is(TableSpoofGuard, priorityLow) && inPort.Value.Lo == 1,
		is(TableL3Forwarding, priorityServed):
		return "Egresses: the host chooses the source; to and from the node with the address"
	case model.Protocol(protocol.Value.Lo) == model.SCTP:
		return "the userspace datapath does not distinguish associations of SCTP"
	case v6 && has(openflow.ICMPv6Type):
		return "neighbour discovery, guarded"
	case is(TableClassifier, priorityStranger), is(TableSpoofGuard, priorityStranger):
		return "packets of the tunnel that no node's flow takes are counted, not only dropped"
	case is(TableARPResponder) && f.Priority > priorityLow && f.Priority < priorityNormal:
		return "a pod has no other neighbour than the gateway"
	case is(TableSpoofGuard, priorityTunnelEnd):
		return "no pod sends encapsulated packets to a node"
	case is(TableSpoofGuard) && has(openflow.ICMPv4Type, openflow.ICMPv6Type):
		return "redirects are dropped"
	case is(TableConntrack, priorityDefault):
		return "packets other than IP are dropped"
	case is(TableClassifier, priorityARPPinned, priorityARPForged):
		return "the Ethernet source of a pod's ARP is pinned"
	case is(TableSpoofGuard) && has(openflow.ARPSpa):
		return "as F008, with this scenario's gateway"
	case has(openflow.TunSrc):
		return "tunnel only from a peer, with sources that are the peer's: in place of F002"
	case is(TableL3Forwarding, priorityPeerAddress):
		return "a peer's own address goes through the tunnel too"
	case has(openflow.TCPFlags):
		return "a segment that asks for a connection is judged, also with the ports of a known one"
	case is(TableConntrackState, priorityHalf):
		return "a NodePort answers a peer that came by the underlay through the tunnel"
	case is(TableConntrackState, priorityInvalid):
		return "invalid packets are dropped in connections of the gateway port too"
	case is(TableL3Forwarding, priorityBack):
		return "answers to connections of the gateway port go there, also from the tunnel and to peers"
	case has(openflow.CTLabel), is(TableOutput, priorityHigh):
		return "connections are established when both ends' policy let them through"
	case is(TableAdminEgress), is(TableEgress), is(TableAdminIngress, priorityAdminEstablished), is(TableIngress, priorityHigh) && has(openflow.CTState):
		if state, _ := f.Term(openflow.CTState); state.Value.Lo == related {
			return "ICMP errors about allowed connections pass"
		}
	case is(TableDNAT, priorityHigh) && has(openflow.IPv4Src, openflow.IPv6Src), is(TableCommit, priorityHigh), is(TableDNAT, priorityNowhere) && has(openflow.IPv4Src, openflow.IPv6Src):
		return "a pod reaches itself through a Service and is judged"
	case is(TableDNAT, priorityNowhere):
		return "link-local addresses are not forwarded"
	case is(TableDNAT, priorityHigh), is(TableIngress, priorityHigh), is(TableAdminIngress, priorityAdminOwnNode),
		is(TableL3Forwarding, priorityNormal):
		return "a pod's own node is never judged, under all its addresses"
	case is(TableL3Forwarding, priorityLocalSwitched, priorityLocalLed, priorityUnknown, priorityNotOutside), is(TableOutside, priorityOutside):
		return "the address, and not the MAC address, says where a packet goes"
	}
	if v6 {
		return "IPv6 twin"
	}
	if is(TableEgressMetrics, priorityDefault) || is(TableIngressMetrics, priorityDefault) {
		return "named by the reference, not printed"
	}
	return ""
}
