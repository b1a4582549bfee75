package control

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"

	"github.com/felixlike/felixlike/model"
)

const connectionsPath = "/" + Version + "/connections"

// Connection is a connection of a pod that policy allowed and that is not
// over. Addresses are as policy sees them: that of a Service has been translated.
type Connection struct {
	Protocol    model.Protocol `json:"protocol"`
	Source      netip.Addr     `json:"source"`
	SourcePort  uint16         `json:"sourcePort,omitempty"`
	Destination netip.Addr     `json:"destination"`
	Port        uint16         `json:"port,omitempty"`
}

// String returns the connection as "tcp 10.0.0.1:40000 -> 10.0.0.2:80".
func (c Connection) String() string {
	if c.SourcePort == 0 && c.Port == 0 {
		return fmt.Sprintf("%s %s -> %s", c.Protocol, c.Source, c.Destination)
	}
	return fmt.Sprintf("%s %s -> %s", c.Protocol, netip.AddrPortFrom(c.Source, c.SourcePort), netip.AddrPortFrom(c.Destination, c.Port))
}

// Connections returns the connections of this node's pods.
func (c *Client) Connections(ctx context.Context) ([]Connection, error) {
	var all []Connection
	err := c.call(ctx, http.MethodGet, connectionsPath, nil, nil, &all)
	return all, err
}
