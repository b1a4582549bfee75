package lab

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/spf13/pflag"

	"github.com/felixlike/felixlike/cmd/felixctl/labs"
	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/ovsfwd/ovsdb"
	"github.com/felixlike/felixlike/ovsfwd/underlay"
)

// Config configures a lab. Empty fields take their defaults.
type Config struct {
	// Name names the lab; namespaces and files carry it. No default.
	Name string
	// Root is the folder of all labs' records; labs.Root() if empty.
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
	// Other are other settings of the agents, by key.
	Other map[string]string
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

// fields are the settings of the agents that have a field, by key.
func (c *Config) fields() map[string]*string {
	return map[string]*string{
		"backend": &c.Backend, "datapath": &c.Datapath, "tunnel": &c.Tunnel, "logLevel": &c.LogLevel, "existingConnections": &c.ExistingConnections,
		"offload": &c.Offload, "trafficMode": &c.TrafficMode, "encryption": &c.Encryption, "nftables.layout": &c.NFTablesLayout, "snat": &c.SNAT,
		"serviceProxy": &c.ServiceProxy, "isolation": &c.Isolation, "pipelineVariant": &c.PipelineVariant, "verify": &c.Verify,
	}
}

// Set sets a setting of the agents by KEY=VALUE.
func (c *Config) Set(text string) error {
	key, value, err := config.Pair(text)
	if err != nil {
		return err
	}
	if slices.Contains([]string{
		"nodeName", "ovsRunDir", "bridge", "uplink", "mtu", "runDir", "stateDir", "cniPluginDir", "cniConfDir", "exclusive", "datastore", "manifests", "kubeconfig",
		"apiServer", "clusterCIDR", "healthAddress",
	}, key) {
		return fmt.Errorf("%s: the lab sets it itself", key)
	}
	if field := c.fields()[key]; field != nil {
		*field = value
		return config.CheckChoice(key, value)
	}
	if c.Other == nil {
		c.Other = map[string]string{}
	}
	c.Other[key] = value
	return nil
}

// Settings returns the settings of the agents that were given, as KEY=VALUE.
func (c Config) Settings() []string {
	var all []string
	for key, value := range c.fields() {
		if *value != "" {
			all = append(all, key+"="+*value)
		}
	}
	for key, value := range c.Other {
		all = append(all, key+"="+value)
	}
	slices.Sort(all)
	return all
}

func (c Config) withDefaults() (Config, error) {
	if c.Datapath == "" {
		c.Datapath = ovsdb.DatapathNetdev
	}
	if err := checkName(c.Name); err != nil {
		return c, err
	}
	fields := c.fields()
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		value := fields[key]
		if *value == "" {
			*value = config.DefaultOf(key)
		}
		if err := config.CheckChoice(key, *value); err != nil {
			return c, fmt.Errorf("lab %s: %w", c.Name, err)
		}
	}
	if c.Root == "" {
		c.Root = labs.Root()
	}
	if c.SyncTimeout <= 0 {
		c.SyncTimeout = DefaultSyncTimeout
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
	if err := c.checkSettings(); err != nil {
		return c, fmt.Errorf("lab %s: %w", c.Name, err)
	}
	var err error
	if c.Agent == "" {
		c.Agent, err = FindAgent()
	}
	return c, err
}

// checkSettings validates the settings together, as an agent does at its start.
func (c *Config) checkSettings() error {
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	config.AddSetFlag(flags)
	args := []string{"--node-name", "node", "--service-cidrs", serviceCIDRs()}
	if c.PipelineVariant != config.VariantDefault {
		args = append(args, "--cluster-cidr", Pods().String())
	}
	for _, s := range c.Settings() {
		args = append(args, "--set", s)
	}
	if err := flags.Parse(args); err != nil {
		return err
	}
	_, err := config.Load(flags, nil)
	return err
}
