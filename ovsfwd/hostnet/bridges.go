package hostnet

import (
	"fmt"
	"strings"

	"github.com/felixlike/felixlike/internal/sysctl"
)

// BridgeSettings are the settings of the whole node that FilterBridges changes.
func BridgeSettings() []string {
	return []string{"net/bridge/bridge-nf-call-iptables", "net/bridge/bridge-nf-call-ip6tables", "net/bridge/bridge-nf-filter-vlan-tagged"}
}

// FilterBridges makes bridges pass their packets to netfilter (Documentation/networking/ip-sysctl.rst,
// bridge-nf-call-iptables), also packets with a VLAN tag: hosts take one with VLAN 0 for a packet without a tag. Writing a
// setting that is right changes nothing.
func FilterBridges() error {
	for _, key := range BridgeSettings() {
		if err := sysctl.Write(key, "1"); err != nil {
			return fmt.Errorf("policy between pods at one bridge needs the kernel module br_netfilter and %s=1: %w", strings.ReplaceAll(key, "/", "."), err)
		}
	}
	return nil
}
