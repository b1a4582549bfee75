package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
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

// Reach asks the API servers over new connections, all at once, and returns nil when the first answers. A TCP handshake alone proves nothing: a
// balancer on this node accepts connections whether it reaches a server or not.
func (s *Source) Reach(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	answers := make(chan error)
	for _, at := range s.servers {
		go func() { answers <- s.ask(ctx, at) }()
	}
	reached, all := false, []error{errNoAnswer}
	for range s.servers {
		err := <-answers
		if err == nil {
			reached = true
			cancel() // the others end
		}
		all = append(all, err)
	}
	if reached {
		return nil
	}
	return errors.Join(all...)
}

var errNoAnswer = errors.New("no API server answers")

// ask asks one API server. Every answer counts, also a refusal, but for a gateway's that it reaches no server.
func (s *Source) ask(ctx context.Context, at string) error {
	base, _, err := rest.DefaultServerUrlFor(s.config)
	if err != nil {
		return err
	}
	secure, err := rest.TLSConfigFor(s.config)
	if err != nil {
		return err
	}
	// As the clients do it.
	transport := &http.Transport{TLSClientConfig: secure, DisableKeepAlives: true, Proxy: http.ProxyFromEnvironment, DialContext: s.config.Dial}
	if s.config.Proxy != nil {
		transport.Proxy = s.config.Proxy
	}
	if s.replaced && s.config.Dial == nil {
		transport.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, at)
		}
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, base.JoinPath("readyz").String(), http.NoBody)
	if err != nil {
		return err
	}
	answer, err := transport.RoundTrip(request)
	if err != nil {
		return fmt.Errorf("%s: %w", at, err)
	}
	switch answer.StatusCode {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		err = fmt.Errorf("%s: %s", at, answer.Status)
	}
	return errors.Join(err, answer.Body.Close())
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
