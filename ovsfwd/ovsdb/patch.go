package ovsdb

import (
	"slices"

	"github.com/ovn-kubernetes/libovsdb/model"
	"github.com/ovn-kubernetes/libovsdb/ovsdb"
)

// patchVLAN keeps NORMAL of PhysicalBridge, which floods what it has not learned, from the patches: only the actions that name
// their ports use them.
const patchVLAN = 4000

// patchEnds names the two ends of a patch.
type patchEnds struct {
	integration, physical string
	port                  uint32
}

func patches() []patchEnds {
	return []patchEnds{{"flx-snat-up", "phy-snat-up", SNATUplinkOFPort}, {"flx-snat-host", "phy-snat-host", SNATHostOFPort}}
}

func (c Config) patch(name, peer string, port uint32) interfaceRow {
	return interfaceRow{
		Name: name, Type: "patch", OFPortRequest: ptr(int(port)), ExternalIDs: c.marks(rolePatch), Options: map[string]string{"peer": peer},
	}
}

// unpatch removes the patches from both bridges.
func (p *plan) unpatch() error {
	ports, err := list[portRow](p.ctx, p.c)
	if err != nil {
		return err
	}
	gone := map[string]bool{}
	for _, port := range ports {
		if slices.ContainsFunc(patches(), func(e patchEnds) bool { return port.Name == e.integration || port.Name == e.physical }) {
			gone[port.UUID] = true
		}
	}
	if len(gone) == 0 {
		return nil
	}
	for _, name := range []string{p.c.cfg.Bridge, PhysicalBridge} {
		b, err := p.c.findBridge(p.ctx, name)
		if err != nil {
			return err
		}
		if b == nil {
			continue
		}
		here := slices.DeleteFunc(slices.Clone(b.Ports), func(uuid string) bool { return !gone[uuid] })
		if len(here) == 0 {
			continue
		}
		if err := p.add(p.c.db.Where(b).Mutate(b, model.Mutation{Field: &b.Ports, Mutator: ovsdb.MutateOperationDelete, Value: here})); err != nil {
			return err
		}
	}
	return nil
}

// UplinkPort returns the OpenFlow port of the uplink on PhysicalBridge, once EnsureBridge has succeeded.
func (c *Client) UplinkPort() uint32 { return c.uplinkPort }
