package conntrack

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

const (
	// HoldTable is the nftables table (family inet) of a Hold.
	HoldTable = "felixlike-conntrack"
	// holdChain is its only chain, and no base chain.
	holdChain = "unused"
	// tableFlagOwner is NFT_TABLE_F_OWNER.
	tableFlagOwner = 2
	// stateNew is the bit of IP_CT_NEW: the rule reads "ct state new". nft cannot list
	// one that compares nothing.
	stateNew = 1 << 3
	// holdTimeout bounds the wait for the kernel's answer.
	holdTimeout = 10 * time.Second
)

// Hold keeps the kernel tracking connections in a network namespace. The kernel tracks
// while any rule matches on connection state, even a rule that no packet reaches. So
// HoldTable has such a rule, in a chain that no packet enters. The table has the flag
// owner: no other socket can change it, and a flush of the ruleset skips it (Linux 5.12
// and newer). The kernel removes the table when the socket closes.
//
// Without a Hold, a flush that removes the last such rule stops tracking. The first
// tracked packet after that may be an answer, which then counts as a new connection of
// the answering side.
type Hold struct{ conn *netlink.Conn }

// ErrHeld means that another socket has a Hold in the network namespace.
var ErrHeld = errors.New("another process has nftables table inet " + HoldTable)

// HoldTracking begins a Hold in the network namespace of a descriptor; zero is the
// process's own. It fails with ErrHeld while another socket has a Hold there.
func HoldTracking(netns int) (*Hold, error) {
	conn, err := netlink.Dial(unix.NETLINK_NETFILTER, &netlink.Config{NetNS: netns})
	if err != nil {
		return nil, fmt.Errorf("hold connection tracking: connect to nftables: %w", err)
	}
	messages, err := holdMessages()
	if err == nil {
		err = conn.SetDeadline(time.Now().Add(holdTimeout))
	}
	if err == nil {
		_, err = conn.SendMessages(messages)
	}
	if err == nil {
		_, err = conn.Receive()
	}
	if errors.Is(err, unix.EPERM) && tableExists(netns) {
		return nil, errors.Join(ErrHeld, conn.Close())
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("hold connection tracking: make table inet %s: %w", HoldTable, err), conn.Close())
	}
	return &Hold{conn: conn}, nil
}

// tableExists reports whether HoldTable exists. If another socket owns it, the kernel
// refuses a change with the same error (EPERM) as to a process without CAP_NET_ADMIN.
func tableExists(netns int) bool {
	e := netlink.NewAttributeEncoder()
	e.String(unix.NFTA_TABLE_NAME, HoldTable)
	attributes, err := e.Encode()
	if err != nil {
		return false
	}
	// Further answers to the refused transaction may wait in its own connection.
	conn, err := netlink.Dial(unix.NETLINK_NETFILTER, &netlink.Config{NetNS: netns})
	if err != nil {
		return false
	}
	_, err = conn.Execute(holdMessage(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_GETTABLE, 0, unix.NFPROTO_INET, 0, attributes))
	return errors.Join(err, conn.Close()) == nil
}

// Close ends the Hold: the kernel removes the table.
func (h *Hold) Close() error { return h.conn.Close() }

// holdMessages is the transaction that makes the table. The kernel answers once: to the
// message that it refuses, or to the last one.
func holdMessages() ([]netlink.Message, error) {
	var errs []error
	object := func(kind int, flags netlink.HeaderFlags, encode func(*netlink.AttributeEncoder)) netlink.Message {
		e := netlink.NewAttributeEncoder()
		e.ByteOrder = binary.BigEndian
		encode(e)
		attributes, err := e.Encode()
		errs = append(errs, err)
		return holdMessage(unix.NFNL_SUBSYS_NFTABLES<<8|kind, flags, unix.NFPROTO_INET, 0, attributes)
	}
	all := []netlink.Message{
		holdMessage(unix.NFNL_MSG_BATCH_BEGIN, 0, unix.AF_UNSPEC, unix.NFNL_SUBSYS_NFTABLES, nil),
		object(unix.NFT_MSG_NEWTABLE, netlink.Create|netlink.Excl, func(e *netlink.AttributeEncoder) {
			e.String(unix.NFTA_TABLE_NAME, HoldTable)
			e.Uint32(unix.NFTA_TABLE_FLAGS, tableFlagOwner)
		}),
		object(unix.NFT_MSG_NEWCHAIN, netlink.Create, func(e *netlink.AttributeEncoder) {
			e.String(unix.NFTA_CHAIN_TABLE, HoldTable)
			e.String(unix.NFTA_CHAIN_NAME, holdChain)
		}),
		object(unix.NFT_MSG_NEWRULE, netlink.Create|netlink.Append|netlink.Acknowledge, func(e *netlink.AttributeEncoder) {
			e.String(unix.NFTA_RULE_TABLE, HoldTable)
			e.String(unix.NFTA_RULE_CHAIN, holdChain)
			e.Nested(unix.NFTA_RULE_EXPRESSIONS, func(e *netlink.AttributeEncoder) error {
				expression(e, "ct", func(e *netlink.AttributeEncoder) error {
					e.Uint32(unix.NFTA_CT_DREG, unix.NFT_REG_1)
					e.Uint32(unix.NFTA_CT_KEY, unix.NFT_CT_STATE)
					return nil
				})
				expression(e, "cmp", func(e *netlink.AttributeEncoder) error {
					e.Uint32(unix.NFTA_CMP_SREG, unix.NFT_REG_1)
					e.Uint32(unix.NFTA_CMP_OP, unix.NFT_CMP_EQ)
					e.Nested(unix.NFTA_CMP_DATA, func(e *netlink.AttributeEncoder) error {
						e.Bytes(unix.NFTA_DATA_VALUE, binary.NativeEndian.AppendUint32(nil, stateNew))
						return nil
					})
					return nil
				})
				return nil
			})
		}),
		holdMessage(unix.NFNL_MSG_BATCH_END, 0, unix.AF_UNSPEC, unix.NFNL_SUBSYS_NFTABLES, nil),
	}
	return all, errors.Join(errs...)
}

func expression(e *netlink.AttributeEncoder, name string, data func(*netlink.AttributeEncoder) error) {
	e.Nested(unix.NFTA_LIST_ELEM, func(e *netlink.AttributeEncoder) error {
		e.String(unix.NFTA_EXPR_NAME, name)
		e.Nested(unix.NFTA_EXPR_DATA, data)
		return nil
	})
}

func holdMessage(kind int, flags netlink.HeaderFlags, family byte, resource uint16, attributes []byte) netlink.Message {
	// struct nfgenmsg: family, version, resource.
	head := binary.BigEndian.AppendUint16([]byte{family, unix.NFNETLINK_V0}, resource)
	return netlink.Message{
		Header: netlink.Header{Type: netlink.HeaderType(kind), Flags: netlink.Request | flags},
		Data:   append(head, attributes...),
	}
}
