package preview

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/felixlike/felixlike/model"
)

// maxPort is the last port of a protocol that has ports. Port 0 is not in use.
const maxPort = 65535

// protocols are those that rules can name.
func protocols() []model.Protocol { return []model.Protocol{model.TCP, model.UDP, model.SCTP} }

// spans divides all traffic to a pod into ranges of ports that the
// policies and the other ranges cannot distinguish. The last ones are of ICMP, with the messages in the
// place of ports; they stand for every protocol without ports.
func spans(policies []anyPolicy, to *corev1.Pod, f model.Family, others ...model.PortRange) []model.PortRange {
	starts := map[model.Protocol][]uint16{}
	cut := func(p model.Protocol, first, last int32) {
		if first >= int32(firstPort(p)) && last >= first && last <= maxPort {
			starts[p] = append(starts[p], uint16(first))
			if last < maxPort {
				starts[p] = append(starts[p], uint16(last)+1)
			}
		}
	}
	for _, policy := range policies {
		policy.cutPorts(to, cut)
	}
	for _, r := range others {
		cut(r.Protocol, int32(r.First), int32(r.Last))
	}
	icmp, _ := model.EchoRequest(f)
	var all []model.PortRange
	for _, p := range append(protocols(), icmp) {
		at := append(starts[p], firstPort(p))
		slices.Sort(at)
		at = slices.Compact(at)
		for i, first := range at {
			last := uint16(maxPort)
			if i+1 < len(at) {
				last = at[i+1] - 1
			}
			all = append(all, model.PortRange{Protocol: p, First: first, Last: last})
		}
	}
	return all
}

// tooBig is the message that a packet was too big: what a node does with it differs from other messages.
func tooBig(f model.Family) model.PortRange {
	p, message := model.PacketTooBig(f)
	return model.PortRange{Protocol: p, First: message, Last: message}
}

// firstPort is the first port, or message, that packets have.
func firstPort(p model.Protocol) uint16 {
	if p.IsICMP() {
		return 0
	}
	return 1
}

// cutter records that a rule separates the ports from first to last.
type cutter func(p model.Protocol, first, last int32)

func protocolsOf(p *v1alpha2.ClusterNetworkPolicy) []v1alpha2.ClusterNetworkPolicyProtocol {
	var all []v1alpha2.ClusterNetworkPolicyProtocol
	for _, r := range p.Spec.Ingress {
		all = append(all, r.Protocols...)
	}
	for _, r := range p.Spec.Egress {
		all = append(all, r.Protocols...)
	}
	return all
}

// cutProtocol cuts at the ends of the ports of a ClusterNetworkPolicy's rule. A name
// is a number of every container's port of that name, of any protocol.
func cutProtocol(p v1alpha2.ClusterNetworkPolicyProtocol, to *corev1.Pod, cut cutter) {
	of := func(protocol model.Protocol, port *v1alpha2.Port) {
		switch {
		case port == nil:
		case port.Range != nil:
			cut(protocol, port.Range.Start, port.Range.End)
		default:
			cut(protocol, port.Number, port.Number)
		}
	}
	if p.TCP != nil {
		of(model.TCP, p.TCP.DestinationPort)
	}
	if p.UDP != nil {
		of(model.UDP, p.UDP.DestinationPort)
	}
	if p.SCTP != nil {
		of(model.SCTP, p.SCTP.DestinationPort)
	}
	for _, protocol := range protocols() {
		if p.DestinationNamedPort != "" {
			cutName(protocol, p.DestinationNamedPort, to, cut)
		}
	}
}

// cutName cuts at the ports of that name that a pod, if there is one, declares.
func cutName(p model.Protocol, name string, to *corev1.Pod, cut cutter) {
	if to == nil {
		return
	}
	for _, c := range slices.Concat(to.Spec.Containers, to.Spec.InitContainers) {
		for _, one := range c.Ports {
			if one.Name == name {
				cut(p, one.ContainerPort, one.ContainerPort)
			}
		}
	}
}

func portsOf(p *networkingv1.NetworkPolicy) []networkingv1.NetworkPolicyPort {
	var all []networkingv1.NetworkPolicyPort
	for _, r := range p.Spec.Ingress {
		all = append(all, r.Ports...)
	}
	for _, r := range p.Spec.Egress {
		all = append(all, r.Ports...)
	}
	return all
}

// cutPort cuts where a rule's port begins and ends. A name is a number of every
// container's port of that name.
func cutPort(port networkingv1.NetworkPolicyPort, to *corev1.Pod, cut cutter) {
	protocol := model.TCP
	if port.Protocol != nil {
		var err error
		if protocol, err = model.ParseProtocol(string(*port.Protocol)); err != nil {
			return
		}
	}
	switch {
	case port.Port == nil:
	case port.Port.Type == intstr.Int:
		last := port.Port.IntVal
		if port.EndPort != nil {
			last = *port.EndPort
		}
		cut(protocol, port.Port.IntVal, last)
	default:
		cutName(protocol, port.Port.StrVal, to, cut)
	}
}

// PortsText writes ranges, which are in order, in few words: neighbours as one, a whole protocol by its
// name, everything as "all", and nearly everything as "all but".
func PortsText(ranges []model.PortRange) []string {
	in, out := describe(ranges), describe(Complement(ranges))
	switch {
	case len(out) == 0:
		return []string{"all"}
	case len(out) < len(in):
		return append([]string{"all but"}, out...)
	}
	return in
}

// Merged returns ranges, which are in order, with neighbours as one.
func Merged(ranges []model.PortRange) (merged []model.PortRange) {
	for _, r := range ranges {
		if n := len(merged) - 1; n >= 0 && merged[n].Protocol == r.Protocol && int(merged[n].Last)+1 == int(r.First) {
			merged[n].Last = r.Last
			continue
		}
		merged = append(merged, r)
	}
	return merged
}

// describe names merged ranges.
func describe(ranges []model.PortRange) []string {
	var all []string
	for _, r := range Merged(ranges) {
		switch {
		case r.Protocol.IsICMP() && r.AllPorts():
			all = append(all, "icmp")
		case r.Protocol.IsICMP():
			all = append(all, messagesText(r))
		case r.First == 1 && r.Last == maxPort:
			all = append(all, r.Protocol.String())
		default:
			all = append(all, r.String())
		}
	}
	return all
}

// messagesText names a range of messages of ICMP.
func messagesText(r model.PortRange) string {
	if _, _, _, one := r.ICMPRange(); one {
		return r.String()
	}
	kind, code := model.ICMPTypeAndCode(r.First)
	lastKind, lastCode := model.ICMPTypeAndCode(r.Last)
	if code == 0 && lastCode == 255 {
		return fmt.Sprintf("%s types %d-%d", r.Protocol, kind, lastKind)
	}
	return fmt.Sprintf("%s type %d code %d to type %d code %d", r.Protocol, kind, code, lastKind, lastCode)
}

// Complement returns the ports that are in none of the ranges, which are in order.
func Complement(ranges []model.PortRange) []model.PortRange {
	var out []model.PortRange
	icmp := model.ICMP
	if slices.ContainsFunc(ranges, func(r model.PortRange) bool { return r.Protocol == model.ICMPv6 }) {
		icmp = model.ICMPv6
	}
	for _, p := range append(protocols(), icmp) {
		next := int(firstPort(p))
		for _, r := range ranges {
			if r.Protocol == p {
				if int(r.First) > next {
					out = append(out, model.PortRange{Protocol: p, First: uint16(next), Last: r.First - 1})
				}
				next = max(next, int(r.Last)+1)
			}
		}
		if next <= maxPort {
			out = append(out, model.PortRange{Protocol: p, First: uint16(next), Last: maxPort})
		}
	}
	return out
}
