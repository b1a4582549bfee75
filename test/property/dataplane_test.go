package property

import (
	"context"
	"net/netip"
	"os/exec"
	"strings"
	"testing"

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
	for _, tool := range tools {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("needs the tool %s", tool)
		}
	}
}

// dataplane is what decides policy on a node: the policy engine, and a backend
// with its managers that programs the kernel.
type dataplane struct {
	node    string
	engine  *policy.Engine
	backend felixlike.Backend
	netns   int
}

// newDataplane returns the dataplane of a node that has been told nothing yet, in
// the network namespace of that descriptor.
func newDataplane(backend, node string, netns int) (*dataplane, error) {
	b, err := felixlike.NewBackend(context.Background(), felixlike.Choice{Name: backend, Node: node, NetNS: netns})
	if err != nil {
		return nil, err
	}
	if b.Decides != nil {
		b.Decides()
	}
	return &dataplane{node: node, engine: policy.New(node), backend: b, netns: netns}, nil
}

func (d *dataplane) close() error {
	if d.backend.Close == nil {
		return nil
	}
	return d.backend.Close()
}

// remove removes what the backend has programmed, behind its back.
func (d *dataplane) remove() error {
	other, err := newDataplane(d.backend.Name, d.node, d.netns)
	if err != nil {
		return err
	}
	if err := other.backend.Remove(context.Background(), ""); err != nil {
		return err
	}
	return other.close()
}

// update hands updates to the managers.
func (d *dataplane) update(updates ...model.Update) {
	for _, u := range updates {
		for _, m := range d.backend.Stage.Managers {
			m.OnUpdate(u)
		}
	}
}

// attach tells of a pod's interface, and detach that it is gone.
func (d *dataplane) attach(id model.PodID, addresses []netip.Addr) {
	d.engine.SetLocalAddresses(id, addresses)
	d.update(model.AttachmentUpdate{Attachment: &model.Attachment{Pod: id, Interface: id.String(), Addresses: addresses}})
}

func (d *dataplane) detach(id model.PodID) {
	d.engine.SetLocalAddresses(id, nil)
	d.update(model.AttachmentRemove{Pod: id, Interface: id.String()})
}

// flush hands to the managers what the engine has come to.
func (d *dataplane) flush() { d.update(d.engine.Flush()...) }

// apply programs what the managers want.
func (d *dataplane) apply() (felixlike.Applied, error) {
	d.flush()
	for _, m := range d.backend.Stage.Managers {
		m.CompleteDeferredWork()
	}
	return d.backend.Stage.Apply(context.Background())
}
