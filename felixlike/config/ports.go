package config

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/felixlike/felixlike/model"
)

func tcp(port uint16) model.PortRange {
	return model.PortRange{Protocol: model.TCP, First: port, Last: port}
}

// Ports is a list of ports that the environment and flags write with commas, and files as a list or with commas.
type Ports []model.PortRange

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
		name, ports, _ := strings.Cut(part, "/")
		first, last, isRange := strings.Cut(ports, "-")
		if !isRange {
			last = first
		}
		protocol, err := model.ParseProtocol(strings.ToUpper(name))
		from, errFrom := strconv.ParseUint(first, 10, 16)
		to, errTo := strconv.ParseUint(last, 10, 16)
		if err != nil || errFrom != nil || errTo != nil || from == 0 || to < from {
			return nil, fmt.Errorf("%q is not a port as tcp/22, or a range as tcp/2379-2380", part)
		}
		all = append(all, model.PortRange{Protocol: protocol, First: uint16(from), Last: uint16(to)})
	}
	return all, nil
}
