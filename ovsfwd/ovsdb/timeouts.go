package ovsdb

import (
	"errors"

	"github.com/ovn-kubernetes/libovsdb/model"
)

// kernelTimeouts are those of the kernel's connection tracking, in seconds, that
// the userspace datapath's differ from: it forgets an exchange of datagrams after 30
// seconds of silence, so that a later answer would have to be allowed by itself.
func kernelTimeouts() map[string]int { return map[string]int{"udp_multiple": 120} }

// timeouts gives the connections of the zones the kernel's timeouts. It leaves the
// timeouts alone that an administrator has set for a zone.
func (p *plan) timeouts(datapathType string, wanted []uint16) error {
	if datapathType != DatapathNetdev {
		return nil
	}
	root, err := find(p.ctx, p.c, func(*rootRow) bool { return true })
	if err != nil {
		return err
	}
	var datapath *datapathRow
	if root != nil {
		if datapath, err = find(p.ctx, p.c, func(r *datapathRow) bool { return r.UUID == root.Datapaths[datapathType] }); err != nil {
			return err
		}
	}
	zones := map[int]string{}
	for _, zone := range wanted {
		if datapath != nil && datapath.Zones[int(zone)] != "" {
			continue
		}
		policy := timeoutPolicyRow{UUID: p.name(), Timeouts: kernelTimeouts()}
		row := zoneRow{UUID: p.name(), TimeoutPolicy: &policy.UUID}
		if err := errors.Join(p.add(p.c.db.Create(&policy)), p.add(p.c.db.Create(&row))); err != nil {
			return err
		}
		zones[int(zone)] = row.UUID
	}
	if len(zones) == 0 {
		return nil
	}
	if datapath != nil {
		return p.add(p.c.db.Where(datapath).Mutate(datapath, model.Mutation{Field: &datapath.Zones, Mutator: insert, Value: zones}))
	}
	datapath = &datapathRow{UUID: p.name(), Zones: zones}
	if err := p.add(p.c.db.Create(datapath)); err != nil || root == nil {
		return err
	}
	datapaths := map[string]string{datapathType: datapath.UUID}
	return p.add(p.c.db.Where(root).Mutate(root, model.Mutation{Field: &root.Datapaths, Mutator: insert, Value: datapaths}))
}
