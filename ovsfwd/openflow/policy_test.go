package openflow_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
	"github.com/felixlike/felixlike/test/ovstest"
)

// policyFlows has each match and action of policy once.
func policyFlows() []openflow.Flow {
	const zone = 65520
	pod, pod6 := netip.MustParseAddr("10.10.1.2"), netip.MustParseAddr("fd00::2")
	ip, ip6 := openflow.IPv4(), openflow.IPv6()
	allowed := openflow.Label{Hi: 1}
	drop := func(table uint8, m openflow.Match) openflow.Flow {
		return openflow.Flow{Table: table, Priority: 7, Match: m}
	}
	do := func(table uint8, m openflow.Match, actions ...openflow.Action) openflow.Flow {
		return openflow.Flow{Table: table, Priority: 7, Match: m, Actions: actions}
	}
	flows := []openflow.Flow{
		do(30, ip, openflow.CT(openflow.CTSpec{Zone: zone, Table: 31})),
		drop(31, ip.CTState(openflow.CTInv|openflow.CTTrk, 0)),
		drop(31, ip.CTState(openflow.CTRel|openflow.CTTrk, openflow.CTNew|openflow.CTRpl)),
		do(31, ip.CTState(openflow.CTTrk, openflow.CTNew).CTMark(0x20, 0xffffffff), openflow.SetMAC(openflow.EthDst, mac(1)), openflow.GotoTable(40)),
		do(31, ip.CTState(openflow.CTEst, openflow.CTNew|openflow.CTRpl).CTMark(0, 0x40).CTLabel(openflow.Label{}, allowed), openflow.CTClear(), openflow.GotoTable(40)),
		drop(31, ip6.CTLabel(openflow.Label{Hi: 1, Lo: 2}, openflow.Label{Hi: ^uint64(0), Lo: ^uint64(0)})),
		drop(31, ip6.CTLabel(openflow.Label{Lo: 5 << 32}, openflow.Label{Lo: 0xffffffff << 32})),
		do(40, ip.Addr(openflow.IPv4Src, pod), openflow.SetAddr(openflow.IPv4Src, pod), openflow.SetAddr(openflow.IPv4Dst, pod), openflow.Resubmit(45), openflow.Resubmit(31)),
		do(40, ip6.Addr(openflow.IPv6Src, pod6), openflow.SetAddr(openflow.IPv6Src, pod6), openflow.SetAddr(openflow.IPv6Dst, pod6), openflow.Resubmit(45)),
		do(50, ip.Addr(openflow.IPv4Src, pod), openflow.Conjunction(2, 1, 3), openflow.Conjunction(4294967295, 1, 2)),
		do(50, ip.ConjID(2), openflow.SetRegister(openflow.Reg5, 2), openflow.CT(openflow.CTSpec{
			Commit: true, Zone: zone, Table: 61,
			Exec: []openflow.Action{openflow.SetCTLabelBits(openflow.Label{Lo: 2 << 32}, openflow.Label{Lo: 0xffffffff << 32})},
		})),
		do(90, ip6.ConjID(3), openflow.SetRegister(openflow.Reg6, 3), openflow.SetRegister(openflow.Reg3, 3), openflow.SetBits(openflow.Reg0, 1<<20, 1<<20), openflow.Resubmit(101)),
		do(101, openflow.Any().Bits(openflow.Reg0, 1<<20, 1<<20).Bits(openflow.Reg3, 7, 0xffffffff)),
		do(101, ip.CTState(openflow.CTNew, 0).Bits(openflow.Reg5, 8, 0xffffffff).Bits(openflow.Reg6, 0xff9, 0xff), openflow.GotoTable(105)),
		do(105, ip, openflow.CT(openflow.CTSpec{Commit: true, Zone: zone, Table: 110, Exec: []openflow.Action{openflow.SetCTMark(0x20)}})),
		do(110, ip, openflow.CT(openflow.CTSpec{Commit: true, Zone: zone, Table: openflow.NoTable, Exec: []openflow.Action{
			openflow.SetCTLabelBits(allowed, allowed), openflow.SetBits(openflow.CTMark, 0x40, 0x40),
		}}), openflow.OutputRegister(openflow.Reg1)),
		do(71, openflow.Any().Bits(openflow.PktMark, 1, 1), openflow.SetBits(openflow.PktMark, 1, 0xff), openflow.GotoTable(80)),
		drop(72, openflow.Any().Bits(openflow.Reg2, 1, 1).Bits(openflow.Reg4, 1, 1).Bits(openflow.Reg7, 1, 1)),
		drop(72, ip.Protocol(model.ICMP)),
		drop(72, ip6.Protocol(model.ICMPv6)),
		drop(72, ip.Protocol(47)),
		drop(72, ip6.Protocol(47)),
		drop(61, ip.CTState(openflow.CTNew|openflow.CTTrk, 0).LaterFragment().Bits(openflow.Reg5, 0, 0xffffffff)),
		drop(61, ip6.LaterFragment()),
	}
	learned := openflow.LearnSpec{
		Table: 32, Priority: 200, IdleTimeout: 210, Cookie: 0xf11e010000000003, Limit: 20, Match: ip.Protocol(model.SCTP),
		Copies: []openflow.FieldCopy{{openflow.IPv4Src, openflow.IPv4Dst}, {openflow.IPv4Dst, openflow.IPv4Src}, {openflow.SCTPSrc, openflow.SCTPSrc}},
		Sets:   []openflow.RegisterBits{{openflow.Reg0, 1 << 23, 1 << 23}, {openflow.Reg7, 5 << 8, 0xff00}},
	}
	learned6 := learned
	learned6.Match, learned6.Sets = ip6.Protocol(model.SCTP), []openflow.RegisterBits{{openflow.Reg1, 9, 0xffffffff}}
	learned6.Copies = []openflow.FieldCopy{{openflow.IPv6Src, openflow.IPv6Src}, {openflow.IPv6Dst, openflow.IPv6Src}, {openflow.SCTPDst, openflow.SCTPSrc}}
	flows = append(flows,
		do(110, ip.Protocol(model.SCTP), openflow.Learn(learned), openflow.OutputRegister(openflow.Reg1)),
		do(110, ip6.Protocol(model.SCTP), openflow.Learn(learned6), openflow.OutputRegister(openflow.Reg1)),
	)
	translated := func(to string) openflow.Action {
		return openflow.CT(openflow.CTSpec{Commit: true, Zone: zone, Table: openflow.NoTable, Destination: netip.MustParseAddrPort(to)})
	}
	flows = append(flows,
		do(41, ip.Bits(openflow.Reg10, 9, 0xffffffff), openflow.SetRegister(openflow.Reg9, 5), openflow.Hash(hashGroup())),
		do(42, ip.Bits(openflow.Reg8, 0x104, 0x107), translated("10.10.1.2:80"), openflow.CT(openflow.CTSpec{NAT: true, Zone: 7, Table: openflow.NoTable})),
		do(42, ip6.Bits(openflow.Reg9, 4, 0xffffffff), translated("[fd00::2]:8080"), openflow.CT(openflow.CTSpec{Zone: 7, Table: 31})),
	)
	for _, m := range []openflow.Match{ip, ip6} {
		tcp, udp, sctp := m.Protocol(model.TCP), m.Protocol(model.UDP), m.Protocol(model.SCTP)
		flows = append(
			flows, drop(80, tcp), drop(80, udp), drop(80, sctp),
			drop(80, tcp.Port(openflow.TCPDst, 80, 0xffff)), drop(80, tcp.Port(openflow.TCPSrc, 80, 0xffff)),
			drop(80, udp.Port(openflow.UDPDst, 53, 0xffff)), drop(80, udp.Port(openflow.UDPSrc, 53, 0xffff)),
			drop(80, sctp.Port(openflow.SCTPDst, 99, 0xffff)), drop(80, sctp.Port(openflow.SCTPSrc, 99, 0xffff)),
			drop(80, tcp.Port(openflow.TCPDst, 0x1f90, 0xfff0)), drop(80, udp.Port(openflow.UDPDst, 0x1f9f, 0xfff0)),
			drop(80, sctp.Port(openflow.SCTPDst, 0, 0x8000)), drop(85, tcp.Port(openflow.TCPDst, 5, 0)),
		)
	}
	for _, m := range []openflow.Match{ip.Protocol(model.ICMP), ip6.Protocol(model.ICMPv6)} {
		flows = append(flows, drop(80, m), drop(80, m.ICMPMessage(0)), drop(80, m.ICMPMessage(128)), drop(80, m.ICMPMessage(0, 0)), drop(80, m.ICMPMessage(8, 255)),
			do(80, m.ICMPMessage(8, 1), openflow.Conjunction(1, 3, 3), openflow.Conjunction(7, 2, 2)))
	}
	return flows
}

// hashGroup is a group with a bucket for each of four values of reg8.
func hashGroup() openflow.HashGroup {
	g := openflow.HashGroup{ID: 7}
	for i := range uint32(4) {
		g.Buckets = append(g.Buckets, []openflow.Action{openflow.SetBits(openflow.Reg8, 0x100|i, 0x1ff), openflow.Resubmit(42)})
	}
	return g
}

// A group comes with the first flow that uses it. Whoever deletes it deletes these flows, which come back with the group.
func TestGroupComesWithItsFlows(t *testing.T) {
	b := ovstest.NewBridge(t)
	table := connected(t, b)
	use := func(table uint8) openflow.Flow {
		return openflow.Flow{Table: table, Priority: 7, Match: openflow.IPv4(), Actions: []openflow.Action{openflow.Hash(hashGroup())}}
	}
	has := func(when string, want bool) {
		t.Helper()
		out := b.Run("ovs-ofctl", "-O", "OpenFlow15", "dump-groups", "unix:"+b.Management())
		const bucket = "bucket=bucket_id:3,actions=set_field:0x103/0x1ff->reg8,resubmit(,42)"
		if got := strings.Contains(out, "group_id=7,type=select,selection_method=dp_hash,") && strings.Contains(out, bucket); got != want {
			t.Errorf("%s: %v, want %v\n%s", when, got, want, out)
		}
	}
	table.SetFlows("others", fixed(numbered(2)))
	apply(t, b, table, openflow.Result{Messages: 2, Added: 2})
	has("no flow uses it", false)
	table.SetFlows("users", fixed([]openflow.Flow{use(41), use(42)}))
	apply(t, b, table, openflow.Result{Messages: 2, Added: 2, Groups: 1})
	has("two flows use it", true)
	b.Run("ovs-ofctl", "-O", "OpenFlow15", "del-groups", "unix:"+b.Management())
	has("deleted", false)
	ovstest.Poll(t, func() error {
		if _, err := table.Apply(b.Context()); err != nil {
			return err
		}
		if got := len(b.Flows()); got != 4 {
			return fmt.Errorf("%d flows", got)
		}
		return nil
	})
	has("repaired", true)
	table.RemoveFlows("users")
	apply(t, b, table, openflow.Result{Messages: 2, Deleted: 2})
	conn := dial(t, b)
	if err := conn.Bundle(b.Context(), func(yield func(openflow.FlowMod, error) bool) {
		yield(openflow.FlowMod{Command: openflow.DeleteGroup, Group: openflow.HashGroup{ID: 7}}, nil)
	}); err != nil {
		t.Fatal(err)
	}
	has("removed", false)
}

func TestPolicyFlowsReadBackAsWritten(t *testing.T) {
	b := ovstest.NewBridge(t)
	table := connected(t, b)
	flows := policyFlows()
	table.SetFlows("all", fixed(flows))
	apply(t, b, table, openflow.Result{Messages: len(flows), Added: len(flows), Groups: 1})
	if diff := cmp.Diff(texts(flows), b.Flows()); diff != "" {
		t.Error(diff)
	}
	known(t, b, flows)
}

func TestNotationOfPolicyFlows(t *testing.T) {
	for want, flow := range map[string]openflow.Flow{
		"table=50,priority=190,ip,conj_id=2 actions=set_field:0x2->reg5,ct(commit,table=61,zone=65520,exec(set_field:0x200000000/0xffffffff00000000->ct_label))": {
			Table: 50, Priority: 190, Match: openflow.IPv4().ConjID(2), Actions: []openflow.Action{
				openflow.SetRegister(openflow.Reg5, 2),
				openflow.CT(openflow.CTSpec{Commit: true, Zone: 65520, Table: 61, Exec: []openflow.Action{
					openflow.SetCTLabelBits(openflow.Label{Lo: 2 << 32}, openflow.Label{Lo: 0xffffffff << 32}),
				}}),
			},
		},
		"table=45,priority=14000,udp6,tp_dst=53 actions=conjunction(1,3/3)": {
			Table: 45, Priority: 14000, Match: openflow.IPv6().Protocol(model.UDP).Port(openflow.UDPDst, 53, 0xffff),
			Actions: []openflow.Action{openflow.Conjunction(1, 3, 3)},
		},
		"table=50,priority=210,ip,ct_state=-new+est actions=resubmit(,61)": {
			Table: 50, Priority: 210, Match: openflow.IPv4().CTState(openflow.CTEst, openflow.CTNew), Actions: []openflow.Action{openflow.Resubmit(61)},
		},
	} {
		if diff := cmp.Diff(want, flow.String()); diff != "" {
			t.Error(diff)
		}
	}
}

func TestConjunctionsNeedARoomyFlow(t *testing.T) {
	b := ovstest.NewBridge(t)
	table := connected(t, b)
	clause := func(n int) openflow.Flow {
		f := openflow.Flow{Table: 50, Priority: 200, Match: openflow.IPv4()}
		for i := range n {
			f.Actions = append(f.Actions, openflow.Conjunction(uint32(i+1), 1, 2))
		}
		return f
	}
	table.SetFlows("most", fixed([]openflow.Flow{clause(4000)}))
	apply(t, b, table, openflow.Result{Messages: 1, Added: 1})
	table.SetFlows("most", fixed([]openflow.Flow{clause(4200)}))
	if _, err := table.Apply(b.Context()); err == nil || !strings.Contains(err.Error(), "most: ") {
		t.Errorf("got %.200v", err)
	}
	table.SetFlows("most", fixed([]openflow.Flow{{Table: 50, Priority: 200, Match: openflow.IPv4(), Actions: []openflow.Action{openflow.Conjunction(1, 4, 3)}}}))
	if _, err := table.Apply(b.Context()); err == nil || !strings.Contains(err.Error(), "dimension 4 of 3") {
		t.Errorf("got %.200v", err)
	}
}

func TestLearnNeedsWholeFieldsAndNeighbouringBits(t *testing.T) {
	b := ovstest.NewBridge(t)
	table := connected(t, b)
	for want, spec := range map[string]openflow.LearnSpec{
		"nw_src has a mask": {Match: openflow.IPv4().Prefix(openflow.IPv4Src, netip.MustParsePrefix("10.0.0.0/8"))},
		"widths differ":     {Copies: []openflow.FieldCopy{{openflow.IPv4Src, openflow.IPv6Src}}},
		"not neighbours":    {Sets: []openflow.RegisterBits{{openflow.Reg0, 1, 5}}},
	} {
		table.SetFlows("learn", fixed([]openflow.Flow{{Table: 110, Match: openflow.IPv4(), Actions: []openflow.Action{openflow.Learn(spec)}}}))
		if _, err := table.Apply(b.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
