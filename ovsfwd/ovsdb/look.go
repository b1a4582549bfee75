package ovsdb

import (
	"context"
	"errors"
	"fmt"
)

// ErrNoUplink says that no bridge has taken an uplink in.
var ErrNoUplink = errors.New("no interface is marked as the uplink in the database")

// Uplink returns the interface that PhysicalBridge has taken in.
func (c *Client) Uplink(ctx context.Context) (string, error) {
	row, err := find(ctx, c, func(r *interfaceRow) bool { return r.ExternalIDs[keyRole] == roleUplink })
	if err != nil {
		return "", fmt.Errorf("look for the uplink: %w", err)
	}
	if row == nil {
		return "", ErrNoUplink
	}
	return row.Name, nil
}

// Datapaths returns the types of datapaths that ovs-vswitchd offers, none before
// it has run, and the one that the bridge has, empty if there is no bridge.
func (c *Client) Datapaths(ctx context.Context) (offered []string, has string, err error) {
	root, err := find(ctx, c, func(*rootRow) bool { return true })
	if err != nil {
		return nil, "", fmt.Errorf("look for the datapaths: %w", err)
	}
	if root != nil {
		offered = root.Offers
	}
	bridge, err := c.findBridge(ctx, c.cfg.Bridge)
	if err != nil || bridge == nil {
		return offered, "", err
	}
	return offered, bridge.DatapathType, nil
}

// WaitDatapaths waits until ovs-vswitchd has said which datapaths it offers.
func (c *Client) WaitDatapaths(ctx context.Context) error {
	return c.wait(ctx, func() (bool, error) {
		offered, _, err := c.Datapaths(ctx)
		return len(offered) > 0, err
	})
}
