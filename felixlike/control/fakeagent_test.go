package control

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/felixlike/felixlike/felixlike/health"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/eventually"
)

// fakeAgent records the requests; it programs revision by revision.
type fakeAgent struct {
	status     Status
	programmed atomic.Uint64
	synced     chan []model.PodID
	err        error
	// alive and ready are the answers to the probes.
	alive error
	ready health.Readiness
	// connections is the answer to Connections.
	connections []Connection
	// drops are sent to the follower; left is closed when it has gone.
	drops []*Drop
	left  chan struct{}
}

func (f *fakeAgent) Alive() error { return f.alive }

func (f *fakeAgent) Ready(context.Context) health.Readiness { return f.ready }

func (f *fakeAgent) Status() Status { return f.status }

func (f *fakeAgent) Sync(ctx context.Context, pods []model.PodID) (uint64, error) {
	if f.synced != nil {
		f.synced <- pods
	}
	return f.programmed.Load(), f.err
}

func (f *fakeAgent) Objects(context.Context) (Objects, error) {
	return Objects{Node: f.status.Node, Revision: f.status.Observed}, f.err
}

func (f *fakeAgent) Model(context.Context) (Model, error) {
	mac, _ := net.ParseMAC("aa:bb:cc:00:00:01")
	pod := model.PodID{Namespace: "shop", Name: "web"}
	policy := model.PolicyID{Tier: model.TierNetworkPolicy, Namespace: "shop", Name: "p"}
	address := netip.MustParseAddr("10.0.0.7")
	return Model{
		Node: f.status.Node, Backend: "nftables", Revision: f.status.Programmed,
		Settings:  Settings{Masquerade: true, ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")}},
		Nodes:     []*model.Node{{Name: "n1", Addresses: []netip.Addr{address}}},
		Groups:    []Group{{Group: model.Group{ID: "a1", Kind: model.Addresses}, Members: []model.Member{model.AddressMember(address)}}},
		Policies:  []*model.Policy{{ID: policy, Ingress: []model.Rule{{Name: "ingress[0]", Action: model.Allow, AnyPeer: true, Ports: []model.PortRange{{Protocol: model.TCP, First: 80, Last: 80}}}}}},
		Endpoints: []*model.Endpoint{{ID: pod, Ingress: model.Applied{NetworkPolicies: []model.PolicyID{policy}}}},
		Attachments: NewAttachments([]*model.Attachment{
			{Pod: pod, Interface: "fx-1", OFPort: 3, MAC: mac, Addresses: []netip.Addr{address}},
		}),
		Pods: []Pod{{ID: pod, Addresses: []netip.Addr{address}}},
	}, f.err
}

func (f *fakeAgent) Hits(context.Context) (Hits, error) {
	return Hits{Node: f.status.Node, Rules: []RuleHits{{Policy: "networkpolicy/shop/db", Rule: "ingress[0]", Connections: 3}}}, f.err
}

func (f *fakeAgent) Connections(context.Context) ([]Connection, error) { return f.connections, f.err }

func (f *fakeAgent) Sockets(context.Context) ([]Socket, error) {
	return []Socket{{Protocol: model.TCP, Local: netip.MustParseAddrPort("[::]:22"), Process: "sshd"}, {Protocol: model.UDP, Local: netip.MustParseAddrPort("192.0.2.1:68"), UID: 100}}, f.err
}

func (f *fakeAgent) Services(_ context.Context, name string) (Services, error) {
	return Services{Node: f.status.Node, Services: []Service{{Name: name}}}, f.err
}

func (f *fakeAgent) PolicyLog(context.Context, time.Duration, func(*Logged) error) error {
	return errors.New("not followed here")
}

func (f *fakeAgent) DropHistory(context.Context) (DropHistory, error) {
	return DropHistory{Minutes: []DropMinute{{Flows: []DropFlow{{Drop: Drop{Direction: "ingress"}, Packets: 3}}}}}, nil
}

func (f *fakeAgent) Drops(ctx context.Context, alive time.Duration, got func(*Drop) error) error {
	if f.err != nil {
		return f.err
	}
	defer close(f.left)
	for _, d := range append([]*Drop{nil}, f.drops...) {
		if err := got(d); err != nil {
			return err
		}
	}
	<-ctx.Done()
	return nil
}

func (f *fakeAgent) SetBackend(_ context.Context, name string) error {
	if name != "iptables" {
		return fmt.Errorf("backend %q: must be iptables", name)
	}
	return nil
}

func (f *fakeAgent) WaitProgrammed(ctx context.Context, revision uint64) (uint64, error) {
	for {
		if now := f.programmed.Load(); now >= revision {
			return now, nil
		}
		select {
		case <-ctx.Done():
			return 0, fmt.Errorf("revision %d of %d is programmed: %w", f.programmed.Load(), revision, ctx.Err())
		case <-time.After(time.Millisecond):
		}
	}
}

// serve runs a server and returns its socket's path and a function that stops it.
func serve(t *testing.T, agent Agent) (path string, stop func() error) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "run", "control.sock")
	return path, serveAt(t, path, agent)
}

func serveAt(t *testing.T, path string, agent Agent) (stop func() error) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root may use the control socket: not run as another user")
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- Serve(ctx, path, agent, slog.New(slog.DiscardHandler)) }()
	stopped := false
	stop = func() error {
		if stopped {
			return nil
		}
		stopped = true
		cancel()
		return <-done
	}
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	client := NewClient(path)
	eventually.True(t, "the server answers", func() bool {
		_, err := client.Status(context.Background())
		if err != nil && !NotRunning(err) {
			t.Fatal(err)
		}
		return err == nil
	})
	return stop
}
