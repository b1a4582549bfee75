package names

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/felixlike/felixlike/cmd/felixctl/dump"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/rules"
)

// services names the addresses of Services.
func (n *Names) services(m *control.Model) {
	for _, p := range m.ServicePorts {
		for _, f := range p.Frontends {
			what := p.ID.String()
			switch f.Kind {
			case model.NodePort:
				what += ", node port"
			case model.ExternalIP:
				what += ", external IP"
			case model.LoadBalancerIP:
				what += ", load balancer"
			}
			n.frontends[frontend{netip.AddrPortFrom(f.Addr, f.Port), p.ID.Protocol}] = what
			if f.Kind == model.ClusterIP && n.addresses[f.Addr] == "" {
				n.addresses[f.Addr] = "Service " + p.ID.Namespace + "/" + p.ID.Name
			}
		}
	}
}

// Frontend returns the port of a Service that an address is of, "" if unknown. NodePorts have the unspecified address.
func (n *Names) Frontend(a netip.AddrPort, p model.Protocol) string {
	return n.frontends[frontend{a, p}]
}

// parts names an element of the sets of Services whose keys are no members: "10.96.0.1 . tcp . 80 . 0x00000000 : 10.0.0.1 . 8080".
func (n *Names) parts(e dump.Element) string {
	var f found
	words := strings.Split(e.Text, " . ")
	if len(words) != 4 {
		return ""
	}
	a, err := netip.ParseAddr(words[0])
	port, err2 := strconv.ParseUint(words[2], 10, 16)
	if err != nil || err2 != nil {
		return ""
	}
	for _, p := range []model.Protocol{model.TCP, model.UDP, model.SCTP} {
		if p.String() == words[1] {
			f.add(n.Frontend(netip.AddrPortFrom(a, uint16(port)), p))
		}
	}
	number, err := strconv.ParseUint(words[3], 0, 32)
	to, _, _ := strings.Cut(e.Value, " . ")
	if err != nil || to == "" {
		return f.String()
	}
	endpoint, err := netip.ParseAddr(to)
	if err != nil {
		return f.String()
	}
	switch number {
	case rules.ServicePicked:
		f.add(picked(endpoint))
	case rules.ServicePickedOutside:
		f.add("clients outside the cluster: " + picked(endpoint))
	default:
		f.labelled("to", n.Address(endpoint))
	}
	return f.String()
}

// picked says what the number means that stands in place of an address.
func picked(a netip.Addr) string {
	number := binary.NativeEndian.Uint32(a.AsSlice())
	count, affinity := rules.ServicePickCount(number), rules.ServicePickAffinity(number)
	switch {
	case number == rules.ServiceSilent:
		return "no endpoint: drop"
	case affinity > 0:
		return fmt.Sprintf("endpoints: %d, kept for %s", count, affinity)
	}
	return fmt.Sprintf("endpoints: %d", count)
}
