package property

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/cni"
	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/felixlike/policy"
	"github.com/felixlike/felixlike/model"
)

// nftablesMaps is backend nftables with the layout maps.
const nftablesMaps = config.NFTables + "-maps"

// backends are those that are tested, each by the same tests.
func backends() []string {
	return []string{config.NFTables, nftablesMaps, config.IPTablesLegacy, config.IPTablesNFT, config.OpenFlow}
}

// needTools skips a test if the backend, or a tool of the test, cannot run.
func needTools(t *testing.T, backend string) {
	t.Helper()
	tools := []string{"nft"}
	switch {
	case usesBridge(backend):
		tools = append(tools, "ovs-ofctl")
	case backend != config.NFTables && backend != nftablesMaps:
		tools = append(tools, backend+"-restore", "ip6"+strings.TrimPrefix(backend, "ip")+"-restore", "ipset")
	}
	for _, tool := range tools {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("needs the tool %s", tool)
		}
	}
}

// usesBridge reports whether a backend decides in Open vSwitch.
func usesBridge(backend string) bool { return backend == config.OpenFlow }

// kernel is the target of a dataplane: a network namespace, and a bridge in it if
// the backend needs one.
type kernel struct {
	netns  int
	bridge *ovs
}

// dataplane decides policy on a node: the policy engine, and a backend
// with its managers that programs the kernel. With a bridge, it also forwards.
type dataplane struct {
	kernel
	node       string
	engine     *policy.Engine
	backend    backend.Backend
	forwarding *forwarding
	closers    []func() error
	// beside are stages beside the backend's.
	beside []backend.Stage
	// attached are the addresses of the pods on the bridge.
	attached map[model.PodID][]netip.Addr
	// spoil changes the policies that the engine makes; nil changes nothing.
	spoil func(*model.Policy) *model.Policy
	// changed says that something was programmed since packets were sent, met that
	// packets were sent through a bridge since something was programmed.
	changed, met bool
}

// newDataplane returns the dataplane of a node, without any objects yet.
func newDataplane(name, node string, k kernel) (*dataplane, error) {
	choice := backend.Config{Name: name, Node: node, NetNS: k.netns}
	if name == nftablesMaps {
		choice.Name, choice.Layout = config.NFTables, config.LayoutMaps
	}
	if node == "node1" {
		choice.CommonFrom = 2 // else random clusters are too small for common chains
	}
	d := &dataplane{kernel: k, node: node, engine: policy.New(node), attached: map[model.PodID][]netip.Addr{}}
	if k.bridge != nil {
		choice.Switch = backend.Switch{RunDir: k.bridge.daemons.Dir(), Bridge: bridgeName, Node: k.bridge.pipeline()}
		var err error
		if d.forwarding, err = k.bridge.forwarding(); err != nil {
			return nil, err
		}
		d.closers = append(d.closers, d.forwarding.conn.Close)
	}
	var err error
	if d.backend, err = backend.New(context.Background(), choice); err != nil {
		return nil, errors.Join(err, d.close())
	}
	d.closers = append(d.closers, d.backend.Close)
	d.backend.Activate()
	if k.bridge != nil {
		d.update(model.HostAddressesUpdate{Addresses: k.bridge.hostAddresses()})
	}
	return d, nil
}

func (d *dataplane) close() error {
	var errs []error
	for _, closer := range d.closers {
		errs = append(errs, closer())
	}
	d.closers = nil
	return errors.Join(errs...)
}

// remove removes the backend's state, behind its back.
func (d *dataplane) remove() error {
	other, err := newDataplane(d.backend.Name(), d.node, d.kernel)
	if err != nil {
		return err
	}
	if err := other.backend.Remove(context.Background(), ""); err != nil {
		return err
	}
	d.changed = true
	return other.close()
}

// stages are those of the node, in order: policy before forwarding, as in the
// agent.
func (d *dataplane) stages() []backend.Stage {
	all := append([]backend.Stage{d.backend.Stage()}, d.beside...)
	if d.forwarding != nil {
		all = append(all, d.forwarding.Stage)
	}
	return all
}

// update hands updates to the managers.
func (d *dataplane) update(updates ...model.Update) {
	for _, u := range updates {
		for _, s := range d.stages() {
			for _, m := range s.Managers {
				m.OnUpdate(u)
			}
		}
	}
}

// attach adds a pod's interface, detach removes it.
func (d *dataplane) attach(id model.PodID, addresses []netip.Addr) {
	d.engine.SetLocalAddresses(id, addresses)
	a := &model.Attachment{Pod: id, Interface: id.String(), Addresses: addresses}
	if d.bridge != nil {
		a.OFPort, a.MAC, d.attached[id] = d.bridge.port(id), cni.MAC(id), addresses
	}
	d.update(model.AttachmentUpdate{Attachment: a})
}

func (d *dataplane) detach(id model.PodID) {
	d.engine.SetLocalAddresses(id, nil)
	delete(d.attached, id)
	d.update(model.AttachmentRemove{Pod: id, Interface: id.String()})
}

// flush hands the engine's updates to the managers.
func (d *dataplane) flush() {
	updates := d.engine.Flush()
	for i, u := range updates {
		if p, ok := u.(model.PolicyUpdate); ok && d.spoil != nil {
			updates[i] = model.PolicyUpdate{Policy: d.spoil(p.Policy)}
		}
	}
	d.update(updates...)
}

// apply programs the desired state of the managers.
func (d *dataplane) apply() (backend.Applied, error) {
	if d.met {
		// The switch attributes counted packets to the flows that they met, before these change.
		if err := d.bridge.forget(); err != nil {
			return backend.Applied{}, err
		}
		d.met = false
	}
	d.flush()
	var done backend.Applied
	for _, s := range d.stages() {
		if err := program(s, &done); err != nil {
			return done, err
		}
	}
	// Pods that have gone are closed for as long as packets can come from them.
	if d.forwarding != nil && d.backend.Forwarded(d.forwarding.Forwarding) {
		if err := program(d.backend.Stage(), &done); err != nil {
			return done, err
		}
	}
	d.changed = d.changed || done.Writes > 0
	return done, nil
}

// program runs a stage's managers, and applies it.
func program(s backend.Stage, all *backend.Applied) error {
	for _, m := range s.Managers {
		m.CompleteDeferredWork()
	}
	done, err := s.Apply(context.Background())
	all.Writes += done.Writes
	all.Refused = append(all.Refused, done.Refused...)
	if err != nil {
		return fmt.Errorf("stage %s: %w", s.Name, err)
	}
	return nil
}

// invalidate makes the next apply read the kernel's state.
func (d *dataplane) invalidate() {
	for _, s := range d.stages() {
		s.Invalidate()
	}
}
