package pipeline

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
	"github.com/felixlike/felixlike/test/ovstest"
)

// counted is a connection to a bridge that counts the bytes to it.
func counted(t *testing.T, b *ovstest.Bridge) (*openflow.Conn, *atomic.Int64) {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	sent := new(atomic.Int64)
	go func() {
		client, err := l.Accept()
		_ = l.Close()
		if err != nil {
			return
		}
		bridge, err := net.Dial("unix", b.Management())
		if err != nil {
			_ = client.Close()
			return
		}
		go func() {
			_, _ = io.Copy(client, bridge)
			_ = client.Close()
		}()
		_, _ = io.Copy(bridge, io.TeeReader(client, counter{sent}))
		_ = bridge.Close()
	}()
	conn, err := openflow.Dial(t.Context(), socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn, sent
}

type counter struct{ sum *atomic.Int64 }

func (c counter) Write(p []byte) (int, error) {
	c.sum.Add(int64(len(p)))
	return len(p), nil
}

// endpoints is a Service with n endpoints, the last of them with a number.
func endpoints(n, last int) ServiceFrontend {
	s := ServiceFrontend{Address: netip.MustParseAddrPort("10.96.0.1:80"), Protocol: model.TCP}
	for i := range n {
		if i == n-1 {
			i = last
		}
		s.Endpoints = append(s.Endpoints, netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 10, 1, byte(i)}), 8080))
	}
	return s
}

// TestEndpointsAreFlowsOnly: of a changed endpoint the switch gets flows only, not the groups of Services.
func TestEndpointsAreFlowsOnly(t *testing.T) {
	b := ovstest.NewBridge(t)
	conn, sent := counted(t, b)
	table := openflow.NewFlowTable(0xf1ff, Version)
	table.Connect(conn)
	apply := func(s ServiceFrontend, others ...ServiceFrontend) (openflow.Result, int64) {
		t.Helper()
		table.SetFlows("service", func() (flows []openflow.Flow) {
			for _, f := range append(others, s) {
				flows = append(flows, Service(Node{GatewayPort: 2}, f)...)
			}
			return flows
		})
		before := sent.Load()
		r, err := table.Apply(b.Context())
		if err != nil {
			t.Fatal(err)
		}
		return r, sent.Load() - before
	}
	few, many := endpoints(2, 1), endpoints(3, 2)
	few.Address = netip.MustParseAddrPort("10.96.0.2:80")
	many.Address = netip.MustParseAddrPort("10.96.0.3:80")
	apply(endpoints(1, 0), few, many)
	for _, c := range []struct {
		n, last, bytes int
	}{
		{2, 1, 1000}, {2, 7, 1000}, {3, 7, 4000}, {4, 7, 5000}, {4, 8, 1000}, {5, 8, 6000}, {5, 9, 1500}, {4, 9, 6000}, {3, 9, 4000}, {1, 9, 4000}, {2, 9, 1000},
	} {
		t.Run(fmt.Sprintf("%d endpoints, the last is %d", c.n, c.last), func(t *testing.T) {
			r, bytes := apply(endpoints(c.n, c.last), few, many)
			t.Logf("%d flows, %d groups, %d bytes", r.Messages, r.Groups, bytes)
			if r.Groups > 0 || bytes > int64(c.bytes) {
				t.Errorf("%d groups and %d bytes, want none and at most %d", r.Groups, bytes, c.bytes)
			}
		})
	}
}
