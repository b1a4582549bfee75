package ovsdb

import (
	"context"
	"errors"
	"fmt"

	"github.com/ovn-kubernetes/libovsdb/model"
	"github.com/ovn-kubernetes/libovsdb/ovsdb"
)

// writeNoted is write for operations that remove a port: caughtUp waits until
// ovs-vswitchd has seen them.
func (c *Client) writeNoted(ctx context.Context, ops []ovsdb.Operation) error {
	root, err := find(ctx, c, func(*rootRow) bool { return true })
	if err != nil || root == nil {
		return errors.Join(err, c.write(ctx, ops))
	}
	where := c.db.Where(root)
	raise, err := where.Mutate(root, model.Mutation{Field: &root.NextConfig, Mutator: ovsdb.MutateOperationAdd, Value: 1})
	if err != nil {
		return err
	}
	ops = append(ops, raise...)
	ops = append(ops, ovsdb.Operation{Op: ovsdb.OperationSelect, Table: raise[0].Table, Where: raise[0].Where, Columns: []string{"next_cfg"}})
	results, err := c.transact(ctx, ops)
	if err != nil {
		return err
	}
	rows := results[len(results)-1].Rows
	if len(rows) != 1 {
		return fmt.Errorf("ovsdb transaction: %d rows of configuration", len(rows))
	}
	number, ok := rows[0]["next_cfg"].(float64)
	if !ok {
		return fmt.Errorf("ovsdb transaction: next_cfg is %v", rows[0]["next_cfg"])
	}
	for {
		before := c.removed.Load()
		if int64(number) <= before || c.removed.CompareAndSwap(before, int64(number)) {
			return nil
		}
	}
}

// caughtUp waits until ovs-vswitchd has closed the ports that were removed so far.
// When ovs-vswitchd closes an interface, it restores the interface's earlier flags by
// name. It sets a new interface of that name down (seen with 3.1): no packet passes,
// although the port looks right. If ovs-vswitchd sees the removal and the return of a
// port in one update, it takes both for one port and keeps the interface that is gone.
func (c *Client) caughtUp(ctx context.Context) error {
	wanted := -1
	err := c.wait(ctx, func() (bool, error) {
		root, err := find(ctx, c, func(*rootRow) bool { return true })
		if err != nil || root == nil {
			return root == nil, err
		}
		if wanted < 0 {
			wanted = max(root.NextConfig, int(c.removed.Load()))
		}
		return root.CurrentConfig >= wanted, nil
	})
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("ovs-vswitchd has not seen the earlier removal: %w", err)
	}
	return err
}
