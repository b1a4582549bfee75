package node

import (
	"context"
	"sync"
	"time"

	"github.com/felixlike/felixlike/model"
)

// portless tells a port that another program removed (ovs-vsctl del-port, del-br, a new database) from a pod that the CNI detached: after
// CNI DEL the interface is gone too. A pod without a port keeps its addresses, or its connections would end before the port is back.
type portless struct {
	exists func(name string) (bool, error)
	every  time.Duration
	mu     sync.Mutex
	// left are the removals of ports with an interface, by its name.
	left map[string]model.AttachmentRemove
}

func NewPortless() *portless {
	return &portless{exists: interfaceExists, every: lostLook, left: map[string]model.AttachmentRemove{}}
}

// Watch hands the updates of a watch on, until that ends. When the interface of a removed port is gone, it removes the attachment again.
func (p *portless) Watch(ctx context.Context, watch func(update func(model.Update)) error, update func(model.Update)) error {
	ctx, stop := context.WithCancel(ctx)
	var looking sync.WaitGroup
	defer looking.Wait()
	defer stop()
	looking.Go(func() {
		ticker := time.NewTicker(p.every)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				p.look(update)
			}
		}
	})
	return watch(func(u model.Update) {
		p.mu.Lock()
		defer p.mu.Unlock()
		switch now := u.(type) {
		case model.AttachmentUpdate:
			delete(p.left, now.Attachment.Interface)
		case model.AttachmentRemove:
			if now.PortOnly = p.there(now.Interface); now.PortOnly {
				p.left[now.Interface] = now
			}
			u = now
		}
		update(u)
	})
}

// look removes the attachments whose interface is gone by now.
func (p *portless) look(update func(model.Update)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name, removed := range p.left {
		if !p.there(name) {
			delete(p.left, name)
			removed.PortOnly = false
			update(removed)
		}
	}
}

// there reports whether an interface exists, or may exist.
func (p *portless) there(name string) bool {
	there, err := p.exists(name)
	return there || err != nil
}
