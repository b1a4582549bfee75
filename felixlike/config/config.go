// Package config holds the agent's settings: one versioned file, overridden
// by the environment, then by flags. Unknown keys are errors, every value
// knows where it came from, and the effective configuration can be printed.
//
// The package does no I/O but reading the file. It is tested by tables.
package config

import (
	"time"

	"github.com/felixlike/felixlike/model"
)

// APIVersion and Kind must be in every configuration file.
const (
	APIVersion = "felixlike.io/v1alpha1"
	Kind       = "AgentConfig"
)

// Names of the backends. IPTables leaves the variant to the setting iptables.variant, or to the detection on
// the node.
const (
	NFTables       = "nftables"
	IPTables       = "iptables"
	IPTablesLegacy = "iptables-legacy"
	IPTablesNFT    = "iptables-nft"
	OpenFlow       = "openflow"
)

// Names of the datastores.
const (
	Manifests  = "manifests"
	Kubernetes = "kubernetes"
)

// Values of the setting existingConnections.
const (
	Keep       = "keep"
	Revalidate = "revalidate"
)

// Values of the setting offload.
const (
	OffloadAuto = "auto"
	OffloadOn   = "on"
	OffloadOff  = "off"
)

// Values of the setting verify.
const (
	VerifyOff         = "off"
	VerifyOnResync    = "onResync"
	VerifyEveryChange = "everyChange"
)

// Values of the setting serviceProxy.
const (
	ServiceProxyOff  = "off"
	ServiceProxyFull = "full"
)

// Values of the setting isolation.
const (
	IsolationNone       = "none"
	IsolationNamespaces = "namespaces"
)

// Values of the setting pipelineVariant.
const (
	VariantDefault   = "default"
	VariantOpenShift = "openshift"
)

// Values of the setting trafficMode.
const (
	Encap   = "encap"
	NoEncap = "noEncap"
	Hybrid  = "hybrid"
	// PolicyOnly leaves pods' interfaces, addresses and routes to another CNI plugin.
	PolicyOnly = "networkPolicyOnly"
)

// Values of the setting encryption.
const (
	NoEncryption = "none"
	WireGuard    = "wireguard"
)

// Values of the setting nftables.layout.
const (
	LayoutRules = "rules"
	LayoutMaps  = "maps"
	LayoutAuto  = "auto"
)

// AutoLayoutRules is the number of rules of a pod in one direction from which LayoutAuto takes maps. A packet that passes 100
// rules costs as much as with maps (BenchmarkPacketsByLayout), and rules have counters: pods come to maps with twice that, and
// leave with less.
const AutoLayoutRules = 200

// HostSNAT is the default of the setting snat. The other value is OpenFlow.
const HostSNAT = "host"

// Config are the agent's settings. The keys of the file are the names in the
// json tags, explained by the help tags; the flags are the same in kebab case, and the environment
// variables FELIXLIKE_ and the same in upper case with underscores.
type Config struct {
	// NodeName is this node's name in the datastore; default: the host name. Set it where the host name is
	// not the node's name.
	NodeName string `json:"nodeName" help:"this node's name in the datastore; empty: the host name"`
	// Backend decides policy. Change it to compare or to migrate. "iptables" leaves the variant to
	// IPTablesVariant.
	Backend string `json:"backend" help:"backend that judges packets: nftables, iptables, iptables-legacy, iptables-nft or openflow (in the bridge itself)"`
	// IPTablesVariant is the kernel's implementation that backend "iptables" programs. Set it on nodes where
	// both are in use.
	IPTablesVariant string `json:"iptables.variant" help:"variant of backend iptables: auto (the one that the node's other programs use), legacy or nft"`
	// NFTablesLayout is "maps" on nodes with many changes of policies, and "auto" where some pods have many rules.
	NFTablesLayout string `json:"nftables.layout" help:"how backend nftables holds NetworkPolicies: rules (a rule and a counter each), or maps (look-ups in maps and sets, without a counter for each rule), or auto (maps for pods with 200 rules or more in a direction)"`
	// Datastore is where objects come from, Manifests the directory of one.
	// Kubeconfig is for an agent that is no pod of its cluster.
	Datastore  string `json:"datastore" help:"where objects come from: manifests, a directory of YAML files, or kubernetes, the API server"`
	Manifests  string `json:"manifests" help:"directory that datastore manifests watches"`
	Kubeconfig string `json:"kubeconfig" help:"file by which datastore kubernetes reaches the API server; empty: as a pod of the cluster"`
	// OVSRunDir holds db.sock and <bridge>.mgmt. Change it where Open vSwitch runs in another directory.
	OVSRunDir string `json:"ovsRunDir" help:"directory with Open vSwitch's sockets db.sock and <bridge>.mgmt"`
	// Bridge is the integration bridge, Datapath its type, Tunnel the encapsulation between nodes. With
	// datapath "system", the absence of the kernel's datapath is an error.
	Bridge   string `json:"bridge" help:"integration bridge, made if missing; pods are attached to it"`
	Datapath string `json:"datapath" help:"the bridge's datapath: system (kernel module), netdev (userspace) or auto (system where the module answers)"`
	Tunnel   string `json:"tunnel" help:"encapsulation between nodes: geneve, vxlan or gre"`
	// TrafficMode says how packets between pods of different nodes travel. Set it where the network between the
	// nodes carries pod addresses, to save the tunnel's header and work.
	TrafficMode string `json:"trafficMode" help:"packets between pods of different nodes: encap (tunnelled), noEncap (routed), hybrid (routed within a subnet, else tunnelled), or networkPolicyOnly (as another CNI plugin carries them; felixlike-cni follows it, and there is no Open vSwitch; netfilter backends only); the same on all nodes"`
	// Encryption is "wireguard" where the network between the nodes is not trusted. It takes the place of tunnel and
	// trafficMode. WireGuardPort is changed where another program has the port.
	Encryption    string `json:"encryption" help:"packets between pods of different nodes: none, or wireguard, which encrypts them (trafficMode encap only); the same on all nodes"`
	WireGuardPort int    `json:"wireguard.port" help:"UDP port of WireGuard with encryption wireguard; the same on all nodes"`
	// Uplink is the interface by which the node reaches its peers; on netdev it
	// goes to a separate userspace bridge. Nodes with several uplinks set it.
	Uplink string `json:"uplink" help:"interface to the other nodes, which datapath netdev moves to a userspace bridge; empty: the one with the node's address"`
	// MTU of pods and gateway port in bytes. Set it where the network between nodes takes less than the
	// uplinks.
	MTU int `json:"mtu" help:"MTU of pods and gateway port in bytes; 0: the uplink's less the tunnel's header"`
	// ServiceCIDRs are the prefixes of Service addresses; those that the API server serves (Kubernetes 1.33
	// and later) come on top. Backend "openflow" needs them where pods use Services: it leaves packets to
	// these addresses to kube-proxy, and judges the translated packets.
	ServiceCIDRs Prefixes `json:"serviceCIDRs" help:"prefixes of the cluster's Service addresses; needed with backend openflow where pods use Services and the API server has no ServiceCIDRs"`
	// ServiceProxy is "full" where the agent takes kube-proxy's place. Then it needs APIServer: it cannot reach the address of
	// Service kubernetes before it serves it. NodePortAddresses limits node ports where a node has addresses for other purposes.
	ServiceProxy      string   `json:"serviceProxy" help:"who serves Services: off (kube-proxy), or full (the agent, under every backend; no kube-proxy may run on the node)"`
	APIServer         Hosts    `json:"apiServer" help:"addresses of the API servers, host or host:port (6443), tried in this order; needed with serviceProxy full as a pod of the cluster; empty: the Service kubernetes"`
	NodePortAddresses Prefixes `json:"nodePortAddresses" help:"prefixes of the node's addresses that serve node ports and health checks with serviceProxy full; empty: all, and node ports not on loopback"`
	// Isolation is "namespaces" where the pods of a namespace are not to be reached from others, as with OpenShift SDN's
	// multitenant mode. NetNamespaces join namespaces and make them global.
	Isolation string `json:"isolation" help:"who reaches the pods of a namespace: none (no limit but policies), or namespaces: only pods of that namespace, of joined and of global ones (NetNamespaces), nodes and the outside; the same on all nodes"`
	// PipelineVariant is "openshift" where the bridge has to hold the flows of OpenShift SDN's multitenant mode, without connection
	// tracking. ClusterCIDR is the prefix in its flows that holds the pods of all nodes.
	PipelineVariant string   `json:"pipelineVariant" help:"flows of the bridge: default, or openshift, those of OpenShift SDN's multitenant mode: isolation of namespaces by number and nothing else, IPv4 only (backend openflow, tunnel vxlan, trafficMode encap, isolation namespaces, serviceProxy full); the same on all nodes"`
	ClusterCIDR     Prefixes `json:"clusterCIDR" help:"IPv4 prefix of the pods of all nodes; needed with pipelineVariant openshift"`
	// Masquerade hides pods behind the node's address on the way out of the cluster. Turn it off where pod
	// addresses are routed.
	Masquerade bool `json:"masquerade" help:"hide pods behind the node's address on the way out of the cluster; false where pod addresses are routed"`
	// ForwardAccept keeps rules at the head of FORWARD. Turn it off where an administrator has rules of his own there for packets of pods.
	ForwardAccept bool `json:"forwardAccept" help:"accept packets of pods at the head of FORWARD of iptables where that drops what no rule accepts, as Docker has it; policy judges them before"`
	// SNAT is "openflow" where the bridge is to translate the sources of pods' packets to the outside, as the reference does.
	SNAT string `json:"snat" help:"what replaces the sources of pods' IPv4 packets to the outside: host (masquerade), or openflow, the bridge (backend openflow, datapath netdev, trafficMode encap); it uses the node's ports 10000 to 20000"`
	// ExistingConnections is "revalidate" where a change of policy has to end the connections that it denies,
	// as for the isolation of a pod that was broken into.
	ExistingConnections string `json:"existingConnections" help:"established connections that a change of policy denies: keep, or revalidate, which ends them"`
	// Offload is "auto" or "on" where packets of established connections are to skip the host. It has no effect under backend
	// "openflow" and on datapath "netdev". Rules of other programs at FORWARD then see a connection's first packets only. With
	// "auto" all packets pass the host while there are rules that this would matter to.
	Offload string `json:"offload" help:"packets of established connections that policy has allowed, on the kernel's datapath with a netfilter backend: auto (switched in the bridge, unless rules of other programs have to see them), on (switched), or off (all through the host)"`
	// FailsafeIn and FailsafeOut are the ports that no policy for nodes closes. Change them where a node is reached in another way.
	FailsafeIn  Ports `json:"failsafe.in" help:"ports of the node that no policy for nodes closes, as tcp/22 or tcp/2379-2380, or from some hosts only as tcp/22@192.0.2.0/24; DHCP, the tunnel, WireGuard and healthAddress come on top"`
	FailsafeOut Ports `json:"failsafe.out" help:"ports of other hosts that no policy for nodes closes to the node, of some hosts only as tcp/6443@192.0.2.10/32; DHCP, the tunnel, WireGuard and the API servers of this agent come on top"`
	// RunDir holds the control socket and that of the CNI plugin.
	RunDir string `json:"runDir" help:"directory of the control socket and the CNI plugin's"`
	// StateDir keeps the last good versions of manifests over restarts. Change it where /var/lib is not kept over a reboot.
	StateDir string `json:"stateDir" help:"directory that is kept over reboots, with the last good versions of the files of datastore manifests"`
	// CNIPluginDir has the IPAM plugin host-local. Change it where the runtime keeps its plugins elsewhere;
	// it is empty where no runtime attaches pods (the lab).
	CNIPluginDir string `json:"cniPluginDir" help:"directory with the CNI plugin host-local; empty: the agent serves no CNI plugin"`
	// CNIConfDir is watched for another CNI's configuration that the runtime takes instead of felixlike's;
	// Exclusive renames it. Set Exclusive where another CNI puts its configuration back.
	CNIConfDir string `json:"cniConfDir" help:"the container runtime's directory of network configurations, watched for those of other CNIs; empty: not watched"`
	Exclusive  bool   `json:"exclusive" help:"rename other CNIs' configurations in cniConfDir that come before felixlike's to NAME.felixlike-disabled; uninstall gives them back"`
	// HealthAddress serves /healthz, /readyz and /metrics. Set it to the node's address if Prometheus scrapes
	// from another machine, or if kubelet cannot probe 127.0.0.1; empty opens no port.
	HealthAddress string `json:"healthAddress" help:"address:port of /healthz, /readyz and /metrics; :port for all addresses, empty to turn them off"`
	// ResyncInterval is the time between two full reads of the dataplane.
	ResyncInterval Duration `json:"resyncInterval" help:"time between two full reads of the state that cannot be watched for foreign changes"`
	// Verify is "onResync" or "everyChange" where the programmed state is to be proved against the policies.
	Verify string `json:"verify" help:"proof that the programmed state gives all packets the verdicts of the policies, by felixctl as a process of its own: off, onResync (after the start and each full read), or everyChange (also after each change of the programmed state); felixctl and its tools use less than 2 % of a processor; after a difference the agent is not ready"`
	// LogLevel is debug, info, warn or error.
	LogLevel string `json:"logLevel" help:"debug, info, warn or error"`
}

// Defaults returns the settings without file, environment and flags.
func Defaults() Config {
	return Config{
		NodeName: "", // the host name, looked up by Load
		Backend:  NFTables,

		IPTablesVariant: "auto",
		NFTablesLayout:  LayoutRules,

		Datastore: Manifests,
		Manifests: "/etc/felixlike/manifests",
		OVSRunDir: "/var/run/openvswitch",
		Bridge:    "br-int",
		Datapath:  "auto",
		Tunnel:    "geneve",

		TrafficMode:   Encap,
		Encryption:    NoEncryption,
		WireGuardPort: 51820, // that of wg-quick(8)'s examples, and of other CNIs

		ServiceProxy: ServiceProxyOff,
		Isolation:    IsolationNone,

		PipelineVariant: VariantDefault,

		Masquerade: true, ForwardAccept: true,
		SNAT: HostSNAT,

		ExistingConnections: Keep,
		Offload:             OffloadAuto,

		// ssh, API server, kubelet, and etcd with its peers; out also DNS.
		FailsafeIn:  Ports{tcp(22), tcp(6443), tcp(10250), ports(model.TCP, 2379, 2380)},
		FailsafeOut: Ports{tcp(6443), tcp(10250), ports(model.TCP, 2379, 2380), ports(model.UDP, 53, 53), tcp(53)},

		RunDir:   "/run/felixlike",
		StateDir: "/var/lib/felixlike",

		CNIPluginDir: "/opt/cni/bin",

		// Not 9099, where Felix listens: both run on a node that is migrated.
		HealthAddress: "127.0.0.1:10288",
		// Felix's interval; nothing in the steady state relies on it.
		ResyncInterval: Duration(90 * time.Second),
		Verify:         VerifyOff,
		LogLevel:       "info",
	}
}

// BackendNames lists the values of the setting backend.
func BackendNames() []string {
	return []string{NFTables, IPTables, IPTablesLegacy, IPTablesNFT, OpenFlow}
}

// BackendsInForce lists the backends as they are in force.
func BackendsInForce() []string { return []string{NFTables, IPTablesLegacy, IPTablesNFT, OpenFlow} }

// Traffic returns the name of the model's traffic mode: with encryption, that of the encryption.
func (c *Config) Traffic() string {
	if c.Encryption == WireGuard {
		return WireGuard
	}
	return c.TrafficMode
}

// WireGuardInUse returns the UDP port of WireGuard, or zero without encryption.
func (c *Config) WireGuardInUse() int {
	if c.Encryption == WireGuard {
		return c.WireGuardPort
	}
	return 0
}

// TunnelInUse returns the type of the tunnels between nodes, or "" if the traffic mode uses none.
func (c *Config) TunnelInUse() string {
	if c.TrafficMode == NoEncap || c.TrafficMode == PolicyOnly || c.Encryption == WireGuard {
		return ""
	}
	return c.Tunnel
}

// Duration is a time.Duration that files and flags write as "90s".
type Duration time.Duration

// String returns the duration in Go's notation.
func (d Duration) String() string { return time.Duration(d).String() }
