package ovsdb

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"net/netip"
)

// The datapath types of Open vSwitch.
const (
	DatapathSystem = "system"
	DatapathNetdev = "netdev"
)

// PhysicalBridge is the second userspace bridge. It holds the uplink; its
// local port of the same name holds the node's addresses.
const PhysicalBridge = "br-phy"

// The OpenFlow ports of tunnel and gateway.
const (
	TunnelOFPort  = 1
	GatewayOFPort = 2
)

// The OpenFlow ports of the patches between the two bridges (Config.SNAT), the same on both. They are far from
// those that ovs-vswitchd gives pods.
const (
	SNATUplinkOFPort = 65000
	SNATHostOFPort   = 65001
)

// Config is the desired bridge. The CNI code needs Socket and Bridge only.
type Config struct {
	// Socket is the path of ovsdb-server's unix socket.
	Socket string
	// Bridge is the integration bridge, as in "br-int".
	Bridge string
	// DatapathType is DatapathSystem or DatapathNetdev.
	DatapathType string
	// TunnelType is geneve, vxlan or gre.
	TunnelType string
	// Gateway and Tunnel name the ports.
	Gateway, Tunnel string
	// GatewayMAC is kept by the database, so that it survives ovs-vswitchd.
	GatewayMAC net.HardwareAddr
	// LocalIP is this end of the tunnel, the node's address.
	LocalIP netip.Addr
	// MTU is that of the gateway port.
	MTU int
	// Uplink is the interface that PhysicalBridge takes over on a netdev
	// datapath; empty for none. UplinkMAC is its MAC address.
	Uplink    string
	UplinkMAC net.HardwareAddr
	// SNAT adds two patches between the bridges: packets of one come from and go to the uplink, those of the other the
	// host. It needs an Uplink.
	SNAT bool
	// Zones are connection tracking zones. Their connections get the
	// timeouts of the kernel's connection tracking.
	Zones []uint16
	// Prefixes are, by OpenFlow table, the fields whose prefixes the switch tracks, sorted.
	Prefixes map[int][]string
	// NodeName marks the rows as ours.
	NodeName string
}

// GatewayMAC returns a locally administered MAC address for a node's gateway
// port, always the same for the same name.
func GatewayMAC(nodeName string) net.HardwareAddr {
	sum := sha256.Sum256([]byte("gateway " + nodeName))
	mac := net.HardwareAddr(sum[:6])
	mac[0] = mac[0]&^1 | 2
	return mac
}

// validate checks the fields that EnsureBridge needs.
func (c Config) validate() error {
	switch {
	case c.Gateway == "" || c.Tunnel == "":
		return errors.New("gateway and tunnel port need names")
	case len(c.GatewayMAC) != 6:
		return fmt.Errorf("gateway %s: MAC address %q", c.Gateway, c.GatewayMAC)
	case !c.LocalIP.IsValid():
		return fmt.Errorf("tunnel %s: no local address", c.Tunnel)
	case c.TunnelType == "gre" && !c.LocalIP.Unmap().Is4():
		return fmt.Errorf("tunnel %s: type gre has an outer header of IPv4, and the node's address is %s: set tunnel to geneve or vxlan", c.Tunnel, c.LocalIP)
	case c.hasPhysical() && len(c.UplinkMAC) != 6:
		return fmt.Errorf("uplink %s: MAC address %q", c.Uplink, c.UplinkMAC)
	}
	switch c.DatapathType {
	case DatapathSystem, DatapathNetdev:
	default:
		return fmt.Errorf("unknown datapath type %q: must be %s or %s", c.DatapathType, DatapathSystem, DatapathNetdev)
	}
	switch c.TunnelType {
	case "geneve", "vxlan", "gre":
	default:
		return fmt.Errorf("unknown tunnel type %q: must be geneve, vxlan or gre", c.TunnelType)
	}
	return nil
}

// whyNot returns a hint for the error that no port of the bridge was opened: the
// database does not report a missing datapath.
func (c Config) whyNot() string {
	if c.DatapathType == DatapathSystem {
		return " (datapath system needs the kernel module openvswitch; netdev does not; ovs-vswitchd's log says more)"
	}
	return " (ovs-vswitchd's log says more)"
}

// hasPhysical reports whether the second bridge is wanted.
func (c Config) hasPhysical() bool { return c.DatapathType == DatapathNetdev && c.Uplink != "" }
