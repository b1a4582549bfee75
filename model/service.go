package model

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"time"
)

// ServiceProxyName is the label of Services that another proxy serves, and of their EndpointSlices.
const ServiceProxyName = "service.kubernetes.io/service-proxy-name"

// ServicePortID names one port of a Service. Protocol and Port are unique in a Service (core/v1 ServicePort), names may be empty.
type ServicePortID struct {
	Namespace, Name string
	Protocol        Protocol
	Port            uint16
}

// String returns "shop/db:5432/tcp".
func (id ServicePortID) String() string {
	return fmt.Sprintf("%s/%s:%d/%s", id.Namespace, id.Name, id.Port, id.Protocol)
}

// ServicePort is one port of a Service as one node serves it: nothing in it depends on other objects any more. It is not
// modified once it is sent.
type ServicePort struct {
	ID ServicePortID
	// Affinity is how long a client keeps its endpoint after its last new connection (sessionAffinityConfig.clientIP.timeoutSeconds).
	// Zero: each connection gets an endpoint of its own.
	Affinity time.Duration
	// Frontends are sorted by kind, address and port. No two ports have a frontend with the same protocol, address and port.
	Frontends []Frontend
	// Serving are all endpoints of the port that still answer, sorted, also those that get no new connections (terminating, not chosen by a hint,
	// of another node under policy Local): connections of UDP and SCTP to them go on.
	Serving []netip.AddrPort
	// Known are all endpoints of the port that its Service may lead to, sorted, in whatever condition, where some are left out because
	// their pods are of other tenants; else nil.
	Known []netip.AddrPort
	// Masquerade reports that a client outside the cluster is seen by an endpoint on another node under this node's address
	// (externalTrafficPolicy Cluster): its answer would not come back otherwise.
	Masquerade bool
}

// FrontendKind is the kind of address under which clients reach a Service.
type FrontendKind uint8

// The kinds of frontends.
const (
	ClusterIP FrontendKind = iota
	ExternalIP
	LoadBalancerIP
	// NodePort is every address of this node that nodePortAddresses admits. Addr is the unspecified address of the family.
	NodePort
)

// Frontend is one address under which clients reach a ServicePort.
type Frontend struct {
	Kind FrontendKind
	// Addr and Port are the destination that the client uses.
	Addr netip.Addr
	Port uint16
	// Endpoints are for the clients of the frontend: for a ClusterIP pods and nodes of the cluster, else clients outside it.
	// They are sorted and distinct, of the family of Addr.
	Endpoints []ServiceEndpoint
	// Inside are the endpoints for pods of this node and this node itself, if they use an address for clients outside the cluster: those
	// of policy Cluster, whatever externalTrafficPolicy says (kube-proxy does the same). Equal to Endpoints for a ClusterIP.
	Inside []ServiceEndpoint
	// Empty says what happens to new connections of clients for whom there is no endpoint.
	Empty NoEndpoint
	// Sources are the clients that may use a LoadBalancerIP (loadBalancerSourceRanges), of the family of Addr. Nil: all.
	// Not nil and empty: nobody.
	Sources []netip.Prefix
}

// NoEndpoint says what happens to a new connection without an endpoint.
type NoEndpoint uint8

const (
	// Refuse answers with ICMP port unreachable: the Service has no endpoint at all.
	Refuse NoEndpoint = iota
	// DropSilently drops: there are endpoints, none of them on this node (policy Local), so that a load balancer may try another node.
	DropSilently
)

// ServiceEndpoint is one endpoint of a frontend.
type ServiceEndpoint struct {
	netip.AddrPort
	// Local reports that the endpoint is on this node.
	Local bool
}

// endpointJSON is a ServiceEndpoint as JSON. Without it, the text of the embedded address would be all of it.
type endpointJSON struct {
	Address netip.AddrPort `json:"address"`
	Local   bool           `json:"local,omitempty"`
}

// MarshalJSON implements json.Marshaler.
func (e ServiceEndpoint) MarshalJSON() ([]byte, error) {
	return json.Marshal(endpointJSON{e.AddrPort, e.Local})
}

// UnmarshalJSON implements json.Unmarshaler.
func (e *ServiceEndpoint) UnmarshalJSON(text []byte) error {
	var read endpointJSON
	err := json.Unmarshal(text, &read)
	e.AddrPort, e.Local = read.Address, read.Local
	return err
}

// ServiceHealth is what a healthCheckNodePort answers: 200 with at least one local endpoint, else 503.
type ServiceHealth struct {
	Namespace, Name string
	Port            uint16
	LocalEndpoints  int
}

// ServicePortUpdate creates or replaces a port of a Service.
type ServicePortUpdate struct{ Port *ServicePort }

// ServicePortRemove says that the port of the Service is gone.
type ServicePortRemove struct{ ID ServicePortID }

// ServiceHealthUpdate has all healthCheckNodePorts, sorted by port.
type ServiceHealthUpdate struct{ All []ServiceHealth }

func (ServicePortUpdate) isUpdate()   {}
func (ServicePortRemove) isUpdate()   {}
func (ServiceHealthUpdate) isUpdate() {}
