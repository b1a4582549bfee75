package control

import (
	"context"
	"net/http"
	"net/netip"
	"net/url"

	"github.com/felixlike/felixlike/internal/printable"
	"github.com/felixlike/felixlike/model"
)

const servicesPath = "/" + Version + "/services"

// Services says how a node serves Services.
type Services struct {
	Node string `json:"node"`
	// Proxy reports that the agent serves Services (serviceProxy: full).
	Proxy    bool      `json:"proxy"`
	Services []Service `json:"services"`
}

// Service is a Service that the node serves.
type Service struct {
	Namespace string          `json:"namespace"`
	Name      string          `json:"name"`
	Ports     []ServicePort   `json:"ports,omitempty"`
	Problems  []model.Problem `json:"problems,omitempty"`
}

// ServicePort is a port of a Service.
type ServicePort struct {
	Name     string         `json:"name,omitempty"`
	Protocol model.Protocol `json:"protocol"`
	Port     uint16         `json:"port"`
	// AffinitySeconds is how long a client keeps its endpoint; zero: not at all.
	AffinitySeconds int               `json:"affinitySeconds,omitempty"`
	Frontends       []ServiceFrontend `json:"frontends,omitempty"`
	Endpoints       []ServiceEndpoint `json:"endpoints,omitempty"`
}

// ServiceFrontend is an address under which clients reach a port. Kind is clusterIP, externalIP, loadBalancer or nodePort; the address of a node port is
// unspecified.
type ServiceFrontend struct {
	Kind    string     `json:"kind"`
	Address netip.Addr `json:"address"`
	Port    uint16     `json:"port"`
	// Empty says what happens to connections if there is no endpoint for them: "refuse" or "drop".
	Empty string `json:"empty,omitempty"`
	// Sources are the clients that may use it; nil for all.
	Sources *[]netip.Prefix `json:"sources,omitempty"`
	// TranslatedBy says under openflow where connections of pods get their endpoint: InBridge or ByHost, and ByHostBecause why by the host.
	TranslatedBy  string `json:"translatedBy,omitempty"`
	ByHostBecause string `json:"byHostBecause,omitempty"`
}

// The values of ServiceFrontend.TranslatedBy.
const (
	InBridge = "bridge"
	ByHost   = "host"
)

// EndpointUsed is the value of Inside and Outside for an endpoint that is used.
const EndpointUsed = "used"

// ServiceEndpoint is an endpoint of a port. Inside and Outside say for clients inside and outside the cluster whether it is used, or why not. Outside is
// empty if no client outside the cluster reaches the Service.
type ServiceEndpoint struct {
	Address netip.AddrPort `json:"address"`
	Node    string         `json:"node,omitempty"`
	Local   bool           `json:"local"`
	Inside  string         `json:"inside"`
	Outside string         `json:"outside,omitempty"`
}

// Services returns how the node serves all Services, or the one with the name namespace/name.
func (c *Client) Services(ctx context.Context, name string) (Services, error) {
	var all Services
	var query url.Values
	if name != "" {
		query = url.Values{"name": {name}}
	}
	err := c.call(ctx, http.MethodGet, servicesPath, query, nil, &all)
	printable.All(&all) // it has names of others
	return all, err
}
