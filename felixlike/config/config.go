// Package config holds the agent's settings: one versioned file, overridden
// by the environment, then by flags. Unknown keys are errors, every value
// knows where it came from, and the effective configuration can be printed.
//
// The package does no I/O but reading the file. It is tested by tables.
package config

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// APIVersion and Kind are what a configuration file must say of itself.
const (
	APIVersion = "felixlike.io/v1alpha1"
	Kind       = "AgentConfig"
)

// Config are the agent's settings. The keys of the file are the names in the
// json tags; the flags are the same in kebab case, and the environment
// variables FELIXLIKE_ and the same in upper case with underscores.
type Config struct {
	// NodeName is this node's name in the datastore; default: the host name.
	// Everybody whose host name is not the node's name needs it.
	NodeName string `json:"nodeName"`
	// Backend decides policy. Those who compare or migrate change it.
	Backend string `json:"backend"`
	// Datastore is where objects come from, Manifests its directory.
	Datastore string `json:"datastore"`
	Manifests string `json:"manifests"`
	// OVSRunDir holds db.sock and <bridge>.mgmt. Those who run Open vSwitch
	// in a place of its own change it.
	OVSRunDir string `json:"ovsRunDir"`
	// Bridge is the integration bridge, Datapath its type ("system" or
	// "netdev"), Tunnel the encapsulation between nodes.
	Bridge   string `json:"bridge"`
	Datapath string `json:"datapath"`
	Tunnel   string `json:"tunnel"`
	// Uplink is the interface with the node's address; on netdev it goes to
	// a userspace bridge of its own. Needed on netdev only.
	Uplink string `json:"uplink"`
	// MTU of pods and gateway port in bytes: the underlay's less the tunnel's
	// header.
	MTU int `json:"mtu"`
	// Masquerade hides pods behind the node's address on the way out of the
	// cluster. Those who route pod addresses turn it off.
	Masquerade bool `json:"masquerade"`
	// RunDir holds the control socket.
	RunDir string `json:"runDir"`
	// ResyncInterval is the time between two full reads of the dataplane.
	ResyncInterval Duration `json:"resyncInterval"`
	// LogLevel is debug, info, warn or error.
	LogLevel string `json:"logLevel"`
}

// Defaults returns the settings of an agent that was told nothing.
func Defaults() Config {
	return Config{
		NodeName:  "", // the host name, looked up by Load
		Backend:   "nftables",
		Datastore: "manifests",
		Manifests: "/etc/felixlike/manifests",
		OVSRunDir: "/var/run/openvswitch",
		Bridge:    "br-int",
		Datapath:  "system",
		Tunnel:    "geneve",
		// Geneve over IPv4 takes 50 bytes of a 1,500 byte underlay without
		// options: 14 Ethernet + 20 IPv4 + 8 UDP + 8 Geneve.
		MTU:        1450,
		Masquerade: true,
		RunDir:     "/run/felixlike",
		// Felix's interval; nothing in the steady state relies on it.
		ResyncInterval: Duration(90 * time.Second),
		LogLevel:       "info",
	}
}

// validate returns an error that names setting and reason.
func (c *Config) validate() error {
	for _, s := range []struct {
		name, value string
		allowed     []string
	}{
		{"backend", c.Backend, []string{"nftables"}},
		{"datastore", c.Datastore, []string{"manifests"}},
		{"datapath", c.Datapath, []string{"system", "netdev"}},
		{"tunnel", c.Tunnel, []string{"geneve", "vxlan", "gre"}},
		{"logLevel", c.LogLevel, []string{"debug", "info", "warn", "error"}},
	} {
		if !slices.Contains(s.allowed, s.value) {
			return fmt.Errorf("%s: %q is not one of %s", s.name, s.value, strings.Join(s.allowed, ", "))
		}
	}
	for name, value := range map[string]string{
		"nodeName": c.NodeName, "manifests": c.Manifests, "ovsRunDir": c.OVSRunDir, "bridge": c.Bridge, "runDir": c.RunDir,
	} {
		if value == "" {
			return fmt.Errorf("%s: must not be empty", name)
		}
	}
	switch {
	case c.MTU < 1280 || c.MTU > 65535:
		return fmt.Errorf("mtu: %d is not between 1280 (the least that IPv6 allows, RFC 8200) and 65535", c.MTU)
	case c.ResyncInterval < Duration(time.Second):
		return fmt.Errorf("resyncInterval: %s is less than a second", c.ResyncInterval)
	case c.Datapath == "netdev" && c.Uplink == "":
		return fmt.Errorf("uplink: needed with datapath netdev, whose tunnels resolve only through a userspace bridge that has the uplink")
	}
	return nil
}

// Duration is a time.Duration that files and flags write as "90s".
type Duration time.Duration

// String returns the duration in Go's notation.
func (d Duration) String() string { return time.Duration(d).String() }
