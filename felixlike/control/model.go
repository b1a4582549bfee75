package control

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"

	"github.com/felixlike/felixlike/model"
)

const modelPath = "/" + Version + "/model"

// Model is the agent's computed state for its node, and the other inputs of the dataplane. Everything that is
// programmed follows from it. Lists are sorted.
type Model struct {
	// Node is the agent's own, Backend the one that decides policy, Revision the
	// newest that is programmed; the model may be ahead of it.
	Node     string   `json:"node"`
	Backend  string   `json:"backend"`
	Revision uint64   `json:"programmedRevision"`
	Settings Settings `json:"settings"`

	Nodes       []*model.Node     `json:"nodes"`
	Groups      []Group           `json:"groups"`
	Policies    []*model.Policy   `json:"policies"`
	Endpoints   []*model.Endpoint `json:"endpoints"`
	Attachments []Attachment      `json:"attachments"`
	// HostAddresses are this node's own.
	HostAddresses []netip.Addr `json:"hostAddresses"`
	// Subnets are the same addresses with the length of their prefixes, unless the traffic mode is encap.
	Subnets []netip.Prefix `json:"subnets,omitempty"`
	// Hops are the neighbours that lead to routed peers. The agent programs the table of their pods once HopsKnown is set.
	Hops      []model.Hop `json:"hops,omitempty"`
	HopsKnown bool        `json:"hopsKnown,omitempty"`
	// Egresses are in the order of their precedence.
	Egresses []model.EgressAddress `json:"egresses,omitempty"`
	// ServiceCIDRs are the prefixes of Services in the datastore; those of the settings come on top.
	ServiceCIDRs []netip.Prefix `json:"serviceCIDRs,omitempty"`
	// ServicePorts are the ports of Services that this node serves, once all are known (ServicesKnown).
	ServicePorts  []*model.ServicePort `json:"servicePorts,omitempty"`
	ServicesKnown bool                 `json:"servicesKnown,omitempty"`
	// DenialsReported reports that a client follows denied packets.
	DenialsReported bool `json:"denialsReported,omitempty"`
	// LogsReported reports that rules with Log report.
	LogsReported bool `json:"logsReported,omitempty"`
	// RatesUnbounded reports that the switch takes no meters, so no flow bounds the rate of new connections.
	RatesUnbounded bool `json:"ratesUnbounded,omitempty"`
	// KeptInMaps are the lists of policies that the layout auto has in maps although they have few rules.
	KeptInMaps []string `json:"keptInMaps,omitempty"`
	// HostPolicies are the policies of the node itself, HostState which of them are in force, and Failsafe the ports that they never close.
	HostPolicies *model.HostPolicies `json:"hostPolicies,omitempty"`
	HostState    model.HostState     `json:"hostState,omitzero"`
	Failsafe     *model.Failsafe     `json:"failsafe,omitempty"`
	// Pods are all pods of the cluster with addresses: they give names to the members of groups.
	Pods []Pod `json:"pods"`
}

// Settings are those that the programmed state depends on.
type Settings struct {
	// OVSRunDir holds the sockets of Open vSwitch.
	OVSRunDir  string `json:"ovsRunDir"`
	Bridge     string `json:"bridge"`
	Userspace  bool   `json:"userspaceDatapath"`
	Masquerade bool   `json:"masquerade"`
	// SNAT reports that the switch translates the sources of pods' IPv4 packets to the outside.
	SNAT bool `json:"snatOpenFlow,omitempty"`
	// TrafficMode is the way of packets between nodes.
	TrafficMode model.TrafficMode `json:"trafficMode"`
	// TunnelPort is the UDP port of the tunnel; zero if it has none.
	TunnelPort   uint16         `json:"tunnelPort,omitempty"`
	ServiceCIDRs []netip.Prefix `json:"serviceCIDRs,omitempty"`
	// NFTablesLayout is the setting nftables.layout, or rules if the node has left the maps.
	NFTablesLayout string `json:"nftablesLayout,omitempty"`
	// Offload reports that a netfilter backend's bridge switches established connections.
	Offload bool `json:"offload,omitempty"`
	// Isolation reports that namespaces are isolated.
	Isolation bool `json:"isolation,omitempty"`
	// ServiceProxy reports that the agent serves Services, NodePorts on the addresses of NodePortAddresses.
	ServiceProxy      bool           `json:"serviceProxy,omitempty"`
	NodePortAddresses []netip.Prefix `json:"nodePortAddresses,omitempty"`
	// ClusterCIDR is valid with pipelineVariant: openshift alone.
	ClusterCIDR netip.Prefix `json:"clusterCIDR,omitzero"`
}

// Group is a group with its members.
type Group struct {
	model.Group
	Members []model.Member `json:"members"`
}

// Attachment is the interface of a local pod.
type Attachment struct {
	Pod       model.PodID  `json:"pod"`
	Interface string       `json:"interface"`
	OFPort    uint32       `json:"ofport"`
	Bridge    string       `json:"bridge,omitempty"`
	MAC       string       `json:"mac"`
	Addresses []netip.Addr `json:"addresses"`
}

// Pod has the addresses of a pod.
type Pod struct {
	ID        model.PodID  `json:"id"`
	Addresses []netip.Addr `json:"addresses"`
}

// NewAttachments returns attachments in the form of the API.
func NewAttachments(all []*model.Attachment) []Attachment {
	out := make([]Attachment, len(all))
	for i, a := range all {
		out[i] = Attachment{Pod: a.Pod, Interface: a.Interface, OFPort: a.OFPort, Bridge: a.Bridge, MAC: a.MAC.String(), Addresses: a.Addresses}
	}
	return out
}

// Updates returns the model as updates, in an order in which managers can take
// them.
func (m *Model) Updates() []model.Update {
	var all []model.Update
	for _, n := range m.Nodes {
		all = append(all, model.NodeUpdate{Node: n})
	}
	all = append(all, model.HostAddressesUpdate{Addresses: m.HostAddresses, Subnets: m.Subnets}, model.ServiceCIDRsUpdate{Prefixes: m.ServiceCIDRs},
		model.DenialsUpdate{Reported: m.DenialsReported}, model.LogsUpdate{Reported: m.LogsReported})
	if m.HopsKnown {
		all = append(all, model.HopsUpdate{Hops: m.Hops})
	}
	if len(m.Egresses) > 0 {
		all = append(all, model.EgressesUpdate{Egresses: m.Egresses})
	}
	for _, g := range m.Groups {
		all = append(all, model.GroupUpdate{Group: g.Group, Added: g.Members})
	}
	if m.HostPolicies != nil {
		all = append(all, model.HostStateUpdate{State: m.HostState}, model.HostPoliciesUpdate{Policies: m.HostPolicies})
	}
	for _, p := range m.Policies {
		all = append(all, model.PolicyUpdate{Policy: p})
	}
	for _, e := range m.Endpoints {
		all = append(all, model.EndpointUpdate{Endpoint: e})
	}
	for _, a := range m.Attachments {
		mac, _ := net.ParseMAC(a.MAC) // without one, nothing is forwarded to the pod
		all = append(all, model.AttachmentUpdate{Attachment: &model.Attachment{
			Pod: a.Pod, Interface: a.Interface, OFPort: a.OFPort, Bridge: a.Bridge, MAC: mac, Addresses: a.Addresses,
		}})
	}
	for _, p := range m.ServicePorts {
		all = append(all, model.ServicePortUpdate{Port: p})
	}
	if m.ServicesKnown {
		all = append(all, model.ServiceHealthUpdate{})
	}
	return all
}

// Add takes over an update, as far as it creates something.
func (m *Model) Add(u model.Update) {
	switch u := u.(type) {
	case model.NodeUpdate:
		m.Nodes = append(m.Nodes, u.Node)
	case model.EgressesUpdate:
		m.Egresses = u.Egresses
	case model.GroupUpdate:
		m.Groups = append(m.Groups, Group{u.Group, u.Added})
	case model.HostPoliciesUpdate:
		m.HostPolicies = u.Policies
	case model.PolicyUpdate:
		m.Policies = append(m.Policies, u.Policy)
	case model.EndpointUpdate:
		m.Endpoints = append(m.Endpoints, u.Endpoint)
	}
}

// Model returns the agent's computed state for its node.
func (c *Client) Model(ctx context.Context) (Model, error) {
	var m Model
	err := c.call(ctx, http.MethodGet, modelPath, nil, nil, &m)
	return m, err
}

// String names the model for people.
func (m *Model) String() string { return fmt.Sprintf("node %s, backend %s", m.Node, m.Backend) }
