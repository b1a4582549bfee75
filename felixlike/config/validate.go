package config

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/felixlike/felixlike/internal/nearest"
)

// Choices returns the values that a setting may have; nil if it is not one of
// a few.
func Choices(key string) []string {
	return map[string][]string{
		"backend": BackendNames(),

		"iptables.variant": {"auto", "legacy", "nft"},
		"nftables.layout":  {LayoutRules, LayoutMaps, LayoutAuto},

		"datastore": {Manifests, Kubernetes},
		"datapath":  {"auto", "system", "netdev"},
		"tunnel":    {"geneve", "vxlan", "gre"},

		"trafficMode": {Encap, NoEncap, Hybrid, PolicyOnly},
		"encryption":  {NoEncryption, WireGuard},

		"serviceProxy":        {ServiceProxyOff, ServiceProxyFull},
		"isolation":           {IsolationNone, IsolationNamespaces},
		"pipelineVariant":     {VariantDefault, VariantOpenShift},
		"snat":                {HostSNAT, OpenFlow},
		"existingConnections": {Keep, Revalidate},
		"offload":             {OffloadAuto, OffloadOn, OffloadOff},
		"verify":              {VerifyOff, VerifyOnResync, VerifyEveryChange},

		"logLevel": {"debug", "info", "warn", "error"},
	}[key]
}

// CheckChoice returns an error that names the allowed values if the value is
// not one of the setting's.
func CheckChoice(key, value string) error {
	if choices := Choices(key); !slices.Contains(choices, value) {
		return fmt.Errorf("%s: %q is not one of %s%s", key, value, strings.Join(choices, ", "), nearest.Hint(value, choices))
	}
	return nil
}

// checkEncryption returns an error if WireGuard does not work with a traffic mode.
func checkEncryption(encryption, mode string) error {
	if encryption == WireGuard && mode != Encap {
		return fmt.Errorf("encryption: %s carries all packets between nodes, so it does not work with trafficMode %s: set trafficMode to %s", WireGuard, mode, Encap)
	}
	return nil
}

// CheckPolicyOnly returns an error if the traffic mode networkPolicyOnly does not work with a backend.
func CheckPolicyOnly(mode, backend string) error {
	if mode == PolicyOnly && backend == OpenFlow {
		return fmt.Errorf("trafficMode: with %s there is no bridge for backend %s: choose nftables or iptables", PolicyOnly, OpenFlow)
	}
	return nil
}

// CheckSNAT returns an error if translation by the switch does not work with a backend.
func CheckSNAT(on bool, backend string) error {
	if on && backend != OpenFlow {
		return fmt.Errorf("snat: %s does not work with backend %s, which sees packets in the host only: set snat to %s", OpenFlow, backend, HostSNAT)
	}
	return nil
}

// CheckDatapath returns an error if a setting does not work with the datapath in use.
func CheckDatapath(c *Config, datapath string) error {
	if c.SNAT == OpenFlow && datapath != "netdev" {
		return fmt.Errorf("snat: %s needs datapath netdev, where the uplink is in a bridge; this node has %s: set snat to %s", OpenFlow, datapath, HostSNAT)
	}
	return nil
}

// checkServiceProxy returns an error if the agent could not serve Services, or could not reach the API server without them.
func (c *Config) checkServiceProxy() error {
	var all []error
	if c.ServiceProxy == ServiceProxyFull {
		if c.TrafficMode == PolicyOnly {
			all = append(all, fmt.Errorf("serviceProxy: %s does not work with trafficMode %s: set serviceProxy to %s", ServiceProxyFull, PolicyOnly, ServiceProxyOff))
		}
		if c.Datastore == Kubernetes && c.Kubeconfig == "" && len(c.APIServer) == 0 {
			all = append(all, fmt.Errorf("apiServer: with serviceProxy %s name the addresses of the API servers: the agent cannot reach the Service kubernetes before it serves it", ServiceProxyFull))
		}
	}
	if len(c.APIServer) > 0 && c.Kubeconfig != "" {
		all = append(all, errors.New("apiServer: kubeconfig names the API server: set one of both"))
	}
	for _, p := range c.NodePortAddresses {
		if p != p.Masked() {
			all = append(all, fmt.Errorf("nodePortAddresses: %w", hostBits(p)))
		}
	}
	return errors.Join(all...)
}

// checkSNAT returns an error if translation by the switch does not work with other settings.
func (c *Config) checkSNAT() error {
	if c.SNAT != OpenFlow {
		return nil
	}
	all := []error{CheckSNAT(true, c.Backend)}
	if c.Datapath == "system" {
		all = append(all, CheckDatapath(c, c.Datapath))
	}
	if c.Traffic() != Encap {
		all = append(all, fmt.Errorf("snat: %s works with trafficMode %s only, without encryption: else packets between nodes pass the host, and could be translated too", OpenFlow, Encap))
	}
	if !c.Masquerade {
		all = append(all, fmt.Errorf("snat: with masquerade false there is nothing to translate: set snat to %s", HostSNAT))
	}
	return errors.Join(all...)
}

// validate returns all errors, each with setting and reason, in a fixed order.
func (c *Config) validate() error {
	var all []error
	for _, s := range []struct{ key, value string }{
		{"backend", c.Backend},
		{"iptables.variant", c.IPTablesVariant},
		{"nftables.layout", c.NFTablesLayout},
		{"datastore", c.Datastore},
		{"datapath", c.Datapath},
		{"tunnel", c.Tunnel},
		{"trafficMode", c.TrafficMode},
		{"encryption", c.Encryption},
		{"serviceProxy", c.ServiceProxy},
		{"isolation", c.Isolation},
		{"pipelineVariant", c.PipelineVariant},
		{"snat", c.SNAT},
		{"existingConnections", c.ExistingConnections},
		{"offload", c.Offload},
		{"verify", c.Verify},
		{"logLevel", c.LogLevel},
	} {
		all = append(all, CheckChoice(s.key, s.value))
	}
	for _, s := range []struct{ key, value string }{
		{"nodeName", c.NodeName},
		{"manifests", c.Manifests},
		{"ovsRunDir", c.OVSRunDir},
		{"bridge", c.Bridge},
		{"runDir", c.RunDir},
		{"stateDir", c.StateDir},
	} {
		if s.value == "" {
			all = append(all, fmt.Errorf("%s: must not be empty", s.key))
		}
	}
	if c.TrafficMode == PolicyOnly && c.Exclusive {
		all = append(all, fmt.Errorf("exclusive: with trafficMode %s the other CNI's network configuration has to stay", PolicyOnly))
	}
	if c.TrafficMode == PolicyOnly && c.ExistingConnections == Revalidate {
		all = append(all, fmt.Errorf("existingConnections: %s does not work with trafficMode %s", Revalidate, PolicyOnly))
	}
	if c.TrafficMode == PolicyOnly && c.Isolation == IsolationNamespaces {
		// Pods' addresses may be outside the prefixes that Node objects have.
		all = append(all, fmt.Errorf("isolation: %s does not work with trafficMode %s, where the other CNI chooses the addresses of pods: set isolation to %s", IsolationNamespaces, PolicyOnly, IsolationNone))
	}
	all = append(all, checkEncryption(c.Encryption, c.TrafficMode), c.checkServiceProxy(), c.checkSNAT(), CheckPolicyOnly(c.TrafficMode, c.Backend), c.checkVariant())
	if c.WireGuardPort < 1 || c.WireGuardPort > 65535 {
		all = append(all, fmt.Errorf("wireguard.port: %d is not between 1 and 65535", c.WireGuardPort))
	}
	if err := checkServiceCIDRs(c.ServiceCIDRs); err != nil {
		all = append(all, fmt.Errorf("serviceCIDRs: %w", err))
	}
	if err := checkListen(c.HealthAddress); err != nil {
		all = append(all, fmt.Errorf("healthAddress: %w", err))
	}
	if c.MTU != 0 && (c.MTU < 1280 || c.MTU > 65535) {
		all = append(all, fmt.Errorf("mtu: %d is neither 0 nor between 1280 (the least that IPv6 allows, RFC 8200) and 65535", c.MTU))
	}
	if c.ResyncInterval < Duration(time.Second) {
		all = append(all, fmt.Errorf("resyncInterval: %s is less than a second", c.ResyncInterval))
	}
	return errors.Join(all...)
}

// checkListen returns an error unless an address is empty or can be listened on. Names are refused: their
// addresses may change.
func checkListen(address string) error {
	if address == "" {
		return nil
	}
	host, port, err := net.SplitHostPort(address)
	if err == nil && host != "" {
		_, err = netip.ParseAddr(host)
	}
	if n, portErr := strconv.ParseUint(port, 10, 16); err != nil || portErr != nil || n == 0 {
		return fmt.Errorf("%q is not address:port or :port, as 127.0.0.1:10288", address)
	}
	return nil
}

// checkServiceCIDRs returns an error unless each prefix is one of Service
// addresses: no host bits, no other one's part, and not everything.
func checkServiceCIDRs(all Prefixes) error {
	for i, p := range all {
		switch {
		case p != p.Masked():
			return hostBits(p)
		case p.Bits() == 0 || p.Addr().IsMulticast() || p.Addr().IsLoopback() || p.Addr().IsLinkLocalUnicast():
			return fmt.Errorf("%s cannot be the prefix of Service addresses", p)
		}
		if at := slices.IndexFunc(all[:i], p.Overlaps); at >= 0 {
			return fmt.Errorf("%s and %s overlap", all[at], p)
		}
	}
	return nil
}
