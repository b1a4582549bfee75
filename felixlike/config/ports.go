package config

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/felixlike/felixlike/model"
)

func ports(p model.Protocol, first, last uint16) model.FailsafePort {
	return model.FailsafePort{PortRange: model.PortRange{Protocol: p, First: first, Last: last}}
}

func tcp(port uint16) model.FailsafePort { return ports(model.TCP, port, port) }

// Ports is a list of ports that the environment and flags write with commas, and files as a list or with commas.
type Ports []model.FailsafePort

// String returns the ports with commas between them.
func (p Ports) String() string {
	texts := make([]string, len(p))
	for i, r := range p {
		texts[i] = r.String()
	}
	return strings.Join(texts, ",")
}

// parsePorts parses the format of String.
func parsePorts(text string) (Ports, error) {
	all := Ports{}
	if strings.TrimSpace(text) == "" {
		return all, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		part = strings.TrimSpace(part)
		at, hosts, some := strings.Cut(part, "@")
		name, numbers, _ := strings.Cut(at, "/")
		first, last, isRange := strings.Cut(numbers, "-")
		if !isRange {
			last = first
		}
		protocol, err := model.ParseProtocol(strings.ToUpper(name))
		from, errFrom := strconv.ParseUint(first, 10, 16)
		to, errTo := strconv.ParseUint(last, 10, 16)
		if err != nil || errFrom != nil || errTo != nil || from == 0 || to < from {
			return nil, fmt.Errorf("%q is not a port as tcp/22, or a range as tcp/2379-2380", part)
		}
		p := ports(protocol, uint16(from), uint16(to))
		if some {
			if p.Net, err = parseNet(hosts); err != nil {
				return nil, fmt.Errorf("%q: %w", part, err)
			}
		}
		all = append(all, p)
	}
	for i, p := range all {
		if slices.Contains(all[:i], p) {
			return nil, fmt.Errorf("%q is there twice", p)
		}
		// Who adds a prefix to one entry, and leaves another one, closes nothing.
		if by := slices.IndexFunc(all, func(o model.FailsafePort) bool { return o != p && o.Covers(p) }); by >= 0 && p.Net.IsValid() {
			return nil, fmt.Errorf("%q has no effect: %q covers it", p, all[by])
		}
	}
	return all, nil
}

// parseNet parses the hosts of a port: one prefix.
func parseNet(text string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(text)
	switch {
	case err != nil || p.Addr().Is4In6():
		return p, fmt.Errorf("after @ there must be one prefix, as in tcp/22@192.0.2.0/24, and not %q", text)
	case p != p.Masked():
		return p, hostBits(p)
	}
	return p, nil
}

func hostBits(p netip.Prefix) error {
	return fmt.Errorf("%s has bits behind its length: %s is meant", p, p.Masked())
}
