package install

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/internal/sysctl"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/ovsdb"
)

// snat looks for programs of the node that use the ports of translated connections. Both can use them: a packet belongs to the
// connection with its other end. Only new packets from the other end of a pod's connection do not come to the program.
func (o Options) snat(context.Context) (Level, string) {
	if !o.SNAT {
		return Good, "by the host"
	}
	if o.Datapath == ovsdb.DatapathSystem || o.InUse == ovsdb.DatapathSystem {
		return Missing, "by the bridge, which needs datapath netdev: set snat to host"
	}
	ports := model.SNATPorts()
	used, err := listeners(ports)
	if err != nil {
		return Noted, fmt.Sprintf("by the bridge; programs that listen on ports %d to %d cannot be listed: %v", ports.First, ports.Last, err)
	}
	var notes []string
	if len(used) > 0 {
		notes = append(notes, "programs of the node listen on "+strings.Join(used, ", "))
	}
	if text, err := sysctl.Read("net/ipv4/ip_local_port_range"); err == nil {
		var first, last uint16
		if _, err := fmt.Sscan(text, &first, &last); err == nil && first <= ports.Last && last >= ports.First {
			notes = append(notes, fmt.Sprintf("net.ipv4.ip_local_port_range is %d to %d", first, last))
		}
	}
	if len(notes) > 0 {
		return Noted, fmt.Sprintf("by the bridge, which shares ports %d to %d with the node: %s", ports.First, ports.Last, strings.Join(notes, "; "))
	}
	return Good, fmt.Sprintf("by the bridge; no program listens on ports %d to %d", ports.First, ports.Last)
}

// tcpListen is TCP_LISTEN of linux/tcp_states.h.
const tcpListen = 10

// listeners returns the sockets that take packets to ports of a range, as "tcp/10250".
func listeners(ports model.PortRange) ([]string, error) {
	found := map[string]bool{}
	add := func(protocol string, s *netlink.Socket) {
		if s.ID.SourcePort >= ports.First && s.ID.SourcePort <= ports.Last {
			found[fmt.Sprintf("%s/%d", protocol, s.ID.SourcePort)] = true
		}
	}
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		tcp, err := netlink.SocketDiagTCP(family)
		if err != nil {
			return nil, fmt.Errorf("list sockets of TCP: %w", err)
		}
		for _, s := range tcp {
			if s.State == tcpListen {
				add("tcp", s)
			}
		}
		udp, err := netlink.SocketDiagUDP(family)
		if err != nil {
			return nil, fmt.Errorf("list sockets of UDP: %w", err)
		}
		for _, s := range udp {
			add("udp", s)
		}
	}
	var all []string
	for s := range found {
		all = append(all, s)
	}
	slices.Sort(all)
	return all, nil
}
