package e2e

import (
	"io"
	"net"
	"testing"

	"github.com/felixlike/felixlike/internal/namespace"
)

// serveOn serves TCP at an address of a namespace until the test ends, each connection by the function.
func serveOn(t *testing.T, ns *namespace.Namespace, address string, serve func(net.Conn)) {
	t.Helper()
	var listener net.Listener
	if err := ns.Do(func() (err error) { listener, err = net.Listen("tcp", address); return err }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				serve(conn)
			}()
		}
	}()
}

// echoIn listens at every address of a namespace, and echoes, until the test ends.
func echoIn(t *testing.T, ns *namespace.Namespace, port string) {
	t.Helper()
	serveOn(t, ns, ":"+port, func(conn net.Conn) { _, _ = io.Copy(conn, conn) })
}
