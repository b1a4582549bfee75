package cni

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/felixlike/felixlike/cni/record"
	"github.com/felixlike/felixlike/model"
)

const (
	// restoreRetry is the time between two attempts to restore a port: the bridge may
	// not exist yet.
	restoreRetry = time.Second
	// restoreTimeout bounds one attempt.
	restoreTimeout = 10 * time.Second
)

// ports restores pods' ports that another program removed from the bridge (ovs-vsctl del-br,
// del-port, a new database), as long as the pod's interface exists. With the port, OVSDB
// loses the record of the attachment. So ports keeps a copy of each record in a file.
type ports struct {
	server *Server
	dir    record.Dir
	// wake ends a wait of restore.
	wake chan struct{}

	mu sync.Mutex
	// records are the attachments that OVSDB had, by interface. lost has the interfaces
	// without a port, with the last error that was logged.
	records map[string]model.Attachment
	lost    map[string]string
}

func newPorts(s *Server) *ports {
	return &ports{
		server: s, dir: recordsOf(s.opts.Socket), wake: make(chan struct{}, 1),
		records: map[string]model.Attachment{}, lost: map[string]string{},
	}
}

// keep restores ports until ctx ends.
func (p *ports) keep(ctx context.Context) {
	if err := p.load(); err != nil {
		p.server.opts.Log.Warn("cannot read the records of attachments: a port that is lost now will not be restored", "error", err)
	}
	var watching sync.WaitGroup
	defer watching.Wait()
	watching.Go(func() {
		err := p.server.db.WatchAttachments(ctx, p.onUpdate, p.inSync, func(error) {})
		if ctx.Err() == nil {
			p.server.opts.Log.Error("ports that another program removes will not be restored", "error", err)
		}
	})
	for {
		var again <-chan time.Time
		if p.restoreAll(ctx) > 0 {
			again = time.After(restoreRetry)
		}
		select {
		case <-p.wake:
		case <-again:
		case <-ctx.Done():
			return
		}
	}
}

// onUpdate takes an AttachmentUpdate or an AttachmentRemove.
func (p *ports) onUpdate(u model.Update) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch u := u.(type) {
	case model.AttachmentUpdate:
		a := *u.Attachment
		delete(p.lost, a.Interface)
		if a.Sandbox == "" || a.PodInterface == "" {
			return // not attached by a Server
		}
		p.records[a.Interface] = a
		if err := p.dir.Write(a); err != nil {
			p.server.opts.Log.Warn("cannot store the record of an attachment: after a restart, the agent cannot restore this pod's port", "pod", a.Pod.String(), "error", err)
		}
	case model.AttachmentRemove:
		if a, kept := p.records[u.Interface]; kept && a.Pod == u.Pod {
			p.lost[u.Interface] = ""
			p.awake()
		}
	}
}

// inSync looks for ports that were lost while no agent ran. The watch calls it after the
// updates of all existing ports. restore leaves a port alone that exists.
func (p *ports) inSync() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name := range p.records {
		p.lost[name] = ""
	}
	p.awake()
}

func (p *ports) awake() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// restoreAll tries to restore all lost ports, and returns how many are still lost.
func (p *ports) restoreAll(ctx context.Context) (left int) {
	p.mu.Lock()
	names := slices.Sorted(maps.Keys(p.lost))
	p.mu.Unlock()
	for _, name := range names {
		p.mu.Lock()
		a, kept := p.records[name]
		p.mu.Unlock()
		if !kept {
			continue
		}
		back, err := p.restore(ctx, a)
		switch {
		case err != nil && ctx.Err() == nil:
			left++
			p.failed(a, err)
		case err == nil:
			p.done(a, back)
		}
	}
	return left
}

// failed logs why a port cannot be restored, once for each reason.
func (p *ports) failed(a model.Attachment, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if said, lost := p.lost[a.Interface]; lost && said != err.Error() {
		p.lost[a.Interface] = err.Error()
		p.server.opts.Log.Warn("a pod's port is not on the bridge and cannot be restored yet", "pod", a.Pod.String(), "interface", a.Interface, "error", err)
	}
}

// done notes that a port is not lost any more: it is on the bridge again, or the pod is
// gone. The record may already be that of the pod's next sandbox.
func (p *ports) done(a model.Attachment, back bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	name := a.Interface
	if now := p.records[name]; now.Sandbox != a.Sandbox || now.PodInterface != a.PodInterface {
		return
	}
	delete(p.lost, name)
	if back {
		return
	}
	delete(p.records, name)
	if err := p.dir.Remove(name); err != nil {
		p.server.opts.Log.Warn("cannot remove the record of an attachment", "interface", name, "error", err)
	}
}

// restore restores one port, and reports whether it is on the bridge. It does not restore
// the port if the interface is gone or another sandbox has it. No Add or Del of the pod runs
// meanwhile.
func (p *ports) restore(ctx context.Context, a model.Attachment) (back bool, err error) {
	s := p.server
	s.sweeping.RLock()
	defer s.sweeping.RUnlock()
	defer s.pods.lock(a.Pod.String())()
	ctx, cancel := context.WithTimeout(ctx, restoreTimeout)
	defer cancel()
	have, err := s.db.Attachment(ctx, a.Interface)
	if have != nil {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	alias, err := aliasOf(a.Interface)
	if err != nil || alias != (Spec{Owner: a.Sandbox, Interface: a.PodInterface}).alias() {
		return false, err
	}
	// Another program may have made a new bridge of that name, which the agent has not seen yet.
	if err := s.db.CheckSecure(ctx); err != nil {
		return false, err
	}
	if _, err := s.db.AttachPort(ctx, a); err != nil {
		return false, err
	}
	s.opts.Log.Warn("another program removed a pod's port from the bridge; the agent restored it", "pod", a.Pod.String(), "interface", a.Interface)
	return true, nil
}

// load reads the records of an earlier agent.
func (p *ports) load() error {
	all, err := p.dir.Load()
	for name, a := range all {
		if !strings.HasPrefix(name, model.PodInterfacePrefix) {
			err = errors.Join(err, fmt.Errorf("%s is not the interface of a pod", name))
			continue
		}
		p.records[name] = a
	}
	return err
}
