package compare

import (
	"github.com/felixlike/felixlike/cmd/felixctl/dump"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/flowtext"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
	"github.com/felixlike/felixlike/tables"
)

// constants are what the rules and flows of states compare packets with. A rule that another program added tests what
// no model names.
type constants struct {
	ports []model.PortRange
	// prefixes holds the prefixes of foreign rules. Our rules also test addresses that no pod sends from.
	prefixes []model.Member
}

func constantsOf(states []*dump.State) constants {
	var c constants
	for _, s := range states {
		for _, t := range s.Tables {
			for _, chain := range t.Chains {
				for _, r := range chain.Rules {
					c.addRule(r)
				}
			}
		}
		for _, f := range s.Flows {
			c.addFlow(f)
		}
	}
	return c
}

func (c *constants) addRule(r dump.Rule) {
	protocol := model.AnyProtocol
	for _, m := range r.Matches {
		switch m := m.(type) {
		case tables.MatchProtocol:
			protocol = m.Protocol
		case tables.MatchDestinationPorts:
			c.ports = append(c.ports, model.PortRange{Protocol: protocol, First: m.First, Last: m.Last})
		case tables.MatchICMP:
			message := model.ICMPMessage(m.Type, m.Code)
			c.ports = append(c.ports, model.PortRange{Protocol: protocol, First: message, Last: message})
		case tables.MatchPrefix:
			if !r.Ours() {
				c.prefixes = append(c.prefixes, model.Member{Prefix: m.Prefix.Masked()})
			}
		}
	}
}

func (c *constants) addFlow(f *flowtext.Flow) {
	for _, t := range f.Match {
		protocol := model.AnyProtocol
		switch t.Field {
		case openflow.TCPDst:
			protocol = model.TCP
		case openflow.UDPDst:
			protocol = model.UDP
		case openflow.SCTPDst:
			protocol = model.SCTP
		default:
			continue
		}
		first := uint16(t.Value.Lo)
		c.ports = append(c.ports, model.PortRange{Protocol: protocol, First: first, Last: first | ^uint16(t.Mask.Lo)})
	}
}
