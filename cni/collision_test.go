package cni_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/felixlike/felixlike/test/cnitest"
)

// crowd is a set of pods with few different hashes in interface names and MAC addresses.
type crowd struct {
	*runtime
	pods []cnitest.Sandbox
	// replies are those of the first ADD of each sandbox.
	replies map[string]cnitest.Reply
}

func newCrowd(t *testing.T, pods int) *crowd {
	t.Helper()
	c := &crowd{runtime: newRuntime(t), replies: map[string]cnitest.Reply{}}
	c.restart(syscall.SIGTERM)
	for i := range pods {
		c.pods = append(c.pods, c.sandbox(fmt.Sprintf("sandbox%d", i), fmt.Sprintf("web-%d", i)))
	}
	return c
}

func (c *crowd) restart(signal syscall.Signal) {
	c.Helper()
	c.stop(signal)
	c.conf.HashBits = 1
	c.start()
}

// add adds sandboxes at once. No two may get the same name or address.
func (c *crowd) add(pods ...cnitest.Sandbox) {
	c.Helper()
	replies := make([]cnitest.Reply, len(pods))
	errs := make([]error, len(pods))
	var all sync.WaitGroup
	for i, s := range pods {
		all.Go(func() { replies[i], errs[i] = c.Call(c.ctx, "ADD", "1.1.0", s, nil) })
	}
	all.Wait()
	for i, s := range pods {
		c.must(errs[i])
		if replies[i].Failed {
			c.Fatalf("ADD of %s: %s", s.ID, replies[i].Raw)
		}
		c.replies[s.ID] = replies[i]
	}
}

// check checks every sandbox, its record and its packets.
func (c *crowd) check(state string) {
	c.Helper()
	owners := map[string]string{}
	for id, reply := range c.replies {
		for _, name := range []string{reply.Interfaces[0].Name, reply.Interfaces[1].Mac} {
			if other := owners[name]; other != "" {
				c.Errorf("%s: %s is of %s and %s", state, name, other, id)
			}
			owners[name] = id
		}
	}
	var last cnitest.Sandbox
	for _, s := range c.pods {
		reply, attached := c.replies[s.ID]
		if !attached {
			continue
		}
		c.ok("CHECK", "1.1.0", s, map[string]any{"prevResult": reply.Result})
		if again := c.ok("ADD", "1.1.0", s, nil); again.Raw != reply.Raw {
			c.Errorf("%s: %s added again:\n%s\nfirst:\n%s", state, s.ID, again.Raw, reply.Raw)
		}
		record := c.vsctl("get", "interface", reply.Interfaces[0].Name, "external_ids:felixlike-sandbox", "external_ids:felixlike-mac")
		if record != s.ID+"\n\""+reply.Interfaces[1].Mac+"\"" {
			c.Errorf("%s: record of %s: %s", state, s.ID, record)
		}
		if last.ID != "" {
			from, to := reply.IPs[0].Address.IP.To4()[3], c.replies[last.ID].IPs[0].Address.IP.To4()[3]
			if got := c.reach4(s.NS, int(from), last.NS, int(to)); got != "111" {
				c.Errorf("%s: from %s to %s: %s", state, s.ID, last.ID, got)
			}
		}
		last = s
	}
	if got := len(podLinks(c.links())); got != len(c.replies) {
		c.Errorf("%s: %d interfaces for %d sandboxes", state, got, len(c.replies))
	}
}

func (c *crowd) del(pods ...cnitest.Sandbox) {
	c.Helper()
	for _, s := range pods {
		c.ok("DEL", "1.1.0", s, nil)
		delete(c.replies, s.ID)
	}
}

// Pods with colliding names are added at once, over restarts of the agent, beside pods
// that go. Each keeps its name and address, and every command finds its own interface.
func TestCrowd(t *testing.T) {
	c := newCrowd(t, 8)
	c.add(c.pods[:6]...)
	c.check("added at once")
	c.restart(syscall.SIGKILL)
	c.check("after a restart")
	// The first of the sequence goes; the others keep their names.
	c.del(c.pods[0], c.pods[3])
	c.check("two are gone")
	c.add(c.pods[6:]...)
	c.check("two more")
	// An agent was killed before it had recorded an interface.
	orphan := c.pods[5]
	c.vsctl("del-port", c.replies[orphan.ID].Interfaces[0].Name)
	c.add(orphan)
	c.check("an interface without a record")
	c.vsctl("del-port", c.replies[orphan.ID].Interfaces[0].Name)
	c.del(orphan)
	c.check("deleted without a record")
	keep := slices.DeleteFunc(slices.Clone(c.pods), func(s cnitest.Sandbox) bool {
		_, attached := c.replies[s.ID]
		return !attached || s.ID == "sandbox1" || s.ID == "sandbox7"
	})
	c.ok("GC", "1.1.0", cnitest.Sandbox{}, keeps(keep...))
	delete(c.replies, "sandbox1")
	delete(c.replies, "sandbox7")
	c.check("after GC")
	// A pod is added in a new sandbox before the runtime deletes the first one.
	second := c.sandbox("second", c.pods[2].Pod)
	old := c.replies[c.pods[2].ID]
	c.add(second)
	if name := c.replies[second.ID].Interfaces[0].Name; name != old.Interfaces[0].Name {
		t.Errorf("the pod's interface was %s, and is %s", old.Interfaces[0].Name, name)
	}
	c.del(c.pods[2])
	c.pods = append(c.pods, second)
	c.check("another sandbox")
	c.del(c.pods...)
	if got := c.left(); got != nothing {
		t.Error(strings.TrimSpace(got))
	}
}
