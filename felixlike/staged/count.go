package staged

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/ends"
	"github.com/felixlike/felixlike/felixlike/policy/judge"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/conntrack"
)

// count judges both ends of new connections that are pods of this node. The other nodes judge theirs. It runs in the loop.
func (s *Staged) count(at *ends.Site, all []conntrack.Connection) {
	if s.judge == nil {
		return
	}
	for i := range all {
		s.number++
		from, to, port := at.Of(&all[i])
		p := judge.Packet{Source: from, Destination: to, Protocol: model.Protocol(all[i].Original.Protocol), Port: port}
		s.countEnd(at, from, model.Egress, p)
		s.countEnd(at, to, model.Ingress, p)
	}
}

func (s *Staged) countEnd(at *ends.Site, a netip.Addr, d model.Direction, p judge.Packet) {
	id, here := at.Pods[a]
	e := s.endpoints[id]
	if !here || e == nil {
		return
	}
	with := e.Applied(d)
	concerned := s.among(with.Admin, with.NetworkPolicies, with.Baseline)
	if !slices.ContainsFunc(concerned, func(c *counted) bool { return c.counts }) {
		return
	}
	decision := s.judge.Decide(with, d, p)
	var blamed []*counted
	if decision.Action.Denies() && !s.judge.Decide(s.without(with), d, p).Action.Denies() {
		switch c := s.policies[decision.Policy]; {
		case c != nil:
			blamed = []*counted{c}
		case decision.Isolated:
			blamed = s.among(with.NetworkPolicies)
		}
		if len(blamed) == 0 { // a staged rule passes by an enforced one that allows
			blamed = concerned
		}
	}
	for _, c := range concerned {
		if !c.counts {
			continue
		}
		if c.evaluatedIn != s.number {
			c.evaluated, c.evaluatedIn = c.evaluated+1, s.number
		}
		if slices.Contains(blamed, c) && c.deniedIn != s.number {
			c.deniedIn = s.number
			c.deny(id, d, p)
		}
	}
}

// among returns the staged policies of lists.
func (s *Staged) among(lists ...[]model.PolicyID) (all []*counted) {
	for _, id := range slices.Concat(lists...) {
		if c := s.policies[id]; c != nil {
			all = append(all, c)
		}
	}
	return all
}

// without returns the policies that are enforced.
func (s *Staged) without(a model.Applied) model.Applied {
	enforced := func(all []model.PolicyID) []model.PolicyID {
		return slices.DeleteFunc(slices.Clone(all), func(id model.PolicyID) bool { return s.policies[id] != nil })
	}
	a.Admin, a.NetworkPolicies, a.Baseline = enforced(a.Admin), enforced(a.NetworkPolicies), enforced(a.Baseline)
	return a
}

// flow is what connections have in common that are kept as one.
type flow struct {
	pod       model.PodID
	direction model.Direction
	packet    judge.Packet
}

func (c *counted) deny(id model.PodID, d model.Direction, p judge.Packet) {
	now := control.StagedConnection{At: time.Now(), Direction: d.String(), Source: p.Source, Destination: p.Destination, Protocol: p.Protocol, Port: p.Port}
	c.keep(flow{id, d, p}, now)
	pod := c.pods[id]
	if pod == nil && len(c.pods) >= maxPods {
		c.others++
		return
	}
	if pod == nil {
		pod = &control.StagedPod{Pod: id.String(), First: now}
		c.pods[id] = pod
	}
	pod.Denied, pod.Last = pod.Denied+1, now
}

// keep notes a denied connection. If there is no room, it replaces the flow without a connection for the longest time.
func (c *counted) keep(k flow, now control.StagedConnection) {
	f := c.flows[k]
	if f == nil {
		if len(c.flows) >= maxFlows {
			oldest, last := k, now.At
			for other, kept := range c.flows {
				if oldest == k || kept.Last.Before(last) {
					oldest, last = other, kept.Last
				}
			}
			delete(c.flows, oldest)
		}
		f = &control.StagedFlow{Pod: k.pod.String(), StagedConnection: now}
		c.flows[k] = f
	}
	f.Connections, f.Last = f.Connections+1, now.At
}

func (c *counted) denied() uint64 {
	all := c.others
	for _, p := range c.pods {
		all += p.Denied
	}
	return all
}

func (s *Staged) denied() (all uint64) {
	for _, c := range s.policies {
		all += c.denied()
	}
	return all
}

func (s *Staged) status() *control.Staged {
	if len(s.policies) == 0 {
		return nil
	}
	all := &control.Staged{Node: s.view.Node(), Policies: []control.StagedPolicy{}, Last: s.last}
	if s.connections == nil {
		all.NotEvaluated = "the agent knows no connections with this trafficMode or pipelineVariant"
	}
	for _, c := range s.policies {
		p := control.StagedPolicy{Policy: c.policy.ID.String(), Since: c.since, Evaluated: c.evaluated, Denied: c.denied(), Pods: []control.StagedPod{}, Others: c.others, Flows: []control.StagedFlow{}}
		for _, pod := range c.pods {
			p.Pods = append(p.Pods, *pod)
		}
		slices.SortFunc(p.Pods, func(a, b control.StagedPod) int { return strings.Compare(a.Pod, b.Pod) })
		for _, f := range c.flows {
			p.Flows = append(p.Flows, *f)
		}
		slices.SortFunc(p.Flows, func(a, b control.StagedFlow) int { return a.Last.Compare(b.Last) })
		all.Policies = append(all.Policies, p)
	}
	slices.SortFunc(all.Policies, func(a, b control.StagedPolicy) int { return strings.Compare(a.Policy, b.Policy) })
	return all
}
