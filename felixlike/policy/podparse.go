package policy

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/felixlike/felixlike/felixlike/policy/compile"
	"github.com/felixlike/felixlike/model"
)

// parsePod reads a pod, except its labels and whether its node is this one.
func parsePod(object *corev1.Pod) (podState, []model.Problem) {
	if object.Spec.HostNetwork {
		return podState{place: host}, nil
	}
	r := compile.Report{Object: model.ObjectRef{Kind: "Pod", Namespace: object.Namespace, Name: object.Name}}
	s := podState{reported: parsePodIPs(&object.Status, &r), ports: parsePorts(&object.Spec, &r)}
	return s, r.Problems
}

func parsePodIPs(status *corev1.PodStatus, r *compile.Report) []netip.Addr {
	ips, path := status.PodIPs, "status.podIPs[%d].ip"
	if len(ips) == 0 && status.PodIP != "" {
		ips, path = []corev1.PodIP{{IP: status.PodIP}}, "status.podIP"
	}
	var addresses []netip.Addr
	for i, ip := range ips {
		a, err := netip.ParseAddr(ip.IP)
		if err != nil || !podAddress(a) {
			field := path
			if len(status.PodIPs) > 0 {
				field = fmt.Sprintf(path, i)
			}
			r.Add(field, "%q is no address that a pod can have; it is in no group", ip.IP)
			continue
		}
		addresses = append(addresses, a)
	}
	return usableAddresses(addresses)
}

// parsePorts lists the named ports of all containers that live as long as the pod, with
// sidecars: these are init containers that are always restarted.
func parsePorts(spec *corev1.PodSpec, r *compile.Report) []containerPort {
	var ports []containerPort
	for i := range spec.Containers {
		ports = appendPorts(ports, &spec.Containers[i], fmt.Sprintf("spec.containers[%d]", i), r)
	}
	for i := range spec.InitContainers {
		c := &spec.InitContainers[i]
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			ports = appendPorts(ports, c, fmt.Sprintf("spec.initContainers[%d]", i), r)
		}
	}
	slices.SortFunc(ports, func(a, b containerPort) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.number, b.number))
	})
	return slices.Compact(ports)
}

func appendPorts(ports []containerPort, c *corev1.Container, path string, r *compile.Report) []containerPort {
	for i, p := range c.Ports {
		if p.Name == "" {
			continue
		}
		protocol, err := model.ParseProtocol(string(cmp.Or(p.Protocol, corev1.ProtocolTCP)))
		switch {
		case err != nil:
			r.Add(fmt.Sprintf("%s.ports[%d].protocol", path, i), "%v; no policy finds the port by its name", err)
		case p.ContainerPort < 1 || p.ContainerPort > compile.MaxPort:
			r.Add(fmt.Sprintf("%s.ports[%d].containerPort", path, i), "%d is no port number; no policy finds the port by its name", p.ContainerPort)
		default:
			ports = append(ports, containerPort{compile.PortName{Protocol: protocol, Name: p.Name}, uint16(p.ContainerPort)})
		}
	}
	return ports
}

// usableAddresses returns the addresses that a pod can have, unmapped, sorted and distinct.
func usableAddresses(addresses []netip.Addr) []netip.Addr {
	var usable []netip.Addr
	for _, a := range addresses {
		if podAddress(a) {
			usable = append(usable, a.Unmap())
		}
	}
	slices.SortFunc(usable, netip.Addr.Compare)
	return slices.Compact(usable)
}

// podAddress reports whether a packet on the wire can have the address of a pod.
func podAddress(a netip.Addr) bool {
	a = a.Unmap()
	return a.IsValid() && a.Zone() == "" && !a.IsUnspecified() && !a.IsLoopback() && !a.IsMulticast()
}
