package install

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/felixlike/felixlike/internal/ipvs"
	"github.com/felixlike/felixlike/internal/listing"
	"github.com/felixlike/felixlike/internal/sysctl"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/ovsdb"
	"github.com/felixlike/felixlike/ovsfwd/wireguard"
)

// The checks of this file look for parts of a distribution or a cluster that keep felixlike from
// working, or policy from being in force.

// serviceProxy looks for a proxy of Services that bypasses policy.
func (o Options) serviceProxy(context.Context) (Level, string) {
	if problem := ipvs.Problem(); problem != "" {
		return Missing, problem
	}
	return Good, "none that bypasses policy"
}

// distributionSocket is the database of Open vSwitch where the packages of distributions run it.
const distributionSocket = "/run/openvswitch/db.sock"

// otherSwitch looks for a running Open vSwitch that is not felixlike's. The kernel's datapath has one
// ovs-vswitchd.
func (o Options) otherSwitch(context.Context) (Level, string) {
	socket := o.OtherSwitch
	if socket == "" {
		socket = distributionSocket
	}
	own := slices.Contains([]string{socket, "/var" + socket}, o.OVSRunDir+"/db.sock")
	if own || !served(socket) {
		return Good, "none"
	}
	level, what := Missing, "two ovs-vswitchd cannot share the kernel's datapath"
	if o.Datapath == ovsdb.DatapathNetdev || o.InUse == ovsdb.DatapathNetdev {
		level, what = Noted, "beside it, felixlike can use the userspace datapath only"
	}
	return level, fmt.Sprintf("the node's own runs (%s): %s. Stop it and keep it from starting: systemctl disable --now openvswitch-switch (or openvswitch)", socket, what)
}

// tunnelPort looks for other users of the tunnel's UDP port: ovs-vswitchd could not use it, and traffic
// between nodes would not pass.
func (o Options) tunnelPort(context.Context) (Level, string) {
	port := int(model.TunnelPortOf(o.Tunnel))
	if port == 0 {
		return Good, "no UDP port is needed"
	}
	links, err := listing.Whole(netlink.LinkList)
	if err != nil {
		return Missing, fmt.Sprintf("network interfaces cannot be listed: %v", err)
	}
	for _, l := range links {
		if tunnelOn(l) != port {
			continue
		}
		if name := l.Attrs().Name; !ofOpenVSwitch(name) {
			return Missing, fmt.Sprintf("the interface %s (%s), of another CNI or an administrator, has UDP port %d: remove it, or choose another tunnel type than %s",
				name, l.Type(), port, o.Tunnel)
		}
		return Good, fmt.Sprintf("Open vSwitch has UDP port %d", port)
	}
	if o.InUse == "" {
		conn, err := net.ListenPacket("udp", ":"+strconv.Itoa(port))
		if err != nil {
			return Missing, fmt.Sprintf("of tunnels between nodes: %v: end the program that has it, or choose another tunnel type than %s", err, o.Tunnel)
		}
		_ = conn.Close()
	}
	return Good, fmt.Sprintf("no other tunnel has UDP port %d", port)
}

// tunnelOn returns the UDP port of a tunnel interface, or zero.
func tunnelOn(l netlink.Link) int {
	switch l := l.(type) {
	case *netlink.Vxlan:
		return l.Port
	case *netlink.Geneve:
		return int(l.Dport)
	}
	return 0
}

// keepalive is the kernel's default of net.ipv4.tcp_keepalive_time: an idle connection says nothing for so long.
const keepalive = 2 * time.Hour

// timeouts checks how long the kernel remembers an idle TCP connection. A forgotten connection that goes on is
// judged as a new one, also in the direction of the client.
func (o Options) timeouts(context.Context) (Level, string) {
	const name = "net/netfilter/nf_conntrack_tcp_timeout_established"
	text, err := sysctl.Read(name)
	if err != nil {
		return Noted, "not checked: the kernel does not track connections in this network namespace yet"
	}
	seconds, err := strconv.Atoi(text)
	if err != nil {
		return Noted, fmt.Sprintf("not checked: sysctl %s: %v", name, err)
	}
	if kept := time.Duration(seconds) * time.Second; kept < keepalive {
		return Noted, fmt.Sprintf("%s is %d: TCP connections that are idle for longer are forgotten, and policy may then end them; set it to %d or more",
			strings.ReplaceAll(name, "/", "."), seconds, int(keepalive/time.Second))
	}
	return Good, "idle TCP connections are remembered"
}

// encryption checks that the kernel has WireGuard, and that its UDP port is free.
func (o Options) encryption(context.Context) (Level, string) {
	if o.WireGuardPort == 0 {
		return Good, "none"
	}
	if err := wireguard.Supported(); err != nil {
		return Missing, err.Error()
	}
	if o.InUse == "" {
		conn, err := net.ListenPacket("udp", ":"+strconv.Itoa(o.WireGuardPort))
		if err != nil {
			return Missing, fmt.Sprintf("UDP port of WireGuard: %v: end the program that has it, or set wireguard.port on all nodes", err)
		}
		_ = conn.Close()
	}
	return Good, fmt.Sprintf("the kernel has WireGuard; UDP port %d", o.WireGuardPort)
}
