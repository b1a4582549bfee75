package compare

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/felixlike/felixlike/cmd/felixctl/dump"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/model"
)

// Judge returns the verdict on the first packet of a connection while one side is in
// force.
type Judge interface {
	// Judge reports whether the packet gets through, and the rule that decided. It returns
	// an error for a packet that meets a rule of unknown form.
	Judge(p Packet) (through bool, why string, err error)
}

// Packet is the first packet of a connection.
type Packet struct {
	Source, Destination netip.Addr
	Protocol            model.Protocol
	Port                uint16
}

// Verdict is a packet that the two sides do not agree about.
type Verdict struct {
	// From and To are pods, nodes or addresses, with their addresses.
	From     string         `json:"from"`
	To       string         `json:"to"`
	Source   netip.Addr     `json:"source"`
	Address  netip.Addr     `json:"destination"`
	Protocol model.Protocol `json:"protocol"`
	Port     uint16         `json:"port"`
	// ICMP is the message, in the place of a port. Without it, ICMP is an echo request.
	ICMP   *control.ICMPType `json:"icmp,omitempty"`
	Before Opinion           `json:"before"`
	After  Opinion           `json:"after"`
}

// Opinion is the verdict of one side on a packet.
type Opinion struct {
	Through bool   `json:"through"`
	Why     string `json:"why,omitempty"`
	// Unknown is the reason why there is no verdict.
	Unknown string `json:"unknown,omitempty"`
}

// Trials has the packets and results of Verdicts.
type Trials struct {
	// Packets were judged on both sides; Left were not, because they would have been
	// too many.
	Packets int `json:"packets"`
	Left    int `json:"left,omitempty"`
	// Changed are those with different verdicts, Unknown those without one on some side.
	Changed []Verdict `json:"changed"`
	Unknown []Verdict `json:"unknown,omitempty"`
}

// End is a source or destination of packets.
type End struct {
	Name    string
	Address netip.Addr
	// Local reports whether it is a pod of the node.
	Local bool
}

// MaxTrials bounds the judged packets.
const MaxTrials = 500_000

// Verdicts judges packets between all pairs of ends with a local one, to all
// ports that matter.
func Verdicts(before, after Judge, ends []End, ports []Port) Trials {
	var t Trials
	for _, from := range ends {
		for _, to := range ends {
			if !from.Local && !to.Local || model.FamilyOf(from.Address) != model.FamilyOf(to.Address) {
				continue
			}
			for _, port := range ports {
				if port.Protocol == model.ICMP && model.FamilyOf(to.Address) == model.IPv6 {
					port.Protocol = model.ICMPv6
				}
				if t.Packets >= MaxTrials {
					t.Left++
					continue
				}
				t.try(before, after, from, to, port)
			}
		}
	}
	return t
}

func (t *Trials) try(before, after Judge, from, to End, port Port) {
	p := Packet{from.Address, to.Address, port.Protocol, port.Number}
	a, b := opinion(before, p), opinion(after, p)
	t.Packets++
	v := Verdict{
		From: from.Name, To: to.Name, Source: p.Source, Address: p.Destination, Protocol: p.Protocol, Port: p.Port, Before: a, After: b,
	}
	if p.Protocol.IsICMP() && p.Port != 0 {
		kind, code := model.ICMPTypeAndCode(p.Port)
		v.Port, v.ICMP = 0, &control.ICMPType{Type: kind, Code: code}
	}
	switch {
	case a.Unknown != "" || b.Unknown != "":
		t.Unknown = append(t.Unknown, v)
	case a.Through != b.Through:
		t.Changed = append(t.Changed, v)
	}
}

func opinion(j Judge, p Packet) Opinion {
	through, why, err := j.Judge(p)
	if err != nil {
		return Opinion{Unknown: err.Error()}
	}
	return Opinion{Through: through, Why: why}
}

// Port is a protocol with a destination port. ICMP stands for ICMPv6 too, and has a model.ICMPMessage: zero is
// the echo request.
type Port struct {
	Protocol model.Protocol
	Number   uint16
}

// PortsOf returns the ports that can make a difference: those that rules and named
// ports of either model mention, and the rules and flows of the states, those right beside a range, and for each
// protocol one that none mentions.
func PortsOf(states []*dump.State, models ...*control.Model) []Port {
	found := map[Port]bool{{model.ICMP, 0}: true}
	for _, ports := range constantsOf(states).ports {
		if ports.Protocol != model.AnyProtocol {
			addRange(found, ports)
		}
	}
	for _, m := range models {
		if m == nil {
			continue
		}
		for _, p := range m.Policies {
			for _, d := range model.Directions() {
				for _, r := range p.Rules(d) {
					for _, ports := range r.Ports {
						addRange(found, ports)
					}
				}
			}
		}
		for _, g := range m.Groups {
			for _, member := range g.Members {
				if member.Protocol != model.AnyProtocol {
					found[Port{member.Protocol, member.Port}] = true
				}
			}
		}
	}
	if len(found) > 1 && slices.ContainsFunc(slices.Collect(maps.Keys(found)), func(p Port) bool { return p.Protocol == model.ICMP && p.Number != 0 }) {
		found[otherMessage(found)] = true
	}
	for _, p := range []model.Protocol{model.TCP, model.UDP, model.SCTP} {
		other := Port{p, 4242}
		for found[other] {
			other.Number++
		}
		found[other] = true
	}
	return slices.SortedFunc(maps.Keys(found), func(a, b Port) int {
		return cmp.Or(cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Number, b.Number))
	})
}

// otherMessage returns a query of ICMP of a type that no rule mentions.
func otherMessage(found map[Port]bool) Port {
	for kind := uint8(13); ; kind++ { // timestamp, information, address mask, and those behind
		if p := (Port{model.ICMP, model.ICMPMessage(kind, 0)}); !found[p] {
			return p
		}
	}
}

// addRange adds the ends of a range and the ports next to it.
func addRange(found map[Port]bool, r model.PortRange) {
	if _, code, anyCode, ok := r.ICMPRange(); ok {
		found[Port{model.ICMP, r.First}] = true
		if !anyCode && code < 255 {
			found[Port{model.ICMP, r.First + 1}] = true
		}
		return
	}
	if r.AllPorts() {
		return
	}
	for _, n := range []int{int(r.First) - 1, int(r.First), int(r.Last), int(r.Last) + 1} {
		inside := n >= int(r.First) && n <= int(r.Last)
		if n > 0 && n <= 65535 && (inside || r.First != r.Last) {
			found[Port{r.Protocol, uint16(n)}] = true
		}
	}
}

// EndsOf returns the pods and nodes of both models, and an address for each block
// that a policy, or a rule of another program in the states names, inside and right outside of it.
func EndsOf(states []*dump.State, models ...*control.Model) []End {
	ends := map[netip.Addr]End{}
	for _, p := range constantsOf(states).prefixes {
		addBlocks(ends, []model.Member{p})
	}
	for _, m := range models {
		if m == nil {
			continue
		}
		for _, n := range m.Nodes {
			for _, a := range n.Addresses {
				if n.Name != m.Node {
					ends[a] = End{Name: "node " + n.Name, Address: a}
				}
			}
		}
		for _, g := range m.Groups {
			if g.Kind == model.Networks {
				addBlocks(ends, g.Members)
			}
		}
	}
	for _, m := range models {
		if m != nil {
			dropEmpty(ends, m)
		}
	}
	for _, m := range models {
		if m != nil {
			addPods(ends, m)
		}
	}
	return slices.SortedFunc(maps.Values(ends), func(a, b End) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), a.Address.Compare(b.Address))
	})
}

// dropEmpty leaves out addresses in a node's pod prefix that no pod has: they cannot
// send anything.
func dropEmpty(ends map[netip.Addr]End, m *control.Model) {
	maps.DeleteFunc(ends, func(a netip.Addr, _ End) bool {
		return slices.ContainsFunc(m.Nodes, func(n *model.Node) bool {
			return slices.ContainsFunc(n.PodCIDRs, func(p netip.Prefix) bool { return p.Contains(a) })
		})
	})
}

func addPods(ends map[netip.Addr]End, m *control.Model) {
	local := map[model.PodID]bool{}
	for _, e := range m.Endpoints {
		local[e.ID] = true
	}
	for _, p := range m.Pods {
		for _, a := range p.Addresses {
			ends[a] = End{Name: p.ID.String(), Address: a, Local: local[p.ID]}
		}
	}
}

func addBlocks(ends map[netip.Addr]End, members []model.Member) {
	const most = 16 // a block with exceptions comes to many
	for _, m := range members[:min(len(members), most)] {
		inside := m.Prefix.Addr().Next()
		if m.Prefix.IsSingleIP() {
			inside = m.Prefix.Addr()
		}
		outside := m.Prefix.Addr().Prev()
		for _, a := range []netip.Addr{inside, outside, m.Range().To(), m.Range().To().Next()} {
			if _, known := ends[a]; !known && a.IsValid() && !a.IsUnspecified() && !a.IsMulticast() {
				ends[a] = End{Name: fmt.Sprintf("ip:%s", a), Address: a}
			}
		}
	}
}
