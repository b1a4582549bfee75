package cni_test

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/felixlike/felixlike/test/cnitest"
)

// TestBandwidth chains the reference plugin that limits a pod's rate, and sends more at once
// than the limit allows.
func TestBandwidth(t *testing.T) {
	const (
		burst = 100_000
		rate  = 1_000_000 // bytes a second
		sent  = 2_000_000
		least = (sent - burst) * time.Second / rate / 2
	)
	r := newRuntime(t)
	a, b := r.sandbox("sandbox-a", "a"), r.sandbox("sandbox-b", "b")
	added := r.ok("ADD", "1.0.0", a, nil)
	r.ok("ADD", "1.0.0", b, nil)
	if took := r.transfer(b, a, "10.9.0.2", sent); took > least {
		t.Skipf("without a limit it takes %s on this machine", took)
	}
	limits := map[string]any{"prevResult": added.Result, "runtimeConfig": map[string]any{
		"bandwidth": map[string]any{"ingressRate": 8 * rate, "ingressBurst": 8 * burst},
	}}
	chained := cnitest.Runtime{Plugins: plugins, Type: "bandwidth"}
	call := func(command string, extra map[string]any) (got cnitest.Reply) {
		r.must(r.node.ns.Do(func() (err error) {
			got, err = chained.Call(r.ctx, command, "1.0.0", a, extra)
			return err
		}))
		if got.Failed {
			t.Fatalf("bandwidth: %s: %s", command, got.Raw)
		}
		return got
	}
	got := call("ADD", limits)
	if took := r.transfer(b, a, "10.9.0.2", sent); took < least {
		t.Errorf("%d bytes to a pod that may take %d a second: %s", sent, rate, took)
	}
	r.ok("CHECK", "1.0.0", a, map[string]any{"prevResult": got.Result})
	call("DEL", nil)
	r.ok("DEL", "1.0.0", a, nil)
	r.ok("DEL", "1.0.0", b, nil)
	if got := r.left(); got != nothing {
		t.Error(got)
	}
}

// transfer sends bytes over a connection, and returns how long that took.
func (r *runtime) transfer(from, to cnitest.Sandbox, address string, bytes int) time.Duration {
	r.Helper()
	target := net.JoinHostPort(address, "9000")
	var listener net.Listener
	var conn net.Conn
	r.must(to.NS.Do(func() (err error) { listener, err = net.Listen("tcp", target); return err }))
	defer listener.Close()
	r.must(from.NS.Do(func() (err error) { conn, err = net.DialTimeout("tcp", target, 10*time.Second); return err }))
	defer conn.Close()
	peer, err := listener.Accept()
	r.must(err)
	defer peer.Close()
	began := time.Now()
	go func() { _, _ = conn.Write(make([]byte, bytes)) }() // the reader below notices missing bytes
	_, err = io.CopyN(io.Discard, peer, int64(bytes))
	r.must(err)
	return time.Since(began)
}
