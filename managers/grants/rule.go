package grants

import (
	"slices"

	"github.com/felixlike/felixlike/model"
)

// maxPorts bounds the ports of a rule, mostPorts those of a list's rules on average. Each of them is a grant for each identity
// of the peers: a node with many such lists comes beyond the bound, so they are counted before.
const (
	maxPorts  = 64
	mostPorts = 16
)

// port is a protocol with one of its ports, or the zero value for every protocol and port.
type port struct {
	protocol model.Protocol
	number   uint16
}

// rule is a rule that can be expressed. Equal rules of a policy have one pointer for as long as they are there.
type rule struct {
	anyPeer bool
	peers   []model.GroupID
	ports   []port
}

func (r *rule) equal(o *rule) bool {
	return r.anyPeer == o.anyPeer && slices.Equal(r.peers, o.peers) && slices.Equal(r.ports, o.ports)
}

// compileRules returns the rules of one direction of a policy; ok is false if grants cannot express one of them.
func compileRules(p *model.Policy, d model.Direction) (all []*rule, ok bool) {
	if p == nil {
		return nil, true
	}
	for _, from := range p.Rules(d) {
		ports, ok := portsOf(&from)
		if !ok || from.Action != model.Allow || from.Log || len(from.NamedPorts) > 0 {
			return nil, false
		}
		r := &rule{anyPeer: from.AnyPeer, ports: ports}
		if !from.AnyPeer {
			r.peers = slices.Compact(slices.Sorted(slices.Values(from.Peers)))
		}
		all = append(all, r)
	}
	return all, true
}

// portsOf returns the single ports of a rule.
func portsOf(r *model.Rule) (all []port, ok bool) {
	if r.AnyPort {
		return []port{{}}, true
	}
	for _, some := range r.Ports {
		n := int(some.Last) - int(some.First) + 1
		if some.Protocol.IsICMP() || some.Protocol == model.AnyProtocol || some.First == 0 || len(all)+n > maxPorts {
			return nil, false
		}
		for i := range n {
			all = append(all, port{some.Protocol, some.First + uint16(i)})
		}
	}
	slices.SortFunc(all, func(a, b port) int {
		if a.protocol != b.protocol {
			return int(a.protocol) - int(b.protocol)
		}
		return int(a.number) - int(b.number)
	})
	return slices.Compact(all), true
}

// changed returns the rules that go and those that come. In now, rules at the beginning and at the end that are as
// before get their old pointers.
func changed(before, now []*rule) (gone, come []*rule) {
	first := 0
	for first < min(len(before), len(now)) && before[first].equal(now[first]) {
		now[first] = before[first]
		first++
	}
	last := 0
	for last < min(len(before), len(now))-first && before[len(before)-1-last].equal(now[len(now)-1-last]) {
		now[len(now)-1-last] = before[len(before)-1-last]
		last++
	}
	return before[first : len(before)-last], now[first : len(now)-last]
}
