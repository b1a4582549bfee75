package sockets

import (
	"net"
	"net/netip"
	"os"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// TestList finds sockets of this test: one that listens, both ends of a connection, and one of UDP, with their process.
func TestList(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	conn, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	udp, err := net.ListenPacket("udp6", "[::1]:0")
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	all, err := List()
	if err != nil {
		t.Fatal(err)
	}
	processes := Processes()
	at := func(a net.Addr) netip.AddrPort { return netip.MustParseAddrPort(a.String()) }
	for _, want := range []Socket{
		{Protocol: unix.IPPROTO_TCP, Local: at(listener.Addr())},
		{Protocol: unix.IPPROTO_TCP, Local: at(conn.LocalAddr()), Peer: at(conn.RemoteAddr())},
		{Protocol: unix.IPPROTO_UDP, Local: at(udp.LocalAddr())},
	} {
		i := slices.IndexFunc(all, func(s Socket) bool {
			return s.Protocol == want.Protocol && s.Local == want.Local && s.Peer == want.Peer
		})
		switch {
		case i < 0:
			t.Errorf("%+v is not in the list", want)
		case processes[all[i].Inode].PID != os.Getpid() || all[i].UID != uint32(os.Getuid()):
			t.Errorf("%+v: process %+v", all[i], processes[all[i].Inode])
		}
	}
}
