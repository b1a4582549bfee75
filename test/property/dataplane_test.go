package property

import (
	"context"
	"fmt"
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/cni"
	"github.com/felixlike/felixlike/felixlike"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/policy"
)

// backends are those that are tested, each by the same tests.
func backends() []string {
	return []string{felixlike.NFTables, felixlike.IPTablesLegacy, felixlike.IPTablesNFT}
}

// needTools skips a test where the backend, or what looks at it, cannot run.
func needTools(t *testing.T, backend string) {
	t.Helper()
	tools := []string{"nft"}
	if backend != felixlike.NFTables {
		tools = append(tools, backend+"-restore", "ip6"+strings.TrimPrefix(backend, "ip")+"-restore", "ipset")
	}
	if usesBridge(backend) {
		tools = append(tools, "ovs-ofctl", "ovs-appctl")
	}
	for _, tool := range tools {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("needs the tool %s", tool)
		}
	}
}

// usesBridge reports whether a backend decides in Open vSwitch.
func usesBridge(backend string) bool { return backend == openFlow }

const openFlow = "openflow"

// kernel is what dataplanes program: a network namespace, and a bridge in it if
// the backend needs one.
type kernel struct {
	netns  int
	bridge *ovs
}

// dataplane is what decides policy on a node: the policy engine, and a backend
// with its managers that programs the kernel. With a bridge, so does forwarding.
type dataplane struct {
	kernel
	node       string
	engine     *policy.Engine
	backend    felixlike.Backend
	forwarding *felixlike.Stage
	// attached are the addresses of the pods on the bridge.
	attached map[model.PodID][]netip.Addr
	// changed says that something was programmed.
	changed bool
}

// newDataplane returns the dataplane of a node that has been told nothing yet.
func newDataplane(backend, node string, k kernel) (*dataplane, error) {
	choice := felixlike.Choice{Name: backend, Node: node, NetNS: k.netns}
	d := &dataplane{kernel: k, node: node, engine: policy.New(node), attached: map[model.PodID][]netip.Addr{}}
	if k.bridge != nil {
		var err error
		if d.forwarding, err = k.bridge.forwarding(); err != nil {
			return nil, err
		}
	}
	var err error
	if d.backend, err = felixlike.NewBackend(context.Background(), choice); err != nil {
		return nil, err
	}
	if d.backend.Decides != nil {
		d.backend.Decides()
	}
	return d, nil
}

func (d *dataplane) close() error {
	if d.backend.Close == nil {
		return nil
	}
	return d.backend.Close()
}

// remove removes what the backend has programmed, behind its back.
func (d *dataplane) remove() error {
	other, err := newDataplane(d.backend.Name, d.node, d.kernel)
	if err != nil {
		return err
	}
	if err := other.backend.Remove(context.Background(), ""); err != nil {
		return err
	}
	d.changed = true
	return other.close()
}

// stages are what is programmed, in order: policy before forwarding, as in the
// agent.
func (d *dataplane) stages() []felixlike.Stage {
	all := []felixlike.Stage{d.backend.Stage}
	if d.forwarding != nil {
		all = append(all, *d.forwarding)
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

// attach tells of a pod's interface, and detach that it is gone.
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

// flush hands to the managers what the engine has come to.
func (d *dataplane) flush() { d.update(d.engine.Flush()...) }

// apply programs what the managers want.
func (d *dataplane) apply() (done felixlike.Applied, err error) {
	d.flush()
	for _, s := range d.stages() {
		for _, m := range s.Managers {
			m.CompleteDeferredWork()
		}
		one, err := s.Apply(context.Background())
		if err != nil {
			return done, fmt.Errorf("stage %s: %w", s.Name, err)
		}
		done.Writes += one.Writes
		done.Refused = append(done.Refused, one.Refused...)
	}
	d.changed = d.changed || done.Writes > 0
	return done, nil
}

// invalidate makes the next apply read what the kernel holds.
func (d *dataplane) invalidate() {
	for _, s := range d.stages() {
		s.Invalidate()
	}
}
