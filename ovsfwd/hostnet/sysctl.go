package hostnet

import (
	"errors"
	"io/fs"
	"strings"

	"github.com/felixlike/felixlike/internal/sysctl"
)

// The settings of the whole node that a Reconciler changes.
const (
	forward4  = "net/ipv4/ip_forward"
	redirects = "net/ipv4/conf/all/send_redirects"
	forward6  = "net/ipv6/conf/all/forwarding"
)

// NodeSettings returns the settings of the whole node that a Reconciler changes,
// and Remove leaves as they are.
func NodeSettings() []string { return []string{forward4, redirects, forward6} }

// sysctls sets the sysctls that forwarding by the gateway port needs:
//
//   - forwarding of both families;
//   - loose reverse-path filtering on the port (the kernel takes the maximum
//     of the interface's value and that of "all", so 0 would not relax a
//     strict host): packets from a peer's own address come in there, while the
//     main table has that address on the uplink;
//   - ARP requests carry the port's own address, whatever the source of the
//     packet that waits for the answer: spoofguard lets no other through;
//   - no redirects: packets leave by the port they came in by, on purpose;
//   - no router advertisements from pods.
func (p *pass) sysctls() {
	gw := p.state.Gateway
	for _, s := range []struct{ key, value string }{
		{forward4, "1"},
		{redirects, "0"},
		{"net/ipv4/conf/" + gw + "/send_redirects", "0"},
		{"net/ipv4/conf/" + gw + "/rp_filter", "2"},
		{"net/ipv4/conf/" + gw + "/arp_announce", "2"},
		{forward6, "1"},
		{"net/ipv6/conf/" + gw + "/accept_ra", "0"},
	} {
		old, err := sysctl.Read(s.key)
		if errors.Is(err, fs.ErrNotExist) && strings.Contains(s.key, "ipv6") {
			continue // a kernel without IPv6
		}
		if err == nil && old == s.value {
			continue
		}
		p.write("set "+s.key, sysctl.Write(s.key, s.value))
	}
}
