package nftables

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/internal/nfnetlink"
	"github.com/felixlike/felixlike/tables/nftables/expression"
	"github.com/felixlike/felixlike/tables/nftables/kernel"
)

// TestForeignPropertiesAreRepaired: a set or map with our name and type and an additional property is
// foreign, and so is a member with a property: Apply repairs both.
func TestForeignPropertiesAreRepaired(t *testing.T) {
	ns := newNamespace(t)
	table := ns.open(t)
	loadExample(table)
	apply(t, table)
	listing := ns.list(t)
	for _, c := range []struct{ name, in, by string }{
		{"size", "set aweb-4 {\n\t\ttype ipv4_addr\n", "set aweb-4 {\n\t\ttype ipv4_addr\n\t\tsize 2\n"},
		{"timeout flag", "set aweb-4 {\n\t\ttype ipv4_addr\n", "set aweb-4 {\n\t\ttype ipv4_addr\n\t\tflags timeout\n"},
		{"timeout", "set aweb-4 {\n\t\ttype ipv4_addr\n", "set aweb-4 {\n\t\ttype ipv4_addr\n\t\ttimeout 1h\n"},
		{"dynamic", "set aweb-6 {\n\t\ttype ipv6_addr\n", "set aweb-6 {\n\t\ttype ipv6_addr\n\t\tflags dynamic\n"},
		{"constant", "set aweb-6 {\n\t\ttype ipv6_addr\n", "set aweb-6 {\n\t\ttype ipv6_addr\n\t\tflags constant\n"},
		{"policy", "set nblock-4 {\n\t\ttype ipv4_addr\n", "set nblock-4 {\n\t\ttype ipv4_addr\n\t\tpolicy memory\n"},
		{"counter", "set aweb-4 {\n\t\ttype ipv4_addr\n", "set aweb-4 {\n\t\ttype ipv4_addr\n\t\tcounter\n"},
		{"size of a map", "map to-pods-4 {\n\t\ttype ipv4_addr : verdict\n", "map to-pods-4 {\n\t\ttype ipv4_addr : verdict\n\t\tsize 3\n"},
		{"timeout of a member", "type ipv4_addr\n\t\telements = { 10.0.0.1, 10.0.0.2 }", "type ipv4_addr\n\t\tflags timeout\n\t\telements = { 10.0.0.1 timeout 1h, 10.0.0.2 }"},
	} {
		t.Run(c.name, func(t *testing.T) {
			changed := strings.Replace(listing, c.in, c.by, 1)
			if changed == listing {
				t.Fatalf("the listing does not have %q:\n%s", c.in, listing)
			}
			other := newNamespace(t)
			other.nft(t, changed)
			if other.list(t) == listing {
				t.Fatal("nft has not taken the property")
			}
			table := other.open(t)
			loadExample(table)
			if r := apply(t, table); r.Messages == 0 {
				t.Error("nothing was repaired")
			}
			if diff := cmp.Diff(listing, other.list(t)); diff != "" {
				t.Errorf("not repaired (-want +got):\n%s", diff)
			}
			wantSilent(t, table)
			table.Invalidate()
			wantSilent(t, table)
		})
	}
}

// A member may bring an expression of its own, which can let the lookup fail. nft
// writes none into a set without, but others can.
func TestForeignExpressionOfAMemberIsRepaired(t *testing.T) {
	ns, table := connected(t)
	listing := ns.list(t)
	if err := table.conn.Commit([]kernel.Op{table.sets["aweb-4"].memberOp(kernel.DeleteMembers, changesOf("10.0.0.1"))}); err != nil {
		t.Fatal(err)
	}
	raw, err := netlink.Dial(unix.NETLINK_NETFILTER, &netlink.Config{NetNS: ns.fd})
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	transmit(t, raw, func(m *expression.Message) {
		m.Begin(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_NEWSETELEM, unix.NLM_F_CREATE, 2, unix.NFPROTO_INET, 0)
		m.Text(unix.NFTA_SET_ELEM_LIST_TABLE, DefaultTable)
		m.Text(unix.NFTA_SET_ELEM_LIST_SET, "aweb-4")
		list := m.Nest(unix.NFTA_SET_ELEM_LIST_ELEMENTS)
		element := m.Nest(unix.NFTA_LIST_ELEM)
		m.Value(unix.NFTA_SET_ELEM_KEY, []byte{10, 0, 0, 1})
		counter := m.Nest(unix.NFTA_SET_ELEM_EXPR)
		m.Text(unix.NFTA_EXPR_NAME, "counter")
		m.Close(m.Nest(unix.NFTA_EXPR_DATA))
		m.Close(counter)
		m.Close(element)
		m.Close(list)
		m.End()
	})
	if got := ns.list(t); !strings.Contains(got, "10.0.0.1 counter packets 0 bytes 0") {
		t.Fatalf("the member has no counter:\n%s", got)
	}
	table.Invalidate()
	if r := apply(t, table); r.ElementsAdded != 2 {
		t.Errorf("%+v", r)
	}
	if diff := cmp.Diff(listing, ns.list(t)); diff != "" {
		t.Errorf("not repaired (-want +got):\n%s", diff)
	}
	wantSilent(t, table)
}

// transmit commits one message, which the function writes with sequence number 2, over
// the connection.
func transmit(t testing.TB, raw *netlink.Conn, write func(*expression.Message)) {
	t.Helper()
	var m expression.Message
	m.Begin(unix.NFNL_MSG_BATCH_BEGIN, 0, 1, 0, unix.NFNL_SUBSYS_NFTABLES)
	m.End()
	write(&m)
	m.Begin(unix.NFNL_MSG_BATCH_END, 0, 3, 0, unix.NFNL_SUBSYS_NFTABLES)
	m.End()
	rc, err := raw.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if err := nfnetlink.Send(rc, m.B); err != nil {
		t.Fatal(err)
	}
}
