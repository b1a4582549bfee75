package compile

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/felixlike/felixlike/model"
)

// MaxPort is the greatest port number.
const MaxPort = 65535

// portSet is the port dimension of one rule: any port, or ranges and names. Ranges are
// sorted and do not overlap, because the kernel's sets refuse overlapping ranges.
type portSet struct {
	any    bool
	ranges []model.PortRange
	names  []PortName
}

// ports compiles the ports of a rule. An empty list means any port. Invalid ports are left
// out, so that they match nothing.
func (c *compiler) ports(ports []networkingv1.NetworkPolicyPort, path string) portSet {
	out := portSet{any: len(ports) == 0}
	for i, p := range ports {
		path := indexed(path, i)
		protocol := corev1.ProtocolTCP
		if p.Protocol != nil {
			protocol = *p.Protocol
		}
		number, err := model.ParseProtocol(string(protocol))
		if err != nil {
			c.lost("port", path+".protocol", "%v", err)
			continue
		}
		if p.Port != nil && p.Port.Type == intstr.String {
			if c.validName(p, path) {
				out.names = append(out.names, PortName{number, p.Port.StrVal})
			}
			continue
		}
		if r, ok := c.portRange(p, path); ok {
			r.Protocol = number
			out.ranges = append(out.ranges, r)
		}
	}
	out.ranges = mergeRanges(out.ranges)
	slices.SortFunc(out.names, PortName.compare)
	out.names = slices.Compact(out.names)
	return out
}

func (c *compiler) validName(p networkingv1.NetworkPolicyPort, path string) bool {
	if p.EndPort != nil {
		c.lost("port", path+".endPort", "not allowed with a named port")
		return false
	}
	if faults := validation.IsValidPortName(p.Port.StrVal); len(faults) > 0 {
		c.lost("port", path+".port", "invalid port name %q: %s", p.Port.StrVal, strings.Join(faults, ", "))
		return false
	}
	return true
}

// portRange compiles a port without a name.
func (c *compiler) portRange(p networkingv1.NetworkPolicyPort, path string) (model.PortRange, bool) {
	switch {
	case p.Port == nil && p.EndPort != nil:
		c.lost("port", path+".endPort", "not allowed without a port")
	case p.Port == nil:
		return model.PortRange{First: 0, Last: MaxPort}, true
	case p.Port.Type != intstr.Int:
		c.lost("port", path+".port", "neither a number nor a name")
	case p.Port.IntVal < 1 || p.Port.IntVal > MaxPort:
		c.lost("port", path+".port", "%d is not between 1 and 65535", p.Port.IntVal)
	case p.EndPort == nil:
		return model.PortRange{First: uint16(p.Port.IntVal), Last: uint16(p.Port.IntVal)}, true
	case *p.EndPort < p.Port.IntVal || *p.EndPort > MaxPort:
		c.lost("port", path+".endPort", "%d is not between port %d and 65535", *p.EndPort, p.Port.IntVal)
	default:
		return model.PortRange{First: uint16(p.Port.IntVal), Last: uint16(*p.EndPort)}, true
	}
	return model.PortRange{}, false
}

// mergeRanges sorts ranges and joins those that overlap or touch. Ranges of ICMP that touch stay apart
// (model.PortRange).
func mergeRanges(ranges []model.PortRange) []model.PortRange {
	slices.SortFunc(ranges, func(a, b model.PortRange) int {
		return cmp.Or(cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.First, b.First), cmp.Compare(a.Last, b.Last))
	})
	var out []model.PortRange
	for _, r := range ranges {
		touch := 1
		if r.Protocol.IsICMP() {
			touch = 0
		}
		if n := len(out); n > 0 && out[n-1].Protocol == r.Protocol && int(r.First) <= int(out[n-1].Last)+touch {
			out[n-1].Last = max(out[n-1].Last, r.Last)
			continue
		}
		out = append(out, r)
	}
	return out
}
