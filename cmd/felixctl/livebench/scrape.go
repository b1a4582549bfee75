package livebench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/felixlike/felixlike/internal/namespace"
)

// scraped are an agent's metrics, by name with labels as they are written.
type scraped map[string]float64

// scrape asks an agent for its metrics, in its network namespace. The address is
// from its status.
func scrape(ctx context.Context, agent int, address string) (scraped, error) {
	if address == "" {
		return nil, errors.New("the agent serves no metrics: healthAddress is not set")
	}
	ns, err := namespace.At(fmt.Sprintf("/proc/%d/ns/net", agent))
	if err != nil {
		return nil, err
	}
	defer ns.Close()
	client := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, address string) (conn net.Conn, err error) {
			err = ns.Do(func() error {
				var d net.Dialer
				conn, err = d.DialContext(ctx, network, address)
				return err
			})
			return conn, err
		},
	}}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("metrics at %s: %w", address, err)
	}
	if host == "" {
		host = "127.0.0.1"
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+net.JoinHostPort(host, port)+"/metrics", http.NoBody)
	if err != nil {
		return nil, err
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = errors.New(response.Status)
	}
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	return parseMetrics(string(text))
}

// parseMetrics reads the text format of Prometheus, without times of samples.
func parseMetrics(text string) (scraped, error) {
	all := scraped{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		i := strings.LastIndexByte(line, ' ')
		if i < 0 {
			return nil, fmt.Errorf("metrics: %q", line)
		}
		value, err := strconv.ParseFloat(line[i+1:], 64)
		if err != nil {
			return nil, fmt.Errorf("metrics: %q: %w", line, err)
		}
		all[line[:i]] = value
	}
	return all, nil
}

// sum adds up all series of a name that have the labels, as name="value".
func (s scraped) sum(name string, labels ...string) float64 {
	var sum float64
	for key, value := range s {
		bare, rest, _ := strings.Cut(key, "{")
		if bare == name && !slices.ContainsFunc(labels, func(l string) bool { return !strings.Contains(rest, l) }) {
			sum += value
		}
	}
	return sum
}

// quantile returns the upper end of the histogram bucket of a quantile, or zero for the
// last bucket, which has no end.
func (s scraped) quantile(name string, q float64, labels ...string) float64 {
	least, want := 0.0, q*s.sum(name+"_count", labels...)
	for key, count := range s {
		bare, rest, _ := strings.Cut(key, "{")
		if bare != name+"_bucket" || count < want {
			continue
		}
		_, end, _ := strings.Cut(rest, `le="`)
		end, _, _ = strings.Cut(end, `"`)
		// +Inf parses as a number, but is no end of a bucket.
		le, err := strconv.ParseFloat(end, 64)
		if err != nil || math.IsInf(le, 1) || slices.ContainsFunc(labels, func(l string) bool { return !strings.Contains(rest, l) }) {
			continue
		}
		if least == 0 || le < least {
			least = le
		}
	}
	return least
}
