package kubernetes

import (
	"context"
	"net"
	"net/url"
	"strconv"

	"k8s.io/client-go/rest"
)

// serversOf returns the API servers, host:port, that a source uses.
func serversOf(config *rest.Config, servers []string) []string {
	if len(servers) > 0 {
		return servers
	}
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil // New has failed by this
	}
	return []string{net.JoinHostPort(base.Hostname(), portOf(base))}
}

func portOf(u *url.URL) string {
	switch {
	case u.Port() != "":
		return u.Port()
	case u.Scheme == "http":
		return "80"
	}
	return "443"
}

// Reach makes a new TCP connection to the API server, to the first that answers, and ends it.
func (s *Source) Reach(ctx context.Context) error {
	conn, err := firstOf(s.servers, new(net.Dialer).DialContext)(ctx, "tcp", "")
	if err != nil {
		return err
	}
	return conn.Close()
}

// Ports returns the ports of the API servers.
func (s *Source) Ports() (all []uint16) {
	for _, at := range s.servers {
		if _, text, err := net.SplitHostPort(at); err == nil {
			if n, err := strconv.ParseUint(text, 10, 16); err == nil {
				all = append(all, uint16(n))
			}
		}
	}
	return all
}
