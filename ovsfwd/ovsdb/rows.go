package ovsdb

import (
	"maps"

	"github.com/ovn-kubernetes/libovsdb/client"
	"github.com/ovn-kubernetes/libovsdb/model"
)

// The tables of the Open_vSwitch schema, with the columns in use.

type rootRow struct {
	UUID      string            `ovsdb:"_uuid"`
	Bridges   []string          `ovsdb:"bridges"`
	Datapaths map[string]string `ovsdb:"datapaths"`
	// Offers are the types of datapaths that ovs-vswitchd can make.
	Offers []string `ovsdb:"datapath_types"`
	// A client raises NextConfig to learn when ovs-vswitchd has caught up:
	// ovs-vswitchd then writes the same number to CurrentConfig.
	NextConfig    int `ovsdb:"next_cfg"`
	CurrentConfig int `ovsdb:"cur_cfg"`
}

type datapathRow struct {
	UUID  string         `ovsdb:"_uuid"`
	Zones map[int]string `ovsdb:"ct_zones"`
}

type zoneRow struct {
	UUID          string  `ovsdb:"_uuid"`
	TimeoutPolicy *string `ovsdb:"timeout_policy"`
}

type timeoutPolicyRow struct {
	UUID     string         `ovsdb:"_uuid"`
	Timeouts map[string]int `ovsdb:"timeouts"`
}

type bridgeRow struct {
	UUID         string            `ovsdb:"_uuid"`
	Name         string            `ovsdb:"name"`
	DatapathType string            `ovsdb:"datapath_type"`
	FailMode     *string           `ovsdb:"fail_mode"`
	Protocols    []string          `ovsdb:"protocols"`
	Ports        []string          `ovsdb:"ports"`
	OtherConfig  map[string]string `ovsdb:"other_config"`
	ExternalIDs  map[string]string `ovsdb:"external_ids"`
	FlowTables   map[int]string    `ovsdb:"flow_tables"`
}

type flowTableRow struct {
	UUID        string            `ovsdb:"_uuid"`
	Prefixes    []string          `ovsdb:"prefixes"`
	ExternalIDs map[string]string `ovsdb:"external_ids"`
}

type portRow struct {
	UUID        string            `ovsdb:"_uuid"`
	Name        string            `ovsdb:"name"`
	Interfaces  []string          `ovsdb:"interfaces"`
	Tag         *int              `ovsdb:"tag"`
	ExternalIDs map[string]string `ovsdb:"external_ids"`
}

type interfaceRow struct {
	UUID          string            `ovsdb:"_uuid"`
	Name          string            `ovsdb:"name"`
	Type          string            `ovsdb:"type"`
	MAC           *string           `ovsdb:"mac"`
	MTURequest    *int              `ovsdb:"mtu_request"`
	OFPortRequest *int              `ovsdb:"ofport_request"`
	OFPort        *int              `ovsdb:"ofport"`
	Error         *string           `ovsdb:"error"`
	Options       map[string]string `ovsdb:"options"`
	ExternalIDs   map[string]string `ovsdb:"external_ids"`
}

// CloneModel implements model.CloneableModel. Each list of interfaces copies all rows, and the agent lists
// them twice a second. Without this method, libovsdb copies each row by way of JSON.
func (r *interfaceRow) CloneModel() model.Model {
	c := &interfaceRow{}
	r.CloneModelInto(c)
	return c
}

// CloneModelInto implements model.CloneableModel.
func (r *interfaceRow) CloneModelInto(to model.Model) {
	c, is := to.(*interfaceRow)
	if !is {
		return
	}
	*c = *r
	c.MAC, c.Error = cloned(r.MAC), cloned(r.Error)
	c.MTURequest, c.OFPortRequest, c.OFPort = cloned(r.MTURequest), cloned(r.OFPortRequest), cloned(r.OFPort)
	c.Options, c.ExternalIDs = maps.Clone(r.Options), maps.Clone(r.ExternalIDs)
}

func cloned[T any](p *T) *T {
	if p == nil {
		return nil
	}
	c := *p
	return &c
}

func databaseModel() (model.ClientDBModel, error) {
	return model.NewClientDBModel("Open_vSwitch", map[string]model.Model{
		"Open_vSwitch":      &rootRow{},
		"Bridge":            &bridgeRow{},
		"Flow_Table":        &flowTableRow{},
		"Port":              &portRow{},
		"Interface":         &interfaceRow{},
		"Datapath":          &datapathRow{},
		"CT_Zone":           &zoneRow{},
		"CT_Timeout_Policy": &timeoutPolicyRow{},
	})
}

// monitored lists the columns to follow. Without the list the server sends all
// of them, and the library gives up on the first update that holds a column
// which the rows above lack.
func monitored(db client.Client) *client.Monitor {
	var (
		root     rootRow
		bridge   bridgeRow
		port     portRow
		iface    interfaceRow
		datapath datapathRow
		table    flowTableRow
	)
	return db.NewMonitor(
		client.WithTable(&root, &root.Bridges, &root.Datapaths, &root.Offers, &root.NextConfig, &root.CurrentConfig),
		client.WithTable(&datapath, &datapath.Zones),
		client.WithTable(&bridge, &bridge.Name, &bridge.DatapathType, &bridge.FailMode, &bridge.Protocols, &bridge.Ports,
			&bridge.OtherConfig, &bridge.ExternalIDs, &bridge.FlowTables),
		client.WithTable(&table, &table.Prefixes, &table.ExternalIDs),
		client.WithTable(&port, &port.Name, &port.Interfaces, &port.Tag, &port.ExternalIDs),
		client.WithTable(&iface, &iface.Name, &iface.Type, &iface.MAC, &iface.MTURequest, &iface.OFPortRequest, &iface.OFPort,
			&iface.Error, &iface.Options, &iface.ExternalIDs),
	)
}
