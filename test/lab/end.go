package lab

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/felixlike/felixlike/model"
)

// ParseEnd splits one end of a probe: "node:NAME", "ip:ADDRESS" or
// "namespace/pod".
func ParseEnd(end string) (kind, name string, err error) {
	kind, name, ok := strings.Cut(end, ":")
	if ok && (kind == EndNode || kind == EndIP) && name != "" {
		return kind, name, nil
	}
	if ns, pod, ok := strings.Cut(end, "/"); ok && ns != "" && pod != "" {
		return EndPod, end, nil
	}
	return "", "", fmt.Errorf("%q: want namespace/pod, node:NAME or ip:ADDRESS", end)
}

// Address returns the address of a probe's end in a state that a lab has
// completed.
func (s *State) Address(end string, f model.Family) (netip.Addr, error) {
	kind, name, err := ParseEnd(end)
	if err != nil {
		return netip.Addr{}, err
	}
	var texts []string
	switch kind {
	case EndIP:
		a, err := netip.ParseAddr(name)
		if err != nil {
			return netip.Addr{}, fmt.Errorf("%s: %w", end, err)
		}
		if f == model.IPv6 {
			a = Map(a)
		}
		texts = []string{a.String()}
	case EndNode:
		if n := s.node(name); n != nil {
			for _, a := range n.Status.Addresses {
				texts = append(texts, a.Address)
			}
		}
	case EndPod:
		for _, o := range s.Pods {
			if podID(o).String() == name {
				texts = podIPs(o)
			}
		}
	}
	for _, text := range texts {
		if a, err := netip.ParseAddr(text); err == nil && model.FamilyOf(a) == f {
			return a, nil
		}
	}
	return netip.Addr{}, fmt.Errorf("%s has no IPv%s address", end, f)
}

// Serves reports whether an end answers on a port: a pod on its declared
// ports, a node or a host outside on all ports, since the lab serves the probed
// ones there.
func (s *State) Serves(end string, proto model.Protocol, number uint16) bool {
	for _, o := range s.Pods {
		if podID(o).String() == end {
			spec, err := planPod(o)
			return err == nil && slices.Contains(spec.Ports, port{Protocol: proto, Port: number})
		}
	}
	return true
}
