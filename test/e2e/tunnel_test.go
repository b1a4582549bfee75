package e2e

import (
	"bytes"
	"io"
	"net"
	"testing"
	"time"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/lab"
)

// TestTunnelTypes runs policy and a full-size transfer through every kind of
// tunnel, over both families.
func TestTunnelTypes(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"geneve", "vxlan", "gre"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			l := newLabWith(t, lab.Config{Tunnel: kind})
			set(t, l, state(t, threeNodes, onlyFromC))
			expect(t, l, true, "x/c", "x/a", model.TCP, 80)
			expect(t, l, false, "x/d", "x/a", model.TCP, 80)
			for _, f := range model.Families() {
				transfer(t, l, "c", "a", f)
			}
		})
	}
}

// transfer sends a quarter of a megabyte to an echo server and reads it back:
// packets are as large as the pods' MTU allows, so the tunnel's header has to
// fit the underlay.
func transfer(t *testing.T, l *lab.Lab, from, to string, f model.Family) {
	t.Helper()
	transferOver(t, dial(t, l, from, to, f), f)
}

// transferOver does so over an open connection to an echo server.
func transferOver(t *testing.T, conn net.Conn, f model.Family) {
	t.Helper()
	if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	sent := bytes.Repeat([]byte("felixlike"), 1<<18/9)
	failed := make(chan error, 1)
	go func() {
		_, err := conn.Write(sent)
		failed <- err
	}()
	got := make([]byte, len(sent))
	if _, err := io.ReadFull(conn, got); err != nil {
		t.Fatalf("IPv%s: %v", f, err)
	}
	if err := <-failed; err != nil {
		t.Fatalf("IPv%s: %v", f, err)
	}
	if !bytes.Equal(sent, got) {
		t.Errorf("IPv%s: the echo differs from the sent bytes", f)
	}
}
