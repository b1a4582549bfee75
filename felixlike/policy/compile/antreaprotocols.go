package compile

import (
	"github.com/felixlike/felixlike/felixlike/antrea"
	"github.com/felixlike/felixlike/model"
)

// antreaProtocols adds the protocols of a rule to its ports. It reports an invalid one, which closes the rule.
func (c *antreaCompiler) antreaProtocols(ports *portSet, protocols []antrea.Protocol, path string) {
	if len(protocols) == 0 {
		return
	}
	ports.any = false
	for i, p := range protocols {
		path := indexed(path, i)
		switch {
		case p.IGMP != nil:
			c.Add(path+".igmp", "not supported")
		case p.ICMP == nil:
			c.Add(path, "no protocol is set")
		default:
			if r, ok := c.antreaICMP(p.ICMP, path+".icmp"); ok {
				for _, protocol := range []model.Protocol{model.ICMP, model.ICMPv6} {
					r.Protocol = protocol
					ports.ranges = append(ports.ranges, r)
				}
			}
		}
	}
	ports.ranges = mergeRanges(ports.ranges)
}

// antreaICMP compiles the messages of ICMP that a rule is about. A code alone is one that iptables cannot match,
// and for the type 255 it matches every type.
func (c *antreaCompiler) antreaICMP(p *antrea.ICMP, path string) (model.PortRange, bool) {
	const maxType, maxCode = 254, 255
	switch {
	case p.Type != nil && (*p.Type < 0 || *p.Type > maxType):
		c.Add(path+".icmpType", "%d is not between 0 and %d", *p.Type, maxType)
	case p.Code != nil && (*p.Code < 0 || *p.Code > maxCode):
		c.Add(path+".icmpCode", "%d is not between 0 and %d", *p.Code, maxCode)
	case p.Type == nil && p.Code != nil:
		c.Add(path+".icmpCode", "not supported without icmpType")
	case p.Type == nil:
		return model.PortRange{First: 0, Last: MaxPort}, true
	case p.Code == nil:
		return model.PortRange{First: model.ICMPMessage(uint8(*p.Type), 0), Last: model.ICMPMessage(uint8(*p.Type), maxCode)}, true
	default:
		message := model.ICMPMessage(uint8(*p.Type), uint8(*p.Code))
		return model.PortRange{First: message, Last: message}, true
	}
	return model.PortRange{}, false
}
