package node

import (
	"context"
	"errors"
	"os"
	"testing"

	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/internal/namespace"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/wireguard"
)

// TestEncryptionStage: on a kernel without WireGuard the host's stage fails with the reason, and all other routes are
// programmed. On one with it, the device is there before the routes, and is removed once the setting is off.
func TestEncryptionStage(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: network namespaces")
	}
	cfg := &config.Effective{Config: config.Defaults()}
	if off, err := NewEncryption(cfg); off != nil || err != nil {
		t.Fatalf("without the setting: %v, %v", off, err)
	}
	cfg.Encryption, cfg.StateDir, cfg.NodeName = config.WireGuard, t.TempDir(), "n1"
	e, err := NewEncryption(cfg)
	if err != nil {
		t.Fatal(err)
	}
	node := &model.Node{Name: "n1", PublicKey: e.key}
	e.manager.OnUpdate(model.NodeUpdate{Node: node})
	e.manager.CompleteDeferredWork()
	if p := e.Problems(); len(p) != 0 {
		t.Errorf("problems %v", p)
	}
	ns, err := namespace.Anonymous()
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	unsupported := wireguard.Supported()
	routed := 0
	host := backend.Stage{Invalidate: func() {}, Apply: func(context.Context) (backend.Applied, error) {
		routed++
		return backend.Applied{Writes: 1}, nil
	}}
	err = ns.Do(func() error {
		did, err := e.Extend(host).Apply(t.Context())
		if unsupported != nil && !errors.Is(err, wireguard.ErrUnsupported) || unsupported == nil && (err != nil || did.Writes < 2) {
			t.Errorf("with encryption: %+v, %v", did, err)
		}
		off := (*Encryption)(nil).Extend(host)
		if did, err := off.Apply(t.Context()); err != nil || did.Writes != 1 && unsupported != nil || did.Writes != 2 && unsupported == nil {
			t.Errorf("without encryption: %+v, %v", did, err)
		}
		if did, err := off.Apply(t.Context()); err != nil || did.Writes != 1 {
			t.Errorf("without encryption, again: %+v, %v", did, err)
		}
		return nil
	})
	if err != nil || routed != 3 {
		t.Errorf("the routes were programmed %d times, %v", routed, err)
	}
}
