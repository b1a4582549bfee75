package node

import (
	"context"
	"log/slog"
	"time"

	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/managers"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/wireguard"
)

// Encryption keeps the WireGuard device of this node. A nil encryption is the setting "none".
type Encryption struct {
	device  *wireguard.Device
	manager *managers.WireGuardManager
	key     model.PublicKey
}

// NewEncryption loads, or makes, this node's private key.
func NewEncryption(cfg *config.Effective) (*Encryption, error) {
	if cfg.Encryption != config.WireGuard {
		return nil, nil
	}
	key, err := wireguard.LoadKey(cfg.StateDir)
	if err != nil {
		return nil, err
	}
	port := uint16(cfg.WireGuardPort)
	e := &Encryption{device: wireguard.NewDevice(model.WireGuardDevice, port, key), key: key.Public()}
	e.manager = managers.NewWireGuardManager(cfg.NodeName, e.key, port, e.device)
	return e, nil
}

// Extend makes a stage of the host's network also program the device, before the routes into it. Without encryption it
// removes the device of an earlier setting, once no route leads into it.
func (e *Encryption) Extend(host backend.Stage) backend.Stage {
	routes := host.Apply
	if e == nil {
		removed := false
		host.Apply = func(ctx context.Context) (backend.Applied, error) {
			did, err := routes(ctx)
			if err != nil || removed {
				return did, err
			}
			gone, err := wireguard.Remove(model.WireGuardDevice)
			if removed = err == nil; gone {
				did.Writes++
			}
			return did, err
		}
		return host
	}
	invalidate := host.Invalidate
	host.Invalidate = func() {
		e.device.Invalidate()
		invalidate()
	}
	host.WatchToo = e.device.Watch
	host.Apply = func(ctx context.Context) (backend.Applied, error) {
		made, failed := e.device.Apply(ctx)
		did, err := routes(ctx)
		did.Writes += made.Writes
		did.Repaired = append(made.Repaired, did.Repaired...)
		if failed != nil {
			return did, failed // the routes into the device fail with it
		}
		return did, err
	}
	return host
}

// PublicKey returns this node's public key.
func (e *Encryption) PublicKey() model.PublicKey { return e.key }

// With adds the device's manager.
func (e *Encryption) With(all ...managers.Manager) []managers.Manager {
	if e == nil {
		return all
	}
	return append(all, e.manager)
}

// MTU makes a function that sets the MTU of the gateway port also set that of the device.
func (e *Encryption) MTU(gateway func(int)) func(int) {
	if e == nil {
		return gateway
	}
	return func(mtu int) {
		gateway(mtu)
		e.device.SetMTU(mtu)
	}
}

// Problems returns the faults of this node's key.
func (e *Encryption) Problems() []model.Problem {
	if e == nil {
		return nil
	}
	return e.manager.Problems()
}

// Publisher is a datastore that takes this node's public key.
type Publisher interface {
	PublishKey(ctx context.Context, key model.PublicKey) error
}

const (
	// publishEvery is the time between two looks at the key that this node's object has.
	publishEvery = time.Second
	// publishAgain is the time to the next try, after one that failed or whose effect is not seen yet.
	publishAgain = 10 * time.Second
)

// Publish writes this node's public key to its object whenever the object has another one, until ctx ends.
func (e *Encryption) Publish(ctx context.Context, to Publisher, log *slog.Logger) error {
	wait := publishEvery
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
		wait = publishEvery
		if has, known := e.manager.Published(); !known || has == e.key {
			continue
		}
		wait = publishAgain
		if err := to.PublishKey(ctx, e.key); err != nil {
			log.Warn("this node's public key of WireGuard is not published, so other nodes do not reach its pods", "error", err)
			continue
		}
		log.Info("published this node's public key of WireGuard", "key", e.key)
	}
}
