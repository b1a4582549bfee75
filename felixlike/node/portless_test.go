package node

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/eventually"
)

// TestRemovedPortsAndDetachedPods: a port without interface is a detached pod's; an interface without port is not, until it goes too.
func TestRemovedPortsAndDetachedPods(t *testing.T) {
	var mu sync.Mutex
	interfaces, seen := map[string]bool{}, []string{}
	set := func(name string, there bool) {
		mu.Lock()
		defer mu.Unlock()
		interfaces[name] = there
	}
	p := NewPortless()
	p.every = time.Millisecond
	p.exists = func(name string) (bool, error) {
		mu.Lock()
		defer mu.Unlock()
		return interfaces[name], nil
	}
	last := func() string {
		mu.Lock()
		defer mu.Unlock()
		if len(seen) == 0 {
			return ""
		}
		return seen[len(seen)-1]
	}
	deliver := func(u model.Update) {
		mu.Lock()
		defer mu.Unlock()
		switch u := u.(type) {
		case model.AttachmentUpdate:
			seen = append(seen, u.Attachment.Interface+" attached")
		case model.AttachmentRemove:
			seen = append(seen, fmt.Sprintf("%s removed, port only %v", u.Interface, u.PortOnly))
		}
	}
	id := model.PodID{Namespace: "x", Name: "a"}
	err := p.Watch(t.Context(), func(update func(model.Update)) error {
		attached := model.AttachmentUpdate{Attachment: &model.Attachment{Pod: id, Interface: "a"}}
		update(attached)
		update(model.AttachmentRemove{Pod: id, Interface: "a"})
		if got := last(); got != "a removed, port only false" {
			t.Errorf("without an interface: %s", got)
		}
		set("a", true)
		update(attached)
		update(model.AttachmentRemove{Pod: id, Interface: "a"})
		if got := last(); got != "a removed, port only true" {
			t.Errorf("with an interface: %s", got)
		}
		update(attached) // the port is back
		set("a", false)
		p.look(deliver)
		if got := last(); got != "a attached" {
			t.Errorf("a port that is back was removed: %s", got)
		}
		set("a", true)
		update(model.AttachmentRemove{Pod: id, Interface: "a"})
		set("a", false)
		eventually.True(t, "the interface goes too", func() bool { return last() == "a removed, port only false" })
		return nil
	}, deliver)
	if err != nil {
		t.Error(err)
	}
}
