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

// caughtUp waits until ovs-vswitchd has let go of the ports that were removed so far.
// When it closes an interface, it gives it the flags of before, by name: one that
// was made under that name meanwhile is set down (seen with 3.1), and no packet
// gets through, although the port looks as it should. A port that goes and comes
// back at one glance it takes for the same, and keeps the interface that is gone.
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
		return fmt.Errorf("ovs-vswitchd has not seen what was removed before: %w", err)
	}
	return err
}
