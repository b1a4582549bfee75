package control

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"

	"github.com/felixlike/felixlike/model"
)

const socketsPath = "/" + Version + "/sockets"

// Socket is a socket of the node itself.
type Socket struct {
	Protocol model.Protocol `json:"protocol"`
	Local    netip.AddrPort `json:"local"`
	// Peer is the zero value if the socket takes packets of anyone.
	Peer netip.AddrPort `json:"peer,omitzero"`
	UID  uint32         `json:"uid"`
	// Process is the name of the process that has it open, "" if the agent cannot see it.
	Process string `json:"process,omitempty"`
}

// Owner names the process of the socket, or else its user.
func (s Socket) Owner() string {
	if s.Process != "" {
		return s.Process
	}
	return fmt.Sprintf("a process of user %d", s.UID)
}

// Sockets returns the sockets of the node itself.
func (c *Client) Sockets(ctx context.Context) ([]Socket, error) {
	var all []Socket
	err := c.call(ctx, http.MethodGet, socketsPath, nil, nil, &all)
	return all, err
}
