package cni

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/felixlike/felixlike/cni/record"
	"github.com/felixlike/felixlike/model"
)

// Chained are the pods whose interfaces another plugin has made. Files keep them over a restart of the agent. Its methods may be
// called from any goroutine.
type Chained struct {
	dir record.Dir
	log *slog.Logger

	mu sync.Mutex
	// unadopted are the pods that Adopt could not record.
	unadopted []unadopted
	// all are the attachments, by the names of the host's interfaces.
	all map[string]model.Attachment
	// update is that of the watch; nil without one.
	update func(model.Update)
}

// NewChained reads the records beside the socket of the CNI plugin.
func NewChained(socket string, log *slog.Logger) (*Chained, error) {
	c := &Chained{dir: recordsOf(socket), log: log}
	var err error
	if c.all, err = c.dir.Load(); c.all == nil {
		return nil, fmt.Errorf("records of pods: %w", err)
	}
	if err != nil {
		log.Warn("the record of a pod cannot be read: it has no policy unless the runtime keeps the result of its plugins", "error", err)
	}
	return c, nil
}

// tendEvery is the time between two looks of Tend.
const tendEvery = 5 * time.Second

// Tend looks again and again, until ctx ends, for pods that another plugin attached alone (Adopt), and for records whose
// interface and network namespace are gone, which the runtime has not removed.
func (c *Chained) Tend(ctx context.Context, results string) error {
	tick := time.NewTicker(tendEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		err := c.remove(func(a model.Attachment) bool { return namespaceGone(a.NetNS) && isGone(a.Interface) })
		if err = errors.Join(err, c.Adopt(results)); err != nil {
			c.log.Warn("pods of other plugins cannot be looked for", "error", err)
		}
	}
}

// otherInterface returns another interface of the same sandbox, or "".
func (c *Chained) otherInterface(a model.Attachment) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, b := range c.all {
		if b.Sandbox == a.Sandbox && b.PodInterface != a.PodInterface {
			return b.PodInterface
		}
	}
	return ""
}

func isGone(iface string) bool {
	_, err := netlink.LinkByName(iface)
	var missing netlink.LinkNotFoundError
	return errors.As(err, &missing)
}

// Attachments returns the pods.
func (c *Chained) Attachments(context.Context) ([]model.Attachment, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Values(c.all)), nil
}

// Bridged reports whether a pod is at a bridge.
func (c *Chained) Bridged() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, a := range c.all {
		if a.Bridge != "" {
			return true
		}
	}
	return false
}

// Watch delivers the pods, then calls synced, then delivers changes, until ctx ends. It may run once at a time.
func (c *Chained) Watch(ctx context.Context, update func(model.Update), synced func()) error {
	c.mu.Lock()
	for _, name := range slices.Sorted(maps.Keys(c.all)) {
		a := c.all[name]
		update(model.AttachmentUpdate{Attachment: &a})
	}
	synced()
	c.update = update
	c.mu.Unlock()
	<-ctx.Done()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.update = nil
	return ctx.Err()
}

func (c *Chained) has(a model.Attachment) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	have, known := c.all[a.Interface]
	return known && sameAttachment(have, a)
}

// put records a pod, and reports whether its record is new. Other pods with one of its addresses are forgotten
// if their interface is gone.
func (c *Chained) put(a model.Attachment) (fresh bool, err error) {
	err = c.remove(func(b model.Attachment) bool {
		return b.Interface != a.Interface && slices.ContainsFunc(b.Addresses, func(addr netip.Addr) bool { return slices.Contains(a.Addresses, addr) }) && isGone(b.Interface)
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	have, known := c.all[a.Interface]
	if known && sameAttachment(have, a) {
		return false, err
	}
	if known && have.Pod != a.Pod {
		c.forget(have)
	}
	if err := errors.Join(err, c.dir.Write(a)); err != nil {
		return true, fmt.Errorf("record of pod %s: %w", a.Pod, err)
	}
	c.all[a.Interface] = a
	if c.update != nil {
		c.update(model.AttachmentUpdate{Attachment: &a})
	}
	return true, nil
}

// remove forgets the pods that match.
func (c *Chained) remove(match func(model.Attachment) bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(c.all)) {
		a := c.all[name]
		if !match(a) {
			continue
		}
		if err := c.dir.Remove(name); err != nil {
			errs = append(errs, fmt.Errorf("record of pod %s: %w", a.Pod, err))
			continue
		}
		c.forget(a)
	}
	return errors.Join(errs...)
}

func (c *Chained) forget(a model.Attachment) {
	delete(c.all, a.Interface)
	if c.update != nil {
		c.update(model.AttachmentRemove{Pod: a.Pod, Interface: a.Interface})
	}
}
