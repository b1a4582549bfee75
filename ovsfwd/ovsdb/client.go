package ovsdb

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/ovn-kubernetes/libovsdb/cache"
	"github.com/ovn-kubernetes/libovsdb/client"
	"github.com/ovn-kubernetes/libovsdb/model"
	"github.com/ovn-kubernetes/libovsdb/ovsdb"
)

// reconnectEvery is the pause between attempts to reach a lost ovsdb-server.
const reconnectEvery = 200 * time.Millisecond

// Client is a connection to ovsdb-server that comes back by itself, with a
// copy of the tables in use.
type Client struct {
	cfg    Config
	db     client.Client
	writes atomic.Int64
	// removed is the configuration in which this client removed a port last.
	removed atomic.Int64
	// uplinkPort is the OpenFlow port of the uplink.
	uplinkPort uint32
	change     broadcast
}

// steady is a back-off that never gives up: libovsdb panics when one does.
type steady time.Duration

func (s steady) NextBackOff() time.Duration { return time.Duration(s) }
func (s steady) Reset()                     {}

// Open connects and reads the tables.
func Open(ctx context.Context, cfg Config) (*Client, error) {
	dbModel, err := databaseModel()
	if err != nil {
		return nil, fmt.Errorf("ovsdb model: %w", err)
	}
	quiet := logr.Discard()
	db, err := client.NewOVSDBClient(dbModel, client.WithEndpoint("unix:"+cfg.Socket), client.WithLogger(&quiet),
		client.WithReconnect(5*time.Second, steady(reconnectEvery)))
	if err != nil {
		return nil, fmt.Errorf("ovsdb %s: %w", cfg.Socket, err)
	}
	c := &Client{cfg: cfg, db: db}
	if err := db.Connect(ctx); err != nil {
		return nil, fmt.Errorf("ovsdb %s: %w", cfg.Socket, err)
	}
	db.Cache().AddEventHandler(&cache.EventHandlerFuncs{
		AddFunc:    func(string, model.Model) { c.change.send() },
		UpdateFunc: func(string, model.Model, model.Model) { c.change.send() },
		DeleteFunc: func(string, model.Model) { c.change.send() },
	})
	if _, err := db.Monitor(ctx, monitored(db)); err != nil {
		db.Close()
		return nil, fmt.Errorf("ovsdb %s: monitor: %w", cfg.Socket, err)
	}
	return c, nil
}

// Close ends the connection.
func (c *Client) Close() { c.db.Close() }

// Writes returns the number of mutating operations sent so far.
func (c *Client) Writes() int { return int(c.writes.Load()) }

// write sends operations in one transaction. No operations send nothing.
func (c *Client) write(ctx context.Context, ops []ovsdb.Operation) error {
	if len(ops) == 0 {
		return nil
	}
	_, err := c.transact(ctx, ops)
	return err
}

// transact sends operations in one transaction and returns the result of each.
func (c *Client) transact(ctx context.Context, ops []ovsdb.Operation) ([]ovsdb.OperationResult, error) {
	c.writes.Add(int64(len(ops)))
	results, err := c.db.Transact(ctx, ops...)
	if err != nil {
		return nil, fmt.Errorf("ovsdb transaction: %w", err)
	}
	opErrors, err := ovsdb.CheckOperationResults(results, ops)
	if err != nil {
		for _, e := range opErrors {
			err = errors.Join(err, e)
		}
		return nil, fmt.Errorf("ovsdb transaction: %w", err)
	}
	return results, nil
}

// wait calls ready after each change of the database until it reports true or
// an error.
func (c *Client) wait(ctx context.Context, ready func() (bool, error)) error {
	for {
		changed := c.change.wait()
		if done, err := ready(); done || err != nil {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// ofport waits for the OpenFlow port number of an interface, which comes some
// time after its row: the row's ofport can be empty although ovs-vswitchd says
// that it has caught up.
func (c *Client) ofport(ctx context.Context, name string) (uint32, error) {
	var port uint32
	err := c.wait(ctx, func() (bool, error) {
		row, err := c.findInterface(ctx, name)
		if err != nil || row == nil {
			return false, err
		}
		switch {
		case row.Error != nil && *row.Error != "":
			return false, errors.New(*row.Error)
		case row.OFPort == nil:
			return false, nil
		case *row.OFPort < 0:
			return false, errors.New("ovs-vswitchd could not open it")
		}
		port = uint32(*row.OFPort)
		return port > 0, nil
	})
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("ovs-vswitchd has not opened it%s: %w", c.cfg.whyNot(), err)
	}
	if err != nil {
		return 0, fmt.Errorf("bridge %s: port %s: %w", c.cfg.Bridge, name, err)
	}
	return port, nil
}

func (c *Client) findInterface(ctx context.Context, name string) (*interfaceRow, error) {
	return find(ctx, c, func(r *interfaceRow) bool { return r.Name == name })
}

func (c *Client) findPort(ctx context.Context, name string) (*portRow, error) {
	return find(ctx, c, func(r *portRow) bool { return r.Name == name })
}

func (c *Client) findBridge(ctx context.Context, name string) (*bridgeRow, error) {
	return find(ctx, c, func(r *bridgeRow) bool { return r.Name == name })
}

// CheckSecure returns an error unless the bridge forwards by flows alone, as EnsureBridge
// makes it. Any other bridge without flows forwards every packet.
func (c *Client) CheckSecure(ctx context.Context) error {
	bridge, err := c.findBridge(ctx, c.cfg.Bridge)
	switch {
	case err != nil:
		return fmt.Errorf("bridge %s: %w", c.cfg.Bridge, err)
	case bridge == nil:
		return fmt.Errorf("bridge %s does not exist", c.cfg.Bridge)
	case bridge.FailMode == nil || *bridge.FailMode != failSecure:
		return fmt.Errorf("bridge %s does not have fail_mode=%s: another program has made it", c.cfg.Bridge, failSecure)
	}
	return nil
}

// Userspace reports whether the bridge's datapath is Open vSwitch's own in
// userspace. It is an error if there is no bridge.
func (c *Client) Userspace(ctx context.Context) (bool, error) {
	bridge, err := c.findBridge(ctx, c.cfg.Bridge)
	if err == nil && bridge == nil {
		err = errors.New("it does not exist")
	}
	if err != nil {
		return false, fmt.Errorf("datapath of bridge %s: %w", c.cfg.Bridge, err)
	}
	return bridge.DatapathType == DatapathNetdev, nil
}

// list reads a whole table. Only the client's own List sees the tables before
// or after a reconnection; WhereCache sees them half filled.
func list[T any](ctx context.Context, c *Client) ([]*T, error) {
	var rows []*T
	if err := c.db.List(ctx, &rows); err != nil {
		return nil, fmt.Errorf("ovsdb: %w", err)
	}
	// List gives up waiting for a consistent state when ctx ends.
	return rows, ctx.Err()
}

// find returns the first row that matches, nil for none.
func find[T any](ctx context.Context, c *Client, match func(*T) bool) (*T, error) {
	rows, err := list[T](ctx, c)
	if err != nil {
		return nil, err
	}
	if i := slices.IndexFunc(rows, match); i >= 0 {
		return rows[i], nil
	}
	return nil, nil
}

// broadcast wakes all waiters at each change.
type broadcast struct {
	mu sync.Mutex
	ch chan struct{}
}

func (b *broadcast) wait() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ch == nil {
		b.ch = make(chan struct{})
	}
	return b.ch
}

func (b *broadcast) send() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ch != nil {
		close(b.ch)
		b.ch = nil
	}
}
