package watch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"syscall"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/internal/nfnetlink"
)

// DatagramSize is the size of the buffer for one datagram; the kernel batches
// notifications in at most 8 kB, or one page if that is more.
const DatagramSize = 64 << 10

// Subscription is a socket that receives all changes of nftables in its network
// namespace.
type Subscription struct {
	raw        *netlink.Conn
	connection syscall.RawConn
}

// Subscribe returns a socket that receives everything that comes after the
// generation which it returns.
func Subscribe(netns, buffer int) (_ *Subscription, generation uint32, err error) {
	raw, err := netlink.Dial(unix.NETLINK_NETFILTER, &netlink.Config{NetNS: netns})
	if err != nil {
		return nil, 0, fmt.Errorf("connect to netlink: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, raw.Close())
		}
	}()
	if err := raw.SetReadBuffer(buffer); err != nil {
		return nil, 0, fmt.Errorf("set the size of the receive buffer: %w", err)
	}
	// Asked before the socket receives, so that the answer is the first to come.
	if generation, err = ReadGeneration(raw); err != nil {
		return nil, 0, err
	}
	s := &Subscription{raw: raw}
	if s.connection, err = raw.SyscallConn(); err != nil {
		return nil, 0, err
	}
	if err := raw.JoinGroup(unix.NFNLGRP_NFTABLES); err != nil {
		return nil, 0, fmt.Errorf("join the group of nftables: %w", err)
	}
	return s, generation, nil
}

// Close closes the socket.
func (s *Subscription) Close() error { return s.raw.Close() }

// Receive waits for the next datagram of notifications and returns its size.
func (s *Subscription) Receive(buffer []byte) (int, error) {
	return nfnetlink.Receive(s.connection, buffer)
}

// Drain hands the datagrams that wait in the socket to visit. It reports whether others
// were lost.
func (s *Subscription) Drain(buffer []byte, visit func(datagram []byte)) (lost bool, err error) {
	wait := s.connection.Control(func(fd uintptr) {
		for err == nil {
			var n int
			switch n, err = unix.Read(int(fd), buffer); err {
			case nil:
				visit(buffer[:n])
			case unix.EINTR:
				err = nil
			case unix.ENOBUFS:
				lost, err = true, nil
			}
		}
	})
	if err == unix.EAGAIN {
		err = nil
	}
	return lost, errors.Join(wait, err)
}

// End makes reading from the subscription fail.
func (s *Subscription) End() { _ = s.raw.SetReadDeadline(time.Unix(1, 0)) }

// Ignore makes the kernel drop notifications of commits from the port, so that our own first load neither
// overruns a buffer nor wakes the watcher.
//
// The filter sees the first message of a datagram, and the kernel sends those of different commits in
// different ones.
func (s *Subscription) Ignore(port uint32) error {
	const portAt = 12 // nlmsg_pid in struct nlmsghdr
	// A load takes the bytes as big endian, while they are in the host's order.
	wanted := binary.BigEndian.Uint32(binary.NativeEndian.AppendUint32(nil, port))
	program := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: portAt},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: 0, Jf: 1, K: wanted},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0},
		{Code: unix.BPF_RET | unix.BPF_K, K: ^uint32(0)},
	}
	if port == 0 {
		// No port: 0 is the kernel itself, which does not commit.
		program = program[3:]
	}
	if err := s.Filter(program); err != nil {
		return fmt.Errorf("set the filter of notifications: %w", err)
	}
	return nil
}

// Filter makes the kernel deliver only messages for which the program returns nonzero.
func (s *Subscription) Filter(program []unix.SockFilter) error {
	var err error
	control := s.connection.Control(func(fd uintptr) {
		err = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
			&unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]})
	})
	return errors.Join(err, control)
}

// ReadGeneration asks for the number of the ruleset's generation.
func ReadGeneration(raw *netlink.Conn) (uint32, error) {
	replies, err := raw.Execute(Request(unix.NFT_MSG_GETGEN, netlink.Request, unix.NFPROTO_UNSPEC, nil))
	if err != nil {
		return 0, fmt.Errorf("read the generation of the ruleset: %w", err)
	}
	for _, r := range replies {
		if len(r.Data) < HeaderSize {
			continue
		}
		for kind, v := range nfnetlink.Attributes(r.Data[HeaderSize:]) {
			if kind == unix.NFTA_GEN_ID {
				return nfnetlink.Uint32(v), nil
			}
		}
	}
	return 0, errors.New("read the generation of the ruleset: the kernel sent none")
}

// HeaderSize is the size of struct nfgenmsg: family, version, and the lower half
// of the generation in network order.
const HeaderSize = 4

func resource(payload []byte) uint16 { return binary.BigEndian.Uint16(payload[2:]) }

// Header has the parts of struct nlmsghdr that the readers of notifications use.
type Header struct {
	Kind uint16
	Port uint32
}

// Messages iterates over the netlink messages in b. It ends at the first
// malformed one.
func Messages(b []byte) iter.Seq2[Header, []byte] {
	return func(yield func(Header, []byte) bool) {
		for len(b) >= unix.NLMSG_HDRLEN {
			size := int(binary.NativeEndian.Uint32(b))
			if size < unix.NLMSG_HDRLEN || size > len(b) {
				return
			}
			h := Header{Kind: binary.NativeEndian.Uint16(b[4:]), Port: binary.NativeEndian.Uint32(b[12:])}
			if !yield(h, b[unix.NLMSG_HDRLEN:size]) {
				return
			}
			b = b[min(len(b), nfnetlink.Align(size)):]
		}
	}
}

// Request returns a message to nf_tables of a kind (NFT_MSG_GETCHAIN, ...), for the
// netlink library.
func Request(message uint16, flags netlink.HeaderFlags, family byte, attributes []byte) netlink.Message {
	return netlink.Message{
		Header: netlink.Header{Type: netlink.HeaderType(unix.NFNL_SUBSYS_NFTABLES<<8 | message), Flags: flags},
		// struct nfgenmsg: family, version, resource.
		Data: append([]byte{family, unix.NFNETLINK_V0, 0, 0}, attributes...),
	}
}

// Concerns returns the object of the table that a notification is about. It reads only
// header and names: tables of others may change ten thousand times a second.
func Concerns(message uint16, payload []byte, table string) (kind, name string, ours bool) {
	var at uint16
	switch message {
	case unix.NFT_MSG_NEWRULE, unix.NFT_MSG_DELRULE:
		kind, at = "chain", unix.NFTA_RULE_CHAIN
	case unix.NFT_MSG_NEWCHAIN, unix.NFT_MSG_DELCHAIN:
		kind, at = "chain", unix.NFTA_CHAIN_NAME
	case unix.NFT_MSG_NEWSET, unix.NFT_MSG_DELSET:
		kind, at = "set", unix.NFTA_SET_NAME
	case unix.NFT_MSG_NEWSETELEM, unix.NFT_MSG_DELSETELEM:
		kind, at = "set", unix.NFTA_SET_ELEM_LIST_SET
	case unix.NFT_MSG_NEWOBJ, unix.NFT_MSG_DELOBJ, unix.NFT_MSG_NEWFLOWTABLE, unix.NFT_MSG_DELFLOWTABLE:
		kind, at = "other", unix.NFTA_OBJ_NAME
	default:
		kind, at = "table", unix.NFTA_TABLE_NAME
	}
	for attribute, v := range nfnetlink.Attributes(payload) {
		// The table is the first attribute of every kind of object.
		if attribute == tableAttribute {
			if ours = nfnetlink.Text(v) == table; !ours {
				return "", "", false
			}
		}
		if attribute == at {
			return kind, nfnetlink.Text(v), ours
		}
	}
	return "table", table, ours
}

// tableAttribute is NFTA_TABLE_NAME, NFTA_CHAIN_TABLE, NFTA_RULE_TABLE and so on.
const tableAttribute = 1
