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

// settings returns the sysctls that forwarding by the gateway port needs:
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
func settings(gateway string) []setting {
	return []setting{
		{forward4, "1"},
		{redirects, "0"},
		{"net/ipv4/conf/" + gateway + "/send_redirects", "0"},
		{"net/ipv4/conf/" + gateway + "/rp_filter", "2"},
		{"net/ipv4/conf/" + gateway + "/arp_announce", "2"},
		{forward6, "1"},
		{"net/ipv6/conf/" + gateway + "/accept_ra", "0"},
	}
}

// setting is a sysctl and its desired value.
type setting struct{ key, value string }

// name is the sysctl as sysctl(8) writes it.
func (s setting) name() string { return strings.ReplaceAll(s.key, "/", ".") }

// read returns the value, and whether it differs from the desired one. A kernel without IPv6
// has no IPv6 settings, and these do not differ.
func (s setting) read() (value string, differs bool, err error) {
	value, err = sysctl.Read(s.key)
	if errors.Is(err, fs.ErrNotExist) && strings.Contains(s.key, "ipv6") {
		return "", false, nil
	}
	return value, err != nil || value != s.value, err
}

// sysctls sets the sysctls.
func (p *pass) sysctls() {
	for _, s := range settings(p.wanted.Gateway) {
		old, differs, err := s.read()
		if !differs {
			continue
		}
		if s.key == forward6 {
			p.keepAdvertisedRoutes()
		}
		ok := p.write("set "+s.key, sysctl.Write(s.key, s.value))
		// A new interface has the kernel's defaults: that is no separate foreign change.
		if ok && err == nil && p.again() && p.log.link == "" {
			p.log.add(kindSysctl, s.name(), old+" instead of "+s.value)
		}
	}
}
