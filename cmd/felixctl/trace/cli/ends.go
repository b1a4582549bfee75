package cli

import (
	"cmp"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/felixlike/felixlike/cmd/felixctl/trace/cluster"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/model"
)

// end is one end of a packet.
type end struct {
	// text is its name for people, addrs are its addresses.
	text  string
	addrs []netip.Addr
	pod   *corev1.Pod
	// service is not nil if the end is a Service; addrs then has the address that was asked for, or nothing.
	service *corev1.Service
}

func podEnd(p *corev1.Pod) (end, error) {
	e := end{text: p.Namespace + "/" + p.Name, pod: p}
	if cluster.Over(p) {
		return e, fmt.Errorf("%s has ended (%s)", e.text, p.Status.Phase)
	}
	for _, ip := range p.Status.PodIPs {
		if a, err := netip.ParseAddr(ip.IP); err == nil {
			e.addrs = append(e.addrs, a.Unmap())
		}
	}
	if len(e.addrs) == 0 {
		return e, fmt.Errorf("%s has no address yet", e.text)
	}
	return e, nil
}

func nodeEnd(name string, o control.Objects) (end, error) {
	for _, n := range o.Nodes {
		if n.Name != name {
			continue
		}
		e := end{text: "node:" + name}
		for _, a := range n.Status.Addresses {
			if addr, err := netip.ParseAddr(a.Address); err == nil && a.Type == corev1.NodeInternalIP {
				e.addrs = append(e.addrs, addr.Unmap())
			}
		}
		return e, nil
	}
	return end{}, fmt.Errorf("node:%s: the agent knows no such node", name)
}

// addressEnd is an address, with the pod or the Service that it belongs to.
func addressEnd(a netip.Addr, o control.Objects, services []*corev1.Service) end {
	for _, p := range o.Pods {
		for _, ip := range p.Status.PodIPs {
			if own, err := netip.ParseAddr(ip.IP); err == nil && own.Unmap() == a && !p.Spec.HostNetwork && !cluster.Over(p) {
				return end{text: fmt.Sprintf("%s/%s", p.Namespace, p.Name), addrs: []netip.Addr{a}, pod: p}
			}
		}
	}
	for _, s := range services {
		for _, ip := range append(s.Spec.ClusterIPs, s.Spec.ClusterIP) {
			if own, err := netip.ParseAddr(ip); err == nil && own.Unmap() == a {
				return end{text: s.Namespace + "/" + s.Name, addrs: []netip.Addr{a}, service: s}
			}
		}
	}
	return end{text: a.String(), addrs: []netip.Addr{a}}
}

// address returns the end's address of a family.
func (e end) address(f model.Family) (netip.Addr, error) {
	for _, a := range e.addrs {
		if model.FamilyOf(a) == f {
			return a, nil
		}
	}
	return netip.Addr{}, fmt.Errorf("%s has no IPv%s address", e.text, f)
}

// port is the value of --port: a number or a name, of a protocol. The number of ICMP is the model.ICMPMessage, and 0
// the echo request.
type port struct {
	number   uint16
	name     string
	protocol model.Protocol
}

// parsePort parses "80/tcp", "tcp/80", "http/tcp", "icmp", "icmp/13" or "icmp/13/0".
func parsePort(text string) (port, error) {
	fail := func() (port, error) {
		return port{}, fmt.Errorf("--port %q: want PORT/PROTOCOL (as in 80/tcp), or icmp, icmp/TYPE, icmp/TYPE/CODE; the protocols are tcp, udp and sctp", text)
	}
	if text == "icmp" {
		return port{protocol: model.ICMP}, nil
	}
	if message, found := strings.CutPrefix(text, "icmp/"); found {
		kind, code, _ := strings.Cut(message, "/")
		k, err1 := strconv.ParseUint(kind, 10, 8)
		c, err2 := strconv.ParseUint(cmp.Or(code, "0"), 10, 8)
		if err1 != nil || err2 != nil || k == 0 {
			return fail() // type 0 only answers
		}
		return port{protocol: model.ICMP, number: model.ICMPMessage(uint8(k), uint8(c))}, nil
	}
	number, protocol, found := strings.Cut(text, "/")
	if !found {
		return fail()
	}
	if _, err := model.ParseProtocol(strings.ToUpper(number)); err == nil {
		number, protocol = protocol, number
	}
	var p port
	var err error
	if p.protocol, err = model.ParseProtocol(strings.ToUpper(protocol)); err != nil || number == "" {
		return fail()
	}
	if n, err := strconv.ParseUint(number, 10, 16); err == nil && n > 0 {
		p.number = uint16(n)
	} else if err == nil || number[0] >= '0' && number[0] <= '9' {
		return fail()
	} else {
		p.name = number
	}
	return p, nil
}

// of returns the number of the port at a pod, which may have a name for it.
func (p port) of(pod *corev1.Pod, who string) (uint16, error) {
	if p.name == "" {
		return p.number, nil
	}
	if pod != nil {
		for _, c := range append(append([]corev1.Container{}, pod.Spec.Containers...), pod.Spec.InitContainers...) {
			for _, one := range c.Ports {
				if one.Name == p.name && protocolOf(one.Protocol) == p.protocol {
					return uint16(one.ContainerPort), nil
				}
			}
		}
	}
	return 0, fmt.Errorf("%s has no %s port with the name %s", who, p.protocol, p.name)
}

func protocolOf(p corev1.Protocol) model.Protocol {
	if p == "" {
		p = corev1.ProtocolTCP
	}
	number, _ := model.ParseProtocol(string(p)) // unknown protocols parse as 0, which matches no port
	return number
}
