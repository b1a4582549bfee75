package policy

import (
	"slices"

	"github.com/felixlike/felixlike/felixlike/policy/label"
	"github.com/felixlike/felixlike/felixlike/policy/smallmap"
)

// place says where a pod is, as policy sees it.
type place uint8

const (
	// remote pods are members of groups; local ones are endpoints as well.
	remote place = iota
	local
	// host pods are in their host's network, where policy does not apply.
	host
	places = iota
)

// class is the pods of one namespace that have the same labels. Selectors
// cannot tell them apart: what is found for one of them holds for all, so a
// pod that comes to a class, as most do, costs no matching.
type class struct {
	namespace *namespace
	labels    *label.Set
	pods      [places][]*pod
	// selections are those that the class is in.
	selections smallmap.Set[*selection]
	// applied are the policies that apply to its pods, unless it is stale.
	applied *applied
	stale   bool
}

// put adds a pod to its class, and take removes it. A pod knows its slot.
func (c *class) put(p *pod) {
	pods := &c.pods[p.place]
	p.slot = int32(len(*pods))
	*pods = append(*pods, p)
	if p.place == host {
		c.namespace.hosts.Add(c)
	}
}

func (c *class) take(p *pod) {
	pods := c.pods[p.place]
	last := len(pods) - 1
	pods[p.slot] = pods[last]
	pods[p.slot].slot = p.slot
	pods[last] = nil
	c.pods[p.place] = pods[:last]
	if len(c.pods[host]) == 0 {
		c.namespace.hosts.Remove(c)
	}
}

// sharedPorts returns the ports as another pod of the class has them, if one does: pods
// of one workload have the same.
func (c *class) sharedPorts(ports []containerPort) []containerPort {
	for _, pods := range c.pods {
		if len(pods) > 0 && slices.Equal(pods[0].ports, ports) {
			return pods[0].ports
		}
	}
	return ports
}

func (c *class) empty() bool {
	return len(c.pods[remote]) == 0 && len(c.pods[local]) == 0 && len(c.pods[host]) == 0
}

// class returns the class of pods with these labels; a new one enters its
// selections.
func (e *Engine) class(n *namespace, labels *label.Set) *class {
	if c := n.classes.Get(labels); c != nil {
		return c
	}
	e.labelSets.Hold(labels)
	c := &class{namespace: n, labels: labels, stale: true}
	n.classes.Put(labels, c)
	n.byLabel.Insert(labels, c)
	e.classes.Insert(labels, c)
	for sc := range n.scopes.All() {
		e.work.Visits++
		sc.index.Candidates(labels, func(s *selection) {
			if e.matches(s.pods, labels) {
				e.join(s, c)
			}
		})
	}
	return c
}

func (e *Engine) dropClassIfEmpty(c *class) {
	if !c.empty() {
		return
	}
	for s := range c.selections.All() {
		e.part(s, c)
	}
	n := c.namespace
	n.classes.Remove(c.labels)
	n.byLabel.Remove(c.labels, c)
	e.classes.Remove(c.labels, c)
	e.labelSets.Release(c.labels)
	e.dropNamespaceIfEmpty(n)
}

// matches tries a selector on labels.
func (e *Engine) matches(s *label.Selector, labels *label.Set) bool {
	e.work.Matches++
	return s.Matches(labels)
}

// contribute adds what a pod in that state is to all selections of its class,
// or takes it away.
func (e *Engine) contribute(p *podState, n int32) {
	if p.place == host {
		return
	}
	for s := range p.class.selections.All() {
		if p.place == local {
			e.countLocals(s, int(n))
		}
		e.count(s, p, n)
	}
}
