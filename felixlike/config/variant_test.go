package config

import (
	"strings"
	"testing"
)

// TestPipelineVariant: the pipeline of OpenShift SDN refuses each setting that does not work with it, by name.
func TestPipelineVariant(t *testing.T) {
	good := []string{
		"--pipeline-variant", "openshift", "--cluster-cidr", "10.128.0.0/14", "--service-cidrs", "172.30.0.0/16", "--backend", "openflow",
		"--tunnel", "vxlan", "--isolation", "namespaces", "--service-proxy", "full",
	}
	if _, err := load(t, "", nil, good...); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ flag, value, want string }{
		{"backend", "nftables", "pipelineVariant: openshift is a pipeline of backend openflow, and does not work with backend nftables"},
		{"tunnel", "geneve", "tunnel: geneve does not work with pipelineVariant openshift"},
		{"traffic-mode", "noEncap", "trafficMode: noEncap does not work with pipelineVariant openshift"},
		{"traffic-mode", "networkPolicyOnly", "trafficMode: networkPolicyOnly does not work with pipelineVariant openshift"},
		{"encryption", "wireguard", "encryption: wireguard does not work with pipelineVariant openshift"},
		{"isolation", "none", "isolation: none does not work with pipelineVariant openshift"},
		{"service-proxy", "off", "serviceProxy: off does not work with pipelineVariant openshift"},
		{"snat", "openflow", "snat: openflow does not work with pipelineVariant openshift"},
		{"existing-connections", "revalidate", "existingConnections: revalidate does not work with pipelineVariant openshift"},
		{"offload", "on", "offload: on does not work with pipelineVariant openshift"},
		{"cluster-cidr", "", "clusterCIDR: pipelineVariant openshift needs the IPv4 prefix of all nodes' pods"},
		{"cluster-cidr", "fd00::/16", "clusterCIDR: pipelineVariant openshift needs the IPv4 prefix of all nodes' pods"},
		{"cluster-cidr", "10.128.0.0/14,10.132.0.0/14", "clusterCIDR: pipelineVariant openshift needs the IPv4 prefix of all nodes' pods"},
		{"cluster-cidr", "0.0.0.0/0", "clusterCIDR: pipelineVariant openshift needs the IPv4 prefix of all nodes' pods"},
		{"cluster-cidr", "10.129.0.0/14", "clusterCIDR: 10.129.0.0/14 has bits behind its length: 10.128.0.0/14 is meant"},
		{"cluster-cidr", "172.16.0.0/12", "clusterCIDR: 172.16.0.0/12 and 172.30.0.0/16 of serviceCIDRs overlap"},
		{"service-cidrs", "fd00::/112", "serviceCIDRs: pipelineVariant openshift needs the IPv4 prefix of Services"},
		{"pipeline-variant", "ovn", `pipelineVariant: "ovn" is not one of default, openshift`},
		{"pipeline-variant", "default", "clusterCIDR: it means nothing without pipelineVariant openshift"},
	} {
		_, err := load(t, "", nil, append(good[:len(good):len(good)], "--"+test.flag, test.value)...)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("--%s %s: %v, want %q", test.flag, test.value, err, test.want)
		}
	}
}
