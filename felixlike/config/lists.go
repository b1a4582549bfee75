package config

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Prefixes is a list of prefixes that the environment and flags write with
// commas, and files as a list or with commas.
type Prefixes []netip.Prefix

// String returns the prefixes with commas between them.
func (p Prefixes) String() string {
	texts := make([]string, len(p))
	for i, prefix := range p {
		texts[i] = prefix.String()
	}
	return strings.Join(texts, ",")
}

// parsePrefixes parses the format of String; spaces around commas do no harm.
func parsePrefixes(text string) (Prefixes, error) {
	var all Prefixes
	for part := range strings.SplitSeq(text, ",") {
		part = strings.TrimSpace(part)
		if part == "" && strings.TrimSpace(text) == "" {
			return nil, nil
		}
		p, err := netip.ParsePrefix(part)
		if err != nil || p.Addr().Is4In6() {
			return nil, fmt.Errorf("%q is not a prefix as 10.96.0.0/12", part)
		}
		all = append(all, p)
	}
	return all, nil
}

// APIServerPort is the port of an API server without one in the setting apiServer: kubeadm's.
const APIServerPort = "6443"

// Hosts is a list of host:port that the environment and flags write with commas, and files as a list or with commas.
type Hosts []string

// String returns the hosts with commas between them.
func (h Hosts) String() string { return strings.Join(h, ",") }

// parseHosts parses the format of String. It adds the port where there is none.
func parseHosts(text string) (Hosts, error) {
	var all Hosts
	for part := range strings.SplitSeq(text, ",") {
		part = strings.TrimSpace(part)
		if part == "" && strings.TrimSpace(text) == "" {
			return nil, nil
		}
		host, port, err := net.SplitHostPort(part)
		if err != nil { // no port, or an IPv6 address
			host, port = strings.Trim(part, "[]"), APIServerPort
		}
		_, notAddress := netip.ParseAddr(host)
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || notAddress != nil && len(validation.IsDNS1123Subdomain(host)) > 0 {
			return nil, fmt.Errorf("%q is not an address, name, address:port or name:port, as 192.0.2.10 or 192.0.2.10:6443", part)
		}
		all = append(all, net.JoinHostPort(host, port))
	}
	return all, nil
}
