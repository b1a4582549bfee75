package config

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// CheckVariant returns an error if the pipeline variant does not work with a backend.
func CheckVariant(variant, backend string) error {
	if variant == VariantOpenShift && backend != OpenFlow {
		return fmt.Errorf("pipelineVariant: %s is a pipeline of backend %s, and does not work with backend %s", VariantOpenShift, OpenFlow, backend)
	}
	return nil
}

// checkVariant returns an error for each setting that does not work with the pipeline of OpenShift SDN.
func (c *Config) checkVariant() error {
	if c.PipelineVariant != VariantOpenShift {
		if len(c.ClusterCIDR) > 0 {
			return fmt.Errorf("clusterCIDR: it means nothing without pipelineVariant %s", VariantOpenShift)
		}
		return nil
	}
	all := []error{CheckVariant(c.PipelineVariant, c.Backend)}
	for _, s := range []struct {
		key, has string
		works    []string
		why      string
	}{
		{"tunnel", c.Tunnel, []string{"vxlan"}, "the number of a project is the identifier of a VXLAN"},
		{"trafficMode", c.TrafficMode, []string{Encap}, "the number of a project travels in the tunnel"},
		{"encryption", c.Encryption, []string{NoEncryption}, "the number of a project travels in the tunnel"},
		{"isolation", c.Isolation, []string{IsolationNamespaces}, "the pipeline isolates namespaces"},
		{"serviceProxy", c.ServiceProxy, []string{ServiceProxyFull}, "the agent has to leave out endpoints in other projects, which kube-proxy does not"},
		{"snat", c.SNAT, []string{HostSNAT}, "the pipeline translates nothing"},
		{"existingConnections", c.ExistingConnections, []string{Keep}, "the pipeline judges every packet, and tracks no connections"},
		{"offload", c.Offload, []string{OffloadAuto, OffloadOff}, "there is nothing to offload"},
		{"verify", c.Verify, []string{VerifyOff}, "the proof does not know the flows of the pipeline"},
	} {
		if !slices.Contains(s.works, s.has) {
			all = append(all, fmt.Errorf("%s: %s does not work with pipelineVariant %s: %s; set it to %s", s.key, s.has, VariantOpenShift, s.why, strings.Join(s.works, " or ")))
		}
	}
	return errors.Join(append(all, c.checkVariantPrefixes())...)
}

// checkVariantPrefixes returns an error unless the prefixes of pods and Services are known, and apart.
func (c *Config) checkVariantPrefixes() error {
	if len(c.ClusterCIDR) != 1 || !c.ClusterCIDR[0].Addr().Is4() || c.ClusterCIDR[0].Bits() == 0 {
		return fmt.Errorf("clusterCIDR: pipelineVariant %s needs the IPv4 prefix of all nodes' pods, as 10.128.0.0/14", VariantOpenShift)
	}
	pods := c.ClusterCIDR[0]
	if pods != pods.Masked() {
		return fmt.Errorf("clusterCIDR: %w", hostBits(pods))
	}
	var services []netip.Prefix
	for _, p := range c.ServiceCIDRs {
		if p.Overlaps(pods) {
			return fmt.Errorf("clusterCIDR: %s and %s of serviceCIDRs overlap", pods, p)
		}
		if p.Addr().Is4() {
			services = append(services, p)
		}
	}
	if len(services) == 0 {
		return fmt.Errorf("serviceCIDRs: pipelineVariant %s needs the IPv4 prefix of Services, as 172.30.0.0/16", VariantOpenShift)
	}
	return nil
}
