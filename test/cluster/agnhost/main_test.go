package main

import (
	"context"
	"net"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"

	"github.com/felixlike/felixlike/internal/namespace"
)

func TestTargetOfConnect(t *testing.T) {
	target := netip.MustParseAddrPort("10.0.0.1:9003")
	for _, test := range []struct {
		args []string
		want bool
	}{
		{[]string{"--timeout=1s", "--protocol=sctp", "10.0.0.1:9003"}, true},
		{[]string{"--timeout=1s", "--protocol=udp", "10.0.0.1:9003"}, false},
		{[]string{"--timeout=1s", "--protocol=sctp"}, false},
		{[]string{"--timeout=1s", "--protocol=sctp", "server:9003"}, false},
	} {
		to, timeout, ok := sctpTarget(test.args)
		if ok != test.want || ok && (to != target || timeout != time.Second) {
			t.Errorf("%q: %s %s %v", test.args, to, timeout, ok)
		}
	}
}

func TestShellTakesSimpleCommandsOnly(t *testing.T) {
	for _, args := range [][]string{nil, {"-c"}, {"-c", ""}, {"-l", "true"}, {"-c", "true; true"}, {"-c", "echo $HOME"}} {
		if err := shell(args); err == nil {
			t.Errorf("%q: no error", args)
		}
	}
}

func TestPortsAreOfTheEnvironment(t *testing.T) {
	ports, err := portsOf([]string{"PATH=/bin", "SERVE_SCTP_PORT_9003=foo", "SERVE_PORT_80=foo", "SERVE_SCTP_PORT_9005=bar"})
	slices.Sort(ports)
	if diff := cmp.Diff([]uint16{9003, 9005}, ports); diff != "" || err != nil {
		t.Error(err, diff)
	}
	for _, environ := range [][]string{nil, {"SERVE_SCTP_PORT_web=foo"}, {"SERVE_SCTP_PORT_70000=foo"}} {
		if _, err := portsOf(environ); err == nil {
			t.Errorf("%q: no error", environ)
		}
	}
}

// TestOnlyServedPortsAnswer connects within a network namespace, over both families.
func TestOnlyServedPortsAnswer(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("raw sockets need root")
	}
	if kernelHasSCTP() {
		t.Skip("the kernel has SCTP sockets, so upstream's program does all")
	}
	ns, err := namespace.Anonymous()
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	err = ns.Do(func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		return netlink.LinkSetUp(lo)
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var conns []*net.IPConn
	if err := ns.Do(func() (err error) { conns, err = listenAll(ctx); return err }); err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- serve(ctx, conns, []uint16{9003}) }()
	try := func(to string, timeout time.Duration) error {
		limited, cancel := context.WithTimeout(t.Context(), timeout)
		defer cancel()
		return ns.Do(func() error { return connect(limited, netip.MustParseAddrPort(to)) })
	}
	for _, address := range []string{"127.0.0.1", "[::1]"} {
		if err := try(address+":9003", 10*time.Second); err != nil {
			t.Errorf("%s: a served port: %v", address, err)
		}
		if err := try(address+":9004", 100*time.Millisecond); err == nil || err.Error() != "TIMEOUT" {
			t.Errorf("%s: another port: %v, want TIMEOUT", address, err)
		}
	}
	cancel()
	if err := <-served; err != nil {
		t.Error(err)
	}
}
