package migrate

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/felixlike/felixlike/model"
)

// looserFailsafe is about failsafe ports.
const looserFailsafe = "The failsafe ports of felixlike (failsafe.in, failsafe.out) are not those of Calico (FelixConfiguration: if the input has it, a note has the setting): " +
	"by default kubelet's tcp/10250 is open to every address, and BGP's tcp/179, Typha's tcp/5473 and etcd's tcp/6666-6667 need rules."

// calicoFailsafe is a failsafe port of a FelixConfiguration (failsafeInboundHostPorts, failsafeOutboundHostPorts). Without a protocol it is of TCP.
type calicoFailsafe struct {
	Protocol string `json:"protocol"`
	Port     uint16 `json:"port"`
	Net      string `json:"net"`
}

// failsafe notes the setting that has the failsafe ports of a FelixConfiguration. A list that it does not have is Calico's default.
func failsafe(c *conversion, i int, d document) {
	row := c.row(i)
	if d.ref.Name != "default" {
		row.lose("metadata.name", "felixlike has the same failsafe ports on all nodes")
		return
	}
	var spec struct {
		In  []calicoFailsafe `json:"failsafeInboundHostPorts"`
		Out []calicoFailsafe `json:"failsafeOutboundHostPorts"`
	}
	if err := json.Unmarshal(d.spec, &spec); err != nil {
		row.lose("spec", "%v", err)
		return
	}
	var lists []string
	for _, list := range []string{failsafePorts(row, "spec.failsafeInboundHostPorts", "in", spec.In), failsafePorts(row, "spec.failsafeOutboundHostPorts", "out", spec.Out)} {
		if list != "" {
			lists = append(lists, list)
		}
	}
	if len(lists) > 0 {
		c.note(fmt.Sprintf("Calico's failsafe ports are this setting of felixlike, beside which DHCP, the tunnel and the agent's own ports are always open: failsafe: {%s}", strings.Join(lists, ", ")))
	}
}

// failsafePorts returns one list of the setting, "" if the FelixConfiguration does not have it.
func failsafePorts(row *Object, field, direction string, ports []calicoFailsafe) string {
	if ports == nil {
		row.lose(field, "not set, so Calico's defaults apply, which felixlike does not have: write failsafe.%s", direction)
		return ""
	}
	var all []model.FailsafePort
	for i, p := range ports {
		at := fmt.Sprintf("%s[%d]", field, i)
		one := model.FailsafePort{PortRange: model.PortRange{Protocol: model.TCP, First: p.Port, Last: p.Port}}
		if p.Protocol != "" {
			if err := one.Protocol.UnmarshalText([]byte(strings.ToLower(p.Protocol))); err != nil {
				row.lose(at+".protocol", "%v", err)
				continue
			}
		}
		if p.Port == 0 {
			row.lose(at+".port", "not a port")
			continue
		}
		if p.Net != "" {
			net, err := netip.ParsePrefix(p.Net)
			if err != nil {
				row.lose(at+".net", "%v", err)
				continue
			}
			one.Net = net.Masked()
		}
		all = append(all, one)
	}
	var words []string
	for i, p := range all {
		// felixlike refuses an entry that another one has too.
		covered := slices.ContainsFunc(all, func(o model.FailsafePort) bool { return o != p && o.Covers(p) })
		if !covered && !slices.Contains(all[:i], p) {
			words = append(words, p.String())
		}
	}
	return direction + ": [" + strings.Join(words, ", ") + "]"
}
