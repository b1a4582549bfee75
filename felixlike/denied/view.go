package denied

import (
	"net/netip"

	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/policy/judge"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/rules"
)

// View is the knowledge that names the ends and the policy of a denied packet.
type View struct {
	// Pods and Nodes name the owner of an address.
	Pods  map[netip.Addr]model.PodID
	Nodes map[netip.Addr]string
	// Endpoints are the known pods of this node; Closed is the reason for each closed one.
	Endpoints map[model.PodID]*model.Endpoint
	Closed    map[Way]string
	// Host are the policies of the node itself, nil if there are none.
	Host *model.HostPolicies
	// Logs are the rules with Log.
	Logs map[rules.LogKey]LogRule
	// Judge has the policies and groups. It may be nil if no endpoint has a policy of an ordered tier: then only
	// isolation denies.
	Judge *judge.Judge
}

// Way is a direction of a pod.
type Way struct {
	Pod       model.PodID
	Direction model.Direction
}

// Drop names the ends of a report's packet, and the policy that denied it.
func (v *View) Drop(r Report) (control.Drop, error) {
	p, err := Parse(r.Packet)
	if err != nil {
		return control.Drop{}, err
	}
	d := control.Drop{
		At: r.At, Direction: r.Direction.String(), Protocol: p.Protocol.String(), SourcePort: p.SourcePort, Port: p.Port,
		From: v.End(p.Source), To: v.End(p.Destination),
	}
	if p.Protocol.IsICMP() {
		d.ICMP = &control.ICMPType{Type: p.Type, Code: p.Code}
	}
	if r.NoService {
		d.By = control.ByNoService
		return d, nil
	}
	if r.Service != "" {
		d.By, d.Service, d.Rejected = serviceReasons[r.Service], r.ServicePort, r.Service == rules.ChainServiceRefused || r.Service == rules.ChainServiceNoPort
		return d, nil
	}
	if r.Host {
		v.deniedByHost(&d, r, p)
		return d, nil
	}
	pod := p.Destination
	if r.Direction == model.Egress {
		pod = p.Source
	}
	v.deniedBy(&d, v.Pods[pod], r.Direction, p)
	return d, nil
}

// serviceReasons are the reasons by the chain that drops.
var serviceReasons = map[string]string{
	rules.ChainServiceRefused: control.ByNoEndpoint, rules.ChainServiceSilent: control.ByNoLocalEndpoint, rules.ChainServiceBarred: control.BySourceRanges,
	rules.ChainServiceNoPort: control.ByNoPort,
}

// End names the owner of an address.
func (v *View) End(a netip.Addr) control.DropEnd {
	e := control.DropEnd{Address: a, Node: v.Nodes[a]}
	if id, known := v.Pods[a]; known {
		e.Pod, e.Node = id.String(), ""
	}
	return e
}

// deniedByHost sets the reason of the denial of a packet to or from the node itself.
func (v *View) deniedByHost(d *control.Drop, r Report, p Packet) {
	d.By = control.ByChanged
	if v.Host == nil || v.Judge == nil {
		return
	}
	applied := v.Host.Applied(r.Direction)
	if r.PreDNAT {
		applied = v.Host.PreDNAT
	}
	decided(d, v.Judge.Decide(applied, r.Direction, packetOf(p)))
}

// decided sets the reason that a rule gives.
func decided(d *control.Drop, decision judge.Decision) {
	if !decision.Action.Denies() {
		d.By = control.ByChanged
		return
	}
	d.By, d.Rejected = control.ByRule, decision.Action == model.Reject
	d.Policy, d.Rule, d.RuleName = decision.Policy.String(), decision.Rule, decision.Title
}

func packetOf(p Packet) judge.Packet {
	port := p.Port
	if p.Protocol.IsICMP() {
		port = model.ICMPMessage(p.Type, p.Code)
	}
	return judge.Packet{Source: p.Source, Destination: p.Destination, Protocol: p.Protocol, Port: port}
}

// deniedBy sets the reason of the denial.
func (v *View) deniedBy(d *control.Drop, id model.PodID, direction model.Direction, p Packet) {
	if d.Reason = v.Closed[Way{id, direction}]; d.Reason != "" {
		d.By = control.ByClosed
		return
	}
	e := v.Endpoints[id]
	if e == nil {
		d.By = control.ByChanged // the pod has gone
		return
	}
	j := v.Judge
	if j == nil {
		j = judge.New()
	}
	applied := e.Applied(direction)
	decision := j.Decide(applied, direction, packetOf(p))
	if !decision.Isolated {
		decided(d, decision)
		return
	}
	d.By = control.ByIsolation
	for _, policy := range applied.NetworkPolicies {
		d.Policies = append(d.Policies, policy.String())
	}
}

// NewView returns a view of addresses: of the pods of the cluster, of the interfaces here, which are newer,
// of the nodes, and of this node.
func NewView(pods map[model.PodID][]netip.Addr, attached map[model.PodID]*model.Attachment, nodes map[string]*model.Node, node string, own []netip.Addr) *View {
	v := &View{Pods: map[netip.Addr]model.PodID{}, Nodes: map[netip.Addr]string{}}
	for id, all := range pods {
		for _, a := range all {
			// Of two that have one address for a moment, the choice is the same each time.
			if other, taken := v.Pods[a]; !taken || id.Compare(other) < 0 {
				v.Pods[a] = id
			}
		}
	}
	for id, at := range attached {
		for _, a := range at.Addresses {
			v.Pods[a] = id
		}
	}
	for _, a := range own {
		v.Nodes[a] = node
	}
	for name, n := range nodes {
		for _, a := range n.Addresses {
			v.Nodes[a] = name
		}
		for _, p := range n.PodCIDRs {
			v.Nodes[p.Addr().Next()] = name // the gateway port's
		}
	}
	return v
}

// LogRule is a rule with Log.
type LogRule struct {
	Policy    model.PolicyID
	Direction model.Direction
	Rule      model.Rule
}
