package ovsdb

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/ovn-kubernetes/libovsdb/model"
	"github.com/ovn-kubernetes/libovsdb/ovsdb"
)

// The keys of external_ids that mark rows as ours: which node, which part.
const (
	keyNode = "felixlike-node"
	keyRole = "felixlike-role"
	// The two bridges, and the interface that PhysicalBridge has taken in.
	roleIntegration = "integration"
	rolePhysical    = "physical"
	roleUplink      = "uplink"
	rolePatch       = "patch"
)

// EnsureBridge makes the bridge, its gateway port and its tunnel port in one
// transaction. On a netdev datapath with an uplink it also makes the second
// bridge. In existing rows it changes only the columns that differ, so a second
// call sends nothing. It returns when ovs-vswitchd has opened the ports.
func (c *Client) EnsureBridge(ctx context.Context) error {
	if err := c.cfg.validate(); err != nil {
		return fmt.Errorf("bridge %s: %w", c.cfg.Bridge, err)
	}
	wanted := []bridgeSpec{c.cfg.integration()}
	if c.cfg.hasPhysical() {
		wanted = append(wanted, c.cfg.physical())
	}
	p := plan{c: c, ctx: ctx}
	if !c.cfg.SNAT {
		if err := p.unpatch(); err != nil {
			return fmt.Errorf("remove the patches between the bridges: %w", err)
		}
	}
	var ports []string
	for _, b := range wanted {
		if err := p.bridge(b); err != nil {
			return fmt.Errorf("bridge %s: %w", b.row.Name, err)
		}
		for _, i := range b.interfaces {
			ports = append(ports, i.Name)
		}
	}
	if err := p.timeouts(c.cfg.DatapathType, c.cfg.Zones); err != nil {
		return fmt.Errorf("timeouts of zones %d: %w", c.cfg.Zones, err)
	}
	if err := c.write(ctx, p.ops); err != nil {
		return fmt.Errorf("bridge %s: %w", c.cfg.Bridge, err)
	}
	for _, name := range ports {
		// The local port of a bridge is 65534, known without a wait.
		if name == c.cfg.Bridge || name == PhysicalBridge {
			continue
		}
		n, err := c.ofport(ctx, name)
		if err != nil {
			return err
		}
		if name == c.cfg.Uplink {
			c.uplinkPort = n
		}
		// The pipeline treats packets from the gateway's port number as the host's.
		// Another port that got the number earlier must not pass for the gateway.
		if want, fixed := c.cfg.fixedPorts()[name]; fixed && n != want {
			return fmt.Errorf("bridge %s: port %s has OpenFlow port %d, but must have %d: another port had that before it (remove that port and %s)",
				c.cfg.Bridge, name, n, want, name)
		}
	}
	return nil
}

// failSecure is the fail_mode of a bridge that forwards by flows alone
// (ovs-vswitchd.conf.db(5)).
const failSecure = "secure"

// fixedPorts are the OpenFlow ports that the pipeline relies on, by name.
func (c Config) fixedPorts() map[string]uint32 {
	fixed := map[string]uint32{c.Tunnel: TunnelOFPort, c.Gateway: GatewayOFPort}
	for _, e := range patches() {
		fixed[e.integration], fixed[e.physical] = e.port, e.port
	}
	return fixed
}

// bridgeSpec is a bridge as it should be. The columns that are set are ours;
// map columns are merged key by key.
type bridgeSpec struct {
	row        bridgeRow
	interfaces []interfaceRow
}

func (c Config) marks(role string) map[string]string {
	return map[string]string{keyNode: c.NodeName, keyRole: role}
}

func (c Config) integration() bridgeSpec {
	mtu := &c.MTU
	if c.MTU == 0 {
		mtu = nil
	}
	spec := bridgeSpec{
		row: bridgeRow{
			Name: c.Bridge, DatapathType: c.DatapathType, FailMode: ptr(failSecure),
			Protocols: []string{"OpenFlow13", "OpenFlow15"}, ExternalIDs: c.marks(roleIntegration),
		},
		interfaces: []interfaceRow{
			{Name: c.Bridge, Type: "internal", ExternalIDs: c.marks("local")},
			{
				Name: c.Gateway, Type: "internal", OFPortRequest: ptr(GatewayOFPort),
				MAC: ptr(c.GatewayMAC.String()), MTURequest: mtu, ExternalIDs: c.marks("gateway"),
			},
			{
				Name: c.Tunnel, Type: c.TunnelType, OFPortRequest: ptr(TunnelOFPort), ExternalIDs: c.marks("tunnel"),
				Options: map[string]string{"remote_ip": "flow", "key": "flow", "local_ip": c.LocalIP.Unmap().String()},
			},
		},
	}
	if c.SNAT {
		for _, e := range patches() {
			spec.interfaces = append(spec.interfaces, c.patch(e.integration, e.physical, e.port))
		}
	}
	return spec
}

// physical is the bridge that carries the uplink. Its local port takes over
// the uplink's MAC address, so that neighbours need not learn a new one.
func (c Config) physical() bridgeSpec {
	spec := bridgeSpec{
		row: bridgeRow{
			Name: PhysicalBridge, DatapathType: DatapathNetdev, FailMode: ptr("standalone"),
			OtherConfig: map[string]string{"hwaddr": c.UplinkMAC.String()}, ExternalIDs: c.marks(rolePhysical),
		},
		interfaces: []interfaceRow{
			{Name: PhysicalBridge, Type: "internal", ExternalIDs: c.marks("local")},
			{Name: c.Uplink, ExternalIDs: c.marks(roleUplink)},
		},
	}
	if c.SNAT {
		for _, e := range patches() {
			spec.interfaces = append(spec.interfaces, c.patch(e.physical, e.integration, e.port))
		}
	}
	return spec
}

func ptr[T any](v T) *T { return &v }

// plan collects the operations that lead to the desired rows.
type plan struct {
	c   *Client
	ctx context.Context
	ops []ovsdb.Operation
	// names counts the named rows that the transaction inserts.
	names int
}

func (p *plan) add(ops []ovsdb.Operation, err error) error {
	p.ops = append(p.ops, ops...)
	return err
}

// name returns a name by which operations of one transaction refer to a row
// that it inserts.
func (p *plan) name() string {
	p.names++
	return fmt.Sprintf("row%d", p.names)
}

// bridge makes a bridge with its ports, or updates an existing one to the
// desired state.
func (p *plan) bridge(want bridgeSpec) error {
	have, err := p.c.findBridge(p.ctx, want.row.Name)
	if err != nil {
		return err
	}
	if want.row.ExternalIDs[keyRole] == roleIntegration {
		var tables map[int]string
		if have != nil {
			tables = have.FlowTables
		}
		if want.row.FlowTables, err = p.tablesWith(tables); err != nil {
			return fmt.Errorf("prefixes of tables: %w", err)
		}
	}
	var missing []string
	for _, i := range want.interfaces {
		port, err := p.port(i, have)
		if err != nil {
			return fmt.Errorf("port %s: %w", i.Name, err)
		}
		if port != "" {
			missing = append(missing, port)
		}
	}
	if have == nil {
		return p.newBridge(want.row, missing)
	}
	if len(missing) > 0 {
		if err := p.add(p.c.db.Where(have).Mutate(have, insertUUIDs(&have.Ports, missing))); err != nil {
			return err
		}
	}
	return p.updateBridge(have, want.row)
}

func (p *plan) newBridge(row bridgeRow, ports []string) error {
	root, err := find(p.ctx, p.c, func(*rootRow) bool { return true })
	if err != nil {
		return err
	}
	if root == nil {
		return fmt.Errorf("database has no Open_vSwitch row (ovs-vsctl init)")
	}
	row.UUID, row.Ports = p.name(), ports
	if err := p.add(p.c.db.Create(&row)); err != nil {
		return err
	}
	return p.add(p.c.db.Where(root).Mutate(root, insertUUIDs(&root.Bridges, []string{row.UUID})))
}

func (p *plan) updateBridge(have *bridgeRow, want bridgeRow) error {
	var fields []any
	if have.DatapathType != want.DatapathType {
		have.DatapathType = want.DatapathType
		fields = append(fields, &have.DatapathType)
	}
	if !equalPtr(have.FailMode, want.FailMode) {
		have.FailMode = want.FailMode
		fields = append(fields, &have.FailMode)
	}
	if want.Protocols != nil && !slices.Equal(slices.Sorted(slices.Values(have.Protocols)), want.Protocols) {
		have.Protocols = want.Protocols
		fields = append(fields, &have.Protocols)
	}
	if merge(&have.OtherConfig, want.OtherConfig) {
		fields = append(fields, &have.OtherConfig)
	}
	if merge(&have.ExternalIDs, want.ExternalIDs) {
		fields = append(fields, &have.ExternalIDs)
	}
	if want.FlowTables != nil && !maps.Equal(have.FlowTables, want.FlowTables) {
		have.FlowTables = want.FlowTables
		fields = append(fields, &have.FlowTables)
	}
	if len(fields) == 0 {
		return nil
	}
	return p.add(p.c.db.Where(have).Update(have, fields...))
}

// port makes a port with its one interface, or updates the interface. It
// returns the name of a port row that the bridge does not have yet.
func (p *plan) port(want interfaceRow, bridge *bridgeRow) (string, error) {
	have, err := p.c.findInterface(p.ctx, want.Name)
	if err != nil {
		return "", err
	}
	if have != nil {
		port, err := p.c.findPort(p.ctx, want.Name)
		if err != nil {
			return "", err
		}
		if port == nil || bridge == nil || !slices.Contains(bridge.Ports, port.UUID) {
			return "", fmt.Errorf("exists, but not on this bridge")
		}
		return "", p.updateInterface(have, want)
	}
	want.UUID = p.name()
	port := portRow{UUID: p.name(), Name: want.Name, Interfaces: []string{want.UUID}}
	if want.ExternalIDs[keyRole] == rolePatch {
		port.Tag = ptr(patchVLAN)
	}
	if err := p.add(p.c.db.Create(&want)); err != nil {
		return "", err
	}
	return port.UUID, p.add(p.c.db.Create(&port))
}

func (p *plan) updateInterface(have *interfaceRow, want interfaceRow) error {
	var fields []any
	if have.Type != want.Type {
		have.Type = want.Type
		fields = append(fields, &have.Type)
	}
	if want.MAC != nil && !equalPtr(have.MAC, want.MAC) {
		have.MAC = want.MAC
		fields = append(fields, &have.MAC)
	}
	if want.MTURequest != nil && !equalPtr(have.MTURequest, want.MTURequest) {
		have.MTURequest = want.MTURequest
		fields = append(fields, &have.MTURequest)
	}
	if want.OFPortRequest != nil && !equalPtr(have.OFPortRequest, want.OFPortRequest) {
		have.OFPortRequest = want.OFPortRequest
		fields = append(fields, &have.OFPortRequest)
	}
	if want.Options != nil && !maps.Equal(have.Options, want.Options) {
		have.Options = want.Options
		fields = append(fields, &have.Options)
	}
	if merge(&have.ExternalIDs, want.ExternalIDs) {
		fields = append(fields, &have.ExternalIDs)
	}
	if len(fields) == 0 {
		return nil
	}
	return p.add(p.c.db.Where(have).Update(have, fields...))
}

// merge puts wanted keys into a map column, keeping all others, and reports
// whether that changed it. The map itself is replaced, since rows of the cache
// are shared.
func merge(have *map[string]string, want map[string]string) bool {
	merged := maps.Clone(*have)
	if merged == nil {
		merged = map[string]string{}
	}
	maps.Copy(merged, want)
	if maps.Equal(*have, merged) {
		return false
	}
	*have = merged
	return true
}

func equalPtr[T comparable](a, b *T) bool {
	return (a == nil) == (b == nil) && (a == nil || *a == *b)
}

func insertUUIDs(field *[]string, uuids []string) model.Mutation {
	return model.Mutation{Field: field, Mutator: insert, Value: uuids}
}

const insert = ovsdb.MutateOperationInsert
