package backend

import (
	"net/netip"
	"path/filepath"

	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/ovsdb"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
	"github.com/felixlike/felixlike/tables/iptables"
)

// Config names a backend, and has the values that it needs of the node.
type Config struct {
	// Name is one of config.BackendNames; Variant is the variant for the name IPTables.
	Name    string
	Variant iptables.Variant
	// Layout is that of NFTables: config.LayoutRules, also if empty, config.LayoutMaps or config.LayoutAuto.
	Layout string
	// Kept are the lists of policies that LayoutAuto has in maps although they have few rules (Layout.Kept).
	Kept []string
	// Node is the node's name. With Masquerade, pods are hidden behind the node's
	// address on the way out of the cluster.
	Node       string
	Masquerade bool
	// TrafficMode is the way of packets between nodes.
	TrafficMode model.TrafficMode
	// TunnelPort is the UDP port of the tunnel, or of WireGuard; zero if it has none.
	TunnelPort uint16
	// ServiceProxy is set if this agent leads connections to Services to their endpoints, and no kube-proxy does. It serves NodePorts
	// on the addresses of NodePortAddresses, without any on all but loopback.
	ServiceProxy      bool
	NodePortAddresses []netip.Prefix
	// Cluster is the prefix of all nodes' pods with the pipeline of OpenShift SDN (setting pipelineVariant); else the zero Prefix.
	Cluster netip.Prefix
	// NetNS is the descriptor of the network namespace to program; the
	// caller's if zero.
	NetNS int
	// Switch locates the bridge; only OpenFlow uses it.
	Switch Switch
	// CommonFrom replaces managers.CommonFrom and its like if it is not zero.
	CommonFrom int
	// GrantsBound replaces grants.DefaultBound if it is not zero.
	GrantsBound int
}

// ConfigOf returns the config of the configured backend.
func ConfigOf(cfg *config.Effective, datapath string) (Config, error) {
	variant, err := iptables.ParseVariant(cfg.IPTablesVariant)
	if err != nil {
		return Config{}, err
	}
	var mode model.TrafficMode
	if err := mode.UnmarshalText([]byte(cfg.Traffic())); err != nil {
		return Config{}, err
	}
	if err := config.CheckDatapath(&cfg.Config, datapath); err != nil {
		return Config{}, err
	}
	var cluster netip.Prefix
	if cfg.PipelineVariant == config.VariantOpenShift {
		cluster = cfg.ClusterCIDR[0]
	}
	return Config{
		Cluster: cluster, Name: cfg.Backend, TrafficMode: mode, TunnelPort: TunnelPortOf(&cfg.Config), Variant: variant, Layout: cfg.NFTablesLayout, Node: cfg.NodeName, Masquerade: cfg.Masquerade,
		ServiceProxy: cfg.ServiceProxy == config.ServiceProxyFull, NodePortAddresses: cfg.NodePortAddresses,
		Switch: Switch{RunDir: cfg.OVSRunDir, Bridge: cfg.Bridge, Node: pipeline.Node{
			GatewayPort: ovsdb.GatewayOFPort, TunnelPort: ovsdb.TunnelOFPort, GatewayMAC: ovsdb.GatewayMAC(cfg.NodeName),
			Userspace: datapath == ovsdb.DatapathNetdev, ServiceCIDRs: cfg.ServiceCIDRs, Services: cfg.ServiceProxy == config.ServiceProxyFull && datapath == ovsdb.DatapathNetdev, SNAT: SNAT(cfg.SNAT == config.OpenFlow),
		}},
	}, nil
}

// SNAT returns the ports of translation by the switch, or nil if that is off. Addresses come with the model.
func SNAT(on bool) *pipeline.SNAT {
	if !on {
		return nil
	}
	ports := model.SNATPorts()
	return &pipeline.SNAT{
		Uplink: ovsdb.SNATUplinkOFPort, Host: ovsdb.SNATHostOFPort, Bridge: ovsdb.PhysicalBridge, First: ports.First, Last: ports.Last,
	}
}

// TunnelPortOf returns the UDP port that is closed to strangers: that of WireGuard, or of the tunnel; zero if it has none.
func TunnelPortOf(cfg *config.Config) uint16 {
	if cfg.Encryption == config.WireGuard {
		return uint16(cfg.WireGuardPort)
	}
	return model.TunnelPortOf(cfg.Tunnel)
}

// Switch locates a bridge, and has the values that the node's pipeline needs.
type Switch struct {
	// RunDir holds the sockets of Open vSwitch.
	RunDir, Bridge string
	// Node has the bridge's ports and settings; addresses come with the model.
	Node pipeline.Node
}

// ManagementSocket is the path of the bridge's OpenFlow socket.
func (s Switch) ManagementSocket() string { return filepath.Join(s.RunDir, s.Bridge+".mgmt") }

// DatapathType is the type of the bridge's datapath.
func (s Switch) DatapathType() string {
	if s.Node.Userspace {
		return ovsdb.DatapathNetdev
	}
	return ovsdb.DatapathSystem
}

// Multitenant reports whether the bridge has the pipeline of OpenShift SDN.
func (c Config) Multitenant() bool { return c.Cluster.IsValid() }

// ForOther returns the config of a backend of another kind for the same node.
func (c Config) ForOther(name string) Config {
	c.Name = name
	return c
}
