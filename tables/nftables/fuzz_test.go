package nftables

import (
	"encoding/binary"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/internal/nfnetlink"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/tables/nftables/expression"
)

// FuzzReplies feeds what could come from the kernel to all that reads it. Nothing
// may panic, take for ever, or make much of little.
func FuzzReplies(f *testing.F) {
	for _, datagram := range replySeeds(f) {
		f.Add(datagram)
		f.Add(datagram[:len(datagram)/2])
		f.Add(datagram[:len(datagram)-3])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		c := &conn{table: DefaultTable}
		c.digests.Seed = New(Options{}).digests.Seed
		a := answer{ops: make([]op, 4), first: 1}
		for i := range a.ops {
			a.ops[i] = op{kind: deleteTable, rule: &kernelRule{}}
		}
		if err := c.note(&a, b); err == nil {
			_ = a.outcome(DefaultTable)
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
func decodeAll(t *testing.T, c *conn, b []byte) {
	decodeChain(b)
	decodeSet(b)
	decodeRule(b)
	decodeElement(b)
	decodeVerdict(b)
	commentIn(b)
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

// replySeeds returns datagrams as the kernel sends them: dumps of the example and
// errors if there is a kernel to ask, and what we send, which looks alike.
func replySeeds(f *testing.F) [][]byte {
	var out [][]byte
	table := New(Options{})
	loadExample(table)
	var ops []op
	for _, c := range table.chains {
		ops = append(ops, op{kind: addChain, chain: c})
		for i := range c.want.Rules {
			ops = append(ops, op{kind: addRule, chain: c, index: i})
		}
	}
	for _, s := range table.sets {
		ops = append(ops, op{kind: addSet, set: s}, op{kind: addMembers, set: s, changes: s.members.sorted()})
	}
	for i := range ops {
		var m expression.Message
		if err := ops[i].encode(&m, DefaultTable, 1, 1, 0); err != nil {
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
	ns := newNamespace(f)
	table := ns.open(f)
	loadExample(table)
	apply(f, table)
	ns.nft(f, `add table inet felixlike { set timed { type ipv4_addr; flags timeout; size 100; elements = { 10.0.0.1 timeout 1h comment "x" }; }
		map counted { type ether_addr : verdict; counter; elements = { 02:00:00:00:00:01 counter packets 1 bytes 2 : continue }; }
		chain more { ct state vmap { new : jump to-pods }; tcp dport { 1-5, 80 } limit rate 5/second log prefix "x" reject; }; }`)
	var out [][]byte
	ask := func(kind uint16, attributes ...filterText) {
		var m expression.Message
		m.Begin(unix.NFNL_SUBSYS_NFTABLES<<8|kind, unix.NLM_F_DUMP, 1, unix.NFPROTO_INET, 0)
		for _, a := range attributes {
			m.Text(a.kind, a.text)
		}
		m.End()
		out = append(out, exchange(f, table.conn, m.B)...)
	}
	in := filterText{1, DefaultTable}
	ask(unix.NFT_MSG_GETTABLE)
	ask(unix.NFT_MSG_GETCHAIN)
	ask(unix.NFT_MSG_GETRULE, in)
	ask(unix.NFT_MSG_GETSET, in)
	ask(unix.NFT_MSG_GETSETELEM, in, filterText{unix.NFTA_SET_ELEM_LIST_SET, "nothing"})
	for _, name := range []string{"aweb-4", "nblock-6", "phttp-4", "to-pods-4", "timed", "counted"} {
		ask(unix.NFT_MSG_GETSETELEM, in, filterText{unix.NFTA_SET_ELEM_LIST_SET, name})
	}
	missing := &chain{name: "missing", want: &tables.Chain{Rules: []tables.Rule{rule(tables.Accept{}, "", proto(model.TCP))}}, hashes: []string{"h"}}
	ops := []op{{kind: addRule, chain: table.chains["to-pods"]}, {kind: addRule, chain: missing}, {kind: deleteChain, chain: missing}}
	for _, ops := range [][]op{ops, ops[:1]} {
		if err := table.conn.encode(ops, 0); err != nil {
			f.Fatal(err)
		}
		out = append(out, exchange(f, table.conn, table.conn.batch.B)...)
	}
	return out
}

type filterText struct {
	kind uint16
	text string
}

// exchange sends a request and returns the datagrams of the answer.
func exchange(f testing.TB, c *conn, request []byte) [][]byte {
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
