package vswitchd

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/felixlike/felixlike/model"
)

// TracedPacket is the first packet of a connection, as it enters a bridge. Port is the destination port, or the
// model.ICMPMessage.
type TracedPacket struct {
	InPort                            uint32
	SourceMAC, DestinationMAC         net.HardwareAddr
	Source, Destination, TunnelSource netip.Addr
	Protocol                          model.Protocol
	SourcePort, Port                  uint16
}

// String returns the packet in the words of ofproto/trace.
func (p TracedPacket) String() string {
	protocol, network := p.Protocol.String(), "nw"
	if model.FamilyOf(p.Destination) == model.IPv6 {
		protocol, network = protocol+"6", "ipv6"
		if p.Protocol == model.ICMPv6 {
			protocol = "icmp6"
		}
	}
	words := []string{protocol, fmt.Sprintf("in_port=%d", p.InPort), "dl_src=" + p.SourceMAC.String(), "dl_dst=" + p.DestinationMAC.String()}
	if p.TunnelSource.IsValid() {
		field := "tun_src="
		if model.FamilyOf(p.TunnelSource) == model.IPv6 {
			field = "tun_ipv6_src="
		}
		words = append(words, field+p.TunnelSource.String())
	}
	words = append(words, fmt.Sprintf("%s_src=%s,%s_dst=%s,nw_ttl=64", network, p.Source, network, p.Destination))
	if p.Protocol.IsICMP() {
		kind, code := model.ICMPTypeAndCode(p.Port)
		words = append(words, fmt.Sprintf("%[1]s_type=%[2]d,%[1]s_code=%[3]d", p.Protocol, kind, code))
	} else {
		words = append(words, fmt.Sprintf("%[1]s_src=%[2]d,%[1]s_dst=%[3]d", p.Protocol, p.SourcePort, p.Port))
	}
	return strings.Join(words, ",")
}

// Traced is the switch's answer about a packet.
type Traced struct {
	// Ports are the OpenFlow ports by which the packet leaves.
	Ports []uint32
	// Last is the last flow that matched, with its table, as ofproto/trace writes it.
	Last string
}

// Leaves reports whether the packet leaves by the port.
func (t Traced) Leaves(port uint32) bool { return slices.Contains(t.Ports, port) }

// Trace asks which way a packet would take by the flows of a bridge. It sends nothing and changes nothing. Every
// lookup of a connection finds a new one.
func (c *Client) Trace(ctx context.Context, bridge string, p TracedPacket) (Traced, error) {
	out, err := c.Call(ctx, "ofproto/trace", bridge, p.String())
	if err != nil {
		return Traced{}, err
	}
	return parseTraced(out), nil
}

// parseTraced parses the output of ofproto/trace (ovs-vswitchd(8)): a line for each table with the flow that
// matched, and below it, indented, the actions and remarks.
func parseTraced(out string) Traced {
	var t Traced
	table := regexp.MustCompile(`^ *\d+\. (.*priority \d+|No match)`)
	port := regexp.MustCompile(`^(?:-> output port is |output:)(\d+)$`)
	for line := range strings.Lines(out) {
		text := strings.TrimSpace(line)
		if table.MatchString(line) {
			t.Last = text
			continue
		}
		if m := port.FindStringSubmatch(text); m != nil {
			n, _ := strconv.ParseUint(m[1], 10, 32) // digits, by the expression
			t.Ports = append(t.Ports, uint32(n))
			continue
		}
		// ">> Nonexistent output port", ">> skipping output to input port" and others of this kind follow the action.
		if strings.HasPrefix(text, ">>") && strings.Contains(text, "output") && len(t.Ports) > 0 {
			t.Ports = t.Ports[:len(t.Ports)-1]
		}
	}
	return t
}
