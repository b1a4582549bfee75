package ovsdb

import (
	"context"
	"fmt"

	"github.com/ovn-kubernetes/libovsdb/model"
	"github.com/ovn-kubernetes/libovsdb/ovsdb"
)

// RemoveBridges removes the bridges that are marked as ours, with all their ports,
// and returns their names.
func (c *Client) RemoveBridges(ctx context.Context) ([]string, error) {
	bridges, err := list[bridgeRow](ctx, c)
	if err != nil {
		return nil, fmt.Errorf("look for bridges: %w", err)
	}
	var names, uuids []string
	for _, b := range bridges {
		if role := b.ExternalIDs[keyRole]; role == roleIntegration || role == rolePhysical {
			names, uuids = append(names, b.Name), append(uuids, b.UUID)
		}
	}
	if len(uuids) == 0 {
		return nil, nil
	}
	root, err := find(ctx, c, func(*rootRow) bool { return true })
	if err != nil {
		return nil, fmt.Errorf("remove bridges: %w", err)
	}
	ops, err := c.db.Where(root).Mutate(root, model.Mutation{Field: &root.Bridges, Mutator: ovsdb.MutateOperationDelete, Value: uuids})
	if err != nil {
		return nil, fmt.Errorf("remove bridges: %w", err)
	}
	if err := c.write(ctx, ops); err != nil {
		return nil, fmt.Errorf("remove bridges: %w", err)
	}
	return names, nil
}
