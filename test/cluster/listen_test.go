package cluster

import (
	"context"
	"net"
	"net/netip"
	"testing"

	"github.com/felixlike/felixlike/internal/namespace"
)

// listen listens in a namespace until the test ends.
func listen(t *testing.T, in *namespace.Namespace, at netip.AddrPort) net.Listener {
	t.Helper()
	var listener net.Listener
	err := in.Do(func() (err error) {
		listener, err = (&net.ListenConfig{}).Listen(context.Background(), "tcp", at.String())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	return listener
}
