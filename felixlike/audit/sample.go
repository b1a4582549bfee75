package audit

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"

	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/policy/judge"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/vswitchd"
)

// auditDraws bounds the packets that are drawn to find one with the wanted verdict.
const auditDraws = 4

// flow is the first packet of a connection between two pods of this node.
type flow struct {
	client, server model.PodID
	judge.Packet
	sourcePort uint16
}

// String names the packet for people, as in "tcp from pod x/a to pod x/b (10.0.0.2), port 80".
func (f flow) String() string {
	return fmt.Sprintf("%s from pod %s to pod %s (%s), port %d", f.Protocol, f.client, f.server, f.Destination, f.Port)
}

// packet returns the flow's first packet at a port of the bridge.
func (f flow) packet(in uint32, from, to net.HardwareAddr) vswitchd.TracedPacket {
	return vswitchd.TracedPacket{
		InPort: in, SourceMAC: from, DestinationMAC: to, Source: f.Source, Destination: f.Destination,
		Protocol: f.Protocol, SourcePort: f.sourcePort, Port: f.Packet.Port,
	}
}

// choose draws a packet between two pods. Each pod is the destination in its turn. It returns false if there are no
// two pods with addresses of one family. It runs in the loop.
func (a *Audit) choose(q *question) (found bool) {
	pods := a.eligible()
	if len(pods) < 2 {
		return false
	}
	ids := slices.SortedFunc(maps.Keys(pods), model.PodID.Compare)
	a.turn++
	at, allowed := a.turn%len(ids), a.turn/len(ids)%2 == 0
	for range auditDraws {
		// Any pod but the destination.
		client := (at + 1 + a.random.IntN(len(ids)-1)) % len(ids)
		drawn := *q
		drawn.from, drawn.to = pods[ids[client]], pods[ids[at]]
		if !a.draw(&drawn) {
			continue
		}
		*q, found = drawn, true
		if !q.inSwitch || q.allowed == allowed {
			return true
		}
	}
	return found
}

// eligible returns the pods whose packets are judged by policy alone.
func (a *Audit) eligible() map[model.PodID]*model.Attachment {
	t := a.view.Model()
	owners := map[netip.Addr]int{}
	all := map[model.PodID]*model.Attachment{}
	for id, at := range t.Attachments {
		for _, address := range at.Addresses {
			owners[address]++
		}
		if state, _ := a.view.State(id); state == control.EndpointProgrammed && at.OFPort != 0 {
			all[id] = at
		}
	}
	maps.DeleteFunc(all, func(_ model.PodID, at *model.Attachment) bool {
		return slices.ContainsFunc(at.Addresses, func(address netip.Addr) bool { return owners[address] > 1 })
	})
	if a.LostInterfaces != nil {
		for _, lost := range a.LostInterfaces() {
			delete(all, lost.Pod)
		}
	}
	return all
}

// draw draws a packet between the question's pods, and judges it. It reports whether the pods have addresses of one
// family.
func (a *Audit) draw(q *question) bool {
	var pairs [][2]netip.Addr
	for _, from := range q.from.Addresses {
		for _, to := range q.to.Addresses {
			if from.Is4() == to.Is4() {
				pairs = append(pairs, [2]netip.Addr{from, to})
			}
		}
	}
	if len(pairs) == 0 {
		return false
	}
	pair := pairs[a.random.IntN(len(pairs))]
	port := a.port(q)
	q.flow = flow{
		client: q.from.Pod, server: q.to.Pod, sourcePort: uint16(40000 + a.random.IntN(20000)),
		Packet: judge.Packet{Source: pair[0], Destination: pair[1], Protocol: port.Protocol, Port: port.First},
	}
	q.allowed = !q.inSwitch || a.verdict(q)
	return true
}

// port draws a port that a rule of the pods names, or TCP port 80.
func (a *Audit) port(q *question) model.PortRange {
	ports := []model.PortRange{{Protocol: model.TCP, First: 80}}
	for _, id := range a.applied(q) {
		p := a.view.Model().Policies[id]
		for _, d := range model.Directions() {
			for _, r := range p.Rules(d) {
				for _, named := range r.Ports {
					if named.Protocol == model.TCP || named.Protocol == model.UDP {
						ports = append(ports, named)
					}
				}
			}
		}
	}
	port := ports[a.random.IntN(len(ports))]
	port.First = max(port.First, 1)
	return port
}

// applied returns the policies that judge the packets from one pod to the other.
func (a *Audit) applied(q *question) []model.PolicyID {
	t := a.view.Model()
	all := slices.AppendSeq(slices.Collect(t.Endpoints[q.from.Pod].Applied(model.Egress).All()), t.Endpoints[q.to.Pod].Applied(model.Ingress).All())
	return slices.DeleteFunc(all, func(id model.PolicyID) bool { return t.Policies[id] == nil })
}

// verdict reports whether policy allows the packet.
func (a *Audit) verdict(q *question) bool {
	j, known := judge.New(), map[model.GroupID]bool{}
	learn := func(ids []model.GroupID) {
		for _, id := range ids {
			if known[id] {
				continue
			}
			known[id] = true
			members := slices.Concat(
				a.view.Policy().MembersAt(id, q.Source, q.Protocol, q.Packet.Port), a.view.Policy().MembersAt(id, q.Destination, q.Protocol, q.Packet.Port))
			j.OnUpdate(model.GroupUpdate{Group: model.Group{ID: id}, Added: members})
		}
	}
	for _, id := range a.applied(q) {
		p := a.view.Model().Policies[id]
		j.OnUpdate(model.PolicyUpdate{Policy: p})
		for _, d := range model.Directions() {
			for _, r := range p.Rules(d) {
				learn(r.Peers)
				learn(r.NamedPorts)
			}
		}
	}
	t := a.view.Model()
	return !j.Decide(t.Endpoints[q.client].Applied(model.Egress), model.Egress, q.Packet).Action.Denies() &&
		!j.Decide(t.Endpoints[q.server].Applied(model.Ingress), model.Ingress, q.Packet).Action.Denies()
}

// again completes a question about the suspect by the model as it is now. It reports whether the packet can still be
// asked about.
func (a *Audit) again(q *question) bool {
	pods := a.eligible()
	q.flow = *a.suspect
	q.from, q.to = pods[q.client], pods[q.server]
	if q.from == nil || q.to == nil || !slices.Contains(q.from.Addresses, q.Source) || !slices.Contains(q.to.Addresses, q.Destination) {
		return false
	}
	q.allowed = !q.inSwitch || a.verdict(q)
	return true
}
