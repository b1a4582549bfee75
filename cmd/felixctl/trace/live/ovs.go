package live

import (
	"context"
	"net"
	"net/netip"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/felixlike/felixlike/cmd/felixctl/trace"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/vswitchd"
)

// switchFlow writes the packet, as it comes in by a port, in the words of
// ofproto/trace.
func switchFlow(p trace.Packet, port uint32, src, dst net.HardwareAddr, outer netip.Addr) string {
	traced := vswitchd.TracedPacket{
		InPort: port, SourceMAC: src, DestinationMAC: dst, TunnelSource: outer,
		Source: p.Source, Destination: p.Destination, Protocol: p.Protocol, SourcePort: p.SourcePort, Port: p.Port,
	}
	if p.Protocol.IsICMP() {
		traced.Port = model.ICMPMessage(message(p))
	}
	return traced.String()
}

// askSwitch asks ovs-vswitchd for the path of the packet, as the first of a
// connection.
func askSwitch(ctx context.Context, n Node, bridge, flow string, names trace.Namer) (steps []trace.Step, raw []string, err error) {
	// The socket is a file: no namespace matters.
	out, err := vswitchd.New(n.OVSDir, "").Call(ctx, "ofproto/trace", bridge, flow)
	if err != nil {
		return nil, nil, err
	}
	raw = strings.Split(strings.TrimSpace(out), "\n")
	return parseSwitch(n.Name, bridge, raw, names), raw, nil
}

// management is the bridge's OpenFlow socket.
func (n Node) management(bridge string) string { return filepath.Join(n.OVSDir, bridge+".mgmt") }

// parseSwitch parses the output of ofproto/trace: a line for every table with the flow
// that matched, and its actions indented behind it.
func parseSwitch(node, bridge string, lines []string, names trace.Namer) []trace.Step {
	table := regexp.MustCompile(`^\s*(\d+)\. (.*?),? ?priority (\d+)(?:, cookie 0x[0-9a-f]+)?$`)
	conjunction := regexp.MustCompile(`\bconj_id=(\d+)`)
	none := regexp.MustCompile(`^\s*(\d+)\. No match\.$`)
	var steps []trace.Step
	for _, line := range lines {
		s := trace.Step{Node: node, Place: "bridge " + bridge}
		if m := none.FindStringSubmatch(line); m != nil {
			s.Table, s.Effect = tableOf(m[1]), "no flow matches"
			steps = append(steps, s)
			continue
		}
		if m := table.FindStringSubmatch(line); m != nil {
			s.Table, s.Rule = tableOf(m[1]), m[2]
			s.Number, _ = strconv.Atoi(m[3])
			if c := conjunction.FindStringSubmatch(s.Rule); c != nil {
				id, _ := strconv.ParseUint(c[1], 10, 32) // digits, by the expression
				s.Policy, s.PolicyRule = names.Conjunction(uint32(id))
			}
			steps = append(steps, s)
			continue
		}
		action := strings.TrimSpace(line)
		if len(steps) == 0 || !strings.HasPrefix(line, " ") || remark(action) {
			continue
		}
		switch last := &steps[len(steps)-1]; {
		case last.Effect == "":
			last.Effect = action
		case action != "drop": // which it says behind each ct
			last.Effect += ", " + action
		}
	}
	return steps
}

// remark reports whether a line is no action of a flow.
func remark(line string) bool {
	return line == "" || line == "thaw" || strings.HasPrefix(line, "->") || strings.HasPrefix(line, ">>") || strings.HasPrefix(line, "Resuming ")
}

func tableOf(number string) string {
	n, _ := strconv.Atoi(number)
	return trace.TableName(uint8(n))
}
