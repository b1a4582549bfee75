package lab

import (
	"fmt"
	"time"

	"github.com/felixlike/felixlike/cmd/felixctl/labs"
	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/ovsfwd/ovsdb"
	"github.com/felixlike/felixlike/ovsfwd/underlay"
)

// Config configures a lab. Empty fields take their defaults.
type Config struct {
	// Name names the lab; namespaces and files carry it. No default.
	Name string
	// Root is the folder of all labs' records; labs.DefaultRoot if empty.
	Root string
	// Agent is the agent's binary; FindAgent looks for it if empty.
	Agent string
	// Backend, Datapath, Tunnel and LogLevel are the agents' flags of these
	// names. Datapath is netdev if empty: the userspace datapath needs no
	// kernel module and runs in any network namespace.
	Backend, Datapath, Tunnel, LogLevel string
	// NFTablesLayout is the setting nftables.layout of the agents; the default if it is empty.
	NFTablesLayout string
	// ServeCNI has the agents serve the CNI plugin. Such an agent restores the ports of pods
	// that another program removes.
	ServeCNI bool
	// ExistingConnections is the setting of the agents; the default if it is empty.
	ExistingConnections string
	// Offload is the setting of the agents; the default if it is empty.
	Offload string
	// TrafficMode is the setting of the agents; the default if it is empty.
	TrafficMode string
	// Encryption is the setting of the agents; the default if it is empty. With wireguard, the lab makes the private keys and
	// writes the public ones into the Node manifests.
	Encryption string
	// SNAT is the setting of the agents; the default if it is empty.
	SNAT string
	// ServiceProxy is the setting of the agents; the default if it is empty.
	ServiceProxy string
	// Isolation is the setting of the agents; the default if it is empty.
	Isolation string
	// PipelineVariant is the setting of the agents; the default if it is empty.
	PipelineVariant string
	// Verify is the setting of the agents; the default if it is empty. Felixctl must be beside the agent.
	Verify string
	// ProbeRate is the number of probes begun per second; probe.DefaultRate if
	// zero.
	ProbeRate int
	// SyncTimeout bounds the wait until the agents have programmed a state.
	SyncTimeout time.Duration
}

// DefaultSyncTimeout is generous: on a busy machine twenty agents may start at
// the same time.
const DefaultSyncTimeout = 60 * time.Second

// Check returns an error if a lab cannot be made like this, before anything is
// made.
func (c Config) Check() error {
	_, err := c.withDefaults()
	return err
}

func (c Config) withDefaults() (Config, error) {
	if err := checkName(c.Name); err != nil {
		return c, err
	}
	for _, field := range []struct {
		value *string
		def   string
	}{{&c.Root, labs.DefaultRoot}, {&c.Backend, "nftables"}, {&c.Datapath, "netdev"}, {&c.Tunnel, "geneve"}, {&c.LogLevel, "info"}, {&c.ExistingConnections, config.Keep}, {&c.Offload, config.Defaults().Offload}, {&c.TrafficMode, config.Encap}, {&c.Encryption, config.NoEncryption}, {&c.NFTablesLayout, config.LayoutRules}, {&c.SNAT, config.HostSNAT}, {&c.ServiceProxy, config.ServiceProxyOff}, {&c.Isolation, config.IsolationNone}, {&c.PipelineVariant, config.VariantDefault}, {&c.Verify, config.VerifyOff}} {
		if *field.value == "" {
			*field.value = field.def
		}
	}
	if c.SyncTimeout <= 0 {
		c.SyncTimeout = DefaultSyncTimeout
	}
	for key, value := range map[string]string{"backend": c.Backend, "datapath": c.Datapath, "tunnel": c.Tunnel, "logLevel": c.LogLevel, "existingConnections": c.ExistingConnections, "offload": c.Offload, "trafficMode": c.TrafficMode, "encryption": c.Encryption, "nftables.layout": c.NFTablesLayout, "snat": c.SNAT, "serviceProxy": c.ServiceProxy, "isolation": c.Isolation, "pipelineVariant": c.PipelineVariant, "verify": c.Verify} {
		if err := config.CheckChoice(key, value); err != nil {
			return c, fmt.Errorf("lab %s: %w", c.Name, err)
		}
	}
	if c.TrafficMode == config.PolicyOnly {
		return c, fmt.Errorf("lab %s: trafficMode %s is for nodes where another CNI plugin carries the packets of pods: a lab has none", c.Name, c.TrafficMode)
	}
	if c.Datapath == ovsdb.DatapathSystem {
		// The agents would try for ever.
		if err := underlay.KernelDatapath(); err != nil {
			return c, fmt.Errorf("lab %s: datapath %s: %w (datapath %s needs no module)", c.Name, c.Datapath, err, ovsdb.DatapathNetdev)
		}
	}
	var err error
	if c.Agent == "" {
		c.Agent, err = FindAgent()
	}
	return c, err
}
