package kernel

import (
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"net/netip"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/internal/nfnetlink"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/tables/nftables/expression"
	"github.com/felixlike/felixlike/test/tablestest"
)

// FuzzReplies feeds possible replies of the kernel to all readers. They may not panic, hang, or allocate much
// for a short reply.
func FuzzReplies(f *testing.F) {
	for _, datagram := range replySeeds(f) {
		f.Add(datagram)
		f.Add(datagram[:len(datagram)/2])
		f.Add(datagram[:len(datagram)-3])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		c := &Conn{table: "felixlike"}
		c.digests.Seed = maphash.MakeSeed()
		a := answer{ops: make([]Op, 4), first: 1, digests: &c.digests}
		for i := range a.ops {
			a.ops[i] = Op{Kind: DeleteTable, Echo: &Rule{}}
		}
		if err := a.note(b); err == nil {
			_ = a.outcome("felixlike")
		}
		for sequence := range uint32(3) {
			_, _ = eachReply(b, sequence, func(_ uint16, payload []byte) {
				if len(payload) >= 4 {
					decodeAll(t, c, payload[4:])
				}
			})
		}
		decodeAll(t, c, b)
	})
}

// decodeAll takes the attributes for those of every kind of object.
func decodeAll(t *testing.T, c *Conn, b []byte) {
	decodeChain(b)
	decodeSet(b)
	decodeRule(b)
	decodeElement(b)
	decodeVerdict(b)
	CommentIn(b)
	var elements []element
	for _, v := range nfnetlink.Attributes(b) {
		elements = append(elements, decodeElement(v))
	}
	for _, sh := range shapes() {
		decodeMembers(sh, elements)
	}
	// The least attribute has 4 bytes and takes 4; an expression 4 more.
	if n := len(expression.Canonical(nil, b)); n > 2*len(b)+8 {
		t.Errorf("the form of %d bytes has %d", len(b), n)
	}
}

// replySeeds returns datagrams as the kernel sends them: dumps and errors if there is a kernel to ask, and
// our own messages, which look alike.
func replySeeds(f *testing.F) [][]byte {
	var out [][]byte
	for _, o := range exampleOps() {
		var m expression.Message
		if err := o.encode(&m, unix.NFPROTO_INET, "felixlike", 1, 1, 0); err != nil {
			f.Fatal(err)
		}
		out = append(out, m.B)
	}
	for _, code := range []int32{0, -int32(unix.ENOENT)} {
		var m expression.Message
		m.Begin(unix.NLMSG_ERROR, unix.NLM_F_CAPPED|unix.NLM_F_ACK_TLVS, 2, 0, 0)
		binary.NativeEndian.PutUint32(m.B[unix.NLMSG_HDRLEN:], uint32(code))
		m.B = append(m.B, make([]byte, unix.NLMSG_HDRLEN)...)
		m.Text(unix.NLMSGERR_ATTR_MSG, "no such thing")
		m.End()
		out = append(out, m.B)
	}
	if os.Geteuid() != 0 {
		return out
	}
	return append(out, kernelReplies(f)...)
}

// kernelReplies returns whole datagrams that the kernel answers with.
func kernelReplies(f *testing.F) [][]byte {
	ns := tablestest.NewNamespace(f, "nft")
	c, err := Dial(Options{NetNS: ns.FD, Table: "felixlike", Seed: maphash.MakeSeed()})
	if err != nil {
		f.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if err := c.Commit(exampleOps()); err != nil {
		f.Fatal(err)
	}
	ns.Feed(f, `add table inet felixlike { set timed { type ipv4_addr; flags timeout; size 100; elements = { 10.0.0.1 timeout 1h comment "x" }; }
		map counted { type ether_addr : verdict; counter; elements = { 02:00:00:00:00:01 counter packets 1 bytes 2 : continue }; }
		chain more { ct state vmap { new : jump to-pods }; tcp dport { 1-5, 80 } limit rate 5/second log prefix "x" reject; }; }`, "nft", "-f", "-")
	var out [][]byte
	ask := func(kind uint16, attributes ...filterText) {
		var m expression.Message
		m.Begin(unix.NFNL_SUBSYS_NFTABLES<<8|kind, unix.NLM_F_DUMP, 1, unix.NFPROTO_INET, 0)
		for _, a := range attributes {
			m.Text(a.kind, a.text)
		}
		m.End()
		out = append(out, exchange(f, c, m.B)...)
	}
	in := filterText{1, "felixlike"}
	ask(unix.NFT_MSG_GETTABLE)
	ask(unix.NFT_MSG_GETCHAIN)
	ask(unix.NFT_MSG_GETRULE, in)
	ask(unix.NFT_MSG_GETSET, in)
	ask(unix.NFT_MSG_GETSETELEM, in, filterText{unix.NFTA_SET_ELEM_LIST_SET, "nothing"})
	for _, name := range []string{"set-1", "set-2", "set-3", "set-4", "to-pods-4", "timed", "counted"} {
		ask(unix.NFT_MSG_GETSETELEM, in, filterText{unix.NFTA_SET_ELEM_LIST_SET, name})
	}
	stray := tables.Rule{Action: tables.Accept{}, Matches: []tables.Match{tables.MatchProtocol{Protocol: model.TCP}}}
	ops := []Op{{Kind: AddRule, Name: "to-pods", Rule: &stray}, {Kind: AddRule, Name: "missing", Rule: &stray}, {Kind: DeleteChain, Name: "missing"}}
	for _, ops := range [][]Op{ops, ops[:1]} {
		if bad := c.encode(ops, 0, true); bad != nil {
			f.Fatal(bad)
		}
		out = append(out, exchange(f, c, c.batch.B)...)
	}
	return out
}

// exampleOps make a table with a set and a map of each kind, and rules that use them.
func exampleOps() []Op {
	ops := []Op{{Kind: AddTable}}
	members := map[model.GroupKind][]model.Member{
		model.Addresses:    tablestest.Members("10.0.0.1", "10.0.0.2"),
		model.Networks:     tablestest.Members("10.1.0.0/16", "192.0.2.7/32"),
		model.AddressPorts: {tablestest.Triple("10.0.0.1", model.TCP, 80)},
		model.Loops:        tablestest.Members("10.0.0.1"),
	}
	rules := []tables.Rule{
		{Action: tables.SetMarkAndReturn{Mask: 1, Value: 1}, Matches: []tables.Match{tables.MatchSet{Family: model.IPv4, Side: tables.Source, Set: "set-1"}}, Comment: "allowed"},
		{Action: tables.Drop{}, Matches: []tables.Match{tables.MatchPrefix{Side: tables.Destination, Prefix: netip.MustParsePrefix("10.0.0.0/9")}}},
		{Action: tables.Report{Group: 1, Prefix: "x", Length: 64, PerSecond: 10}, Matches: []tables.Match{tables.MatchConnState{States: tables.StateInvalid}}},
	}
	for kind, list := range members {
		set := Op{Kind: AddSet, Name: fmt.Sprintf("set-%d", kind), Shape: Shape{Kind: kind, Family: model.IPv4}}
		ops = append(ops, set)
		set.Kind = AddMembers
		for _, m := range list {
			set.Changes = append(set.Changes, Change{Member: m})
		}
		ops = append(ops, set)
	}
	ops = append(ops, Op{Kind: AddChain, Name: "to-pods"})
	for i, r := range rules {
		ops = append(ops, Op{Kind: AddRule, Name: "to-pods", Index: i, Rule: &r, Hash: r.Hash(), Echo: &Rule{}})
	}
	verdicts := Op{Kind: AddSet, Name: "to-pods-4", Shape: Shape{Kind: model.Addresses, Family: model.IPv4, Verdicts: true}}
	ops = append(ops, verdicts)
	verdicts.Kind, verdicts.Changes = AddMembers, []Change{{tablestest.Members("10.0.0.9")[0], tables.Goto{Chain: "to-pods"}}}
	ops = append(ops, verdicts)
	return append(ops, Op{Kind: AddChain, Name: "forward", Hook: &tables.Hook{Type: tables.HookFilter, Point: tables.HookForward}})
}

type filterText struct {
	kind uint16
	text string
}

// exchange sends a request and returns the datagrams of the answer.
func exchange(f testing.TB, c *Conn, request []byte) [][]byte {
	f.Helper()
	rc, err := c.raw.SyscallConn()
	if err != nil {
		f.Fatal(err)
	}
	if err := nfnetlink.Send(rc, request); err != nil {
		f.Fatal(err)
	}
	var out [][]byte
	if err := rc.Control(func(fd uintptr) {
		for {
			b := make([]byte, readBuffer)
			n, err := unix.Read(int(fd), b)
			if err != nil {
				return
			}
			out = append(out, b[:n])
		}
	}); err != nil {
		f.Fatal(err)
	}
	return out
}
