package ovsdb

import (
	"context"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"
)

// RemoveOtherConfig removes a key from other_config of the database's root row if
// external_ids of that row has the mark with the value "true". It reports whether the mark
// is there. The server checks the mark, because the local copy may be old.
func (c *Client) RemoveOtherConfig(ctx context.Context, key, mark string) (bool, error) {
	marked, err := ovsdb.NewOvsMap(map[string]string{mark: "true"})
	if err != nil {
		return false, err
	}
	keys, err := ovsdb.NewOvsSet([]string{key})
	if err != nil {
		return false, err
	}
	results, err := c.transact(ctx, []ovsdb.Operation{{
		Op: ovsdb.OperationMutate, Table: "Open_vSwitch",
		Where:     []ovsdb.Condition{ovsdb.NewCondition("external_ids", ovsdb.ConditionIncludes, marked)},
		Mutations: []ovsdb.Mutation{*ovsdb.NewMutation("other_config", ovsdb.MutateOperationDelete, keys)},
	}})
	return err == nil && len(results) > 0 && results[0].Count > 0, err
}
