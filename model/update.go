package model

import (
	"fmt"
	"net/netip"

	"github.com/felixlike/felixlike/internal/printable"
)

// Update is one typed change on its way from the policy engine, or from the
// forwarding plane, to the managers.
type Update interface{ isUpdate() }

// GroupUpdate creates a group or changes its members. Added and Removed are
// sorted and disjoint.
type GroupUpdate struct {
	Group          Group
	Added, Removed []Member
}

// GroupRemove says that nothing refers to the group any more.
type GroupRemove struct{ ID GroupID }

// PolicyUpdate creates or replaces a policy.
type PolicyUpdate struct{ Policy *Policy }

// PolicyRemove removes a policy.
type PolicyRemove struct{ ID PolicyID }

// StagedUpdate replaces the staged policies, which are not enforced.
type StagedUpdate struct {
	// Policies are those that select pods of this node, sorted by identifier.
	Policies []*Policy
	// Endpoints are the pods of this node that they select, sorted. Of each it has the policies that would apply if these
	// were enforced too.
	Endpoints []*Endpoint
}

// EndpointUpdate creates or replaces a local endpoint.
type EndpointUpdate struct{ Endpoint *Endpoint }

// EndpointRemove removes a local endpoint.
type EndpointRemove struct{ ID PodID }

// NodeUpdate creates or replaces a node (this one or a peer).
type NodeUpdate struct{ Node *Node }

// NodeRemove removes a node.
type NodeRemove struct{ Name string }

// AttachmentUpdate says that a pod's interface is on the bridge.
type AttachmentUpdate struct{ Attachment *Attachment }

// AttachmentRemove says that the interface of that name is gone from the bridge.
type AttachmentRemove struct {
	Pod       PodID
	Interface string
	// PortOnly reports that the interface still exists: another program removed its port, and the pod has its addresses.
	PortOnly bool
}

// HostAddressesUpdate has this node's own addresses, of all interfaces: sorted, without loopback and
// link-local ones.
type HostAddressesUpdate struct {
	Addresses []netip.Addr
	// Subnets are the same addresses with the length of their prefixes, sorted. They are empty if nothing
	// depends on them (TrafficMode Encap).
	Subnets []netip.Prefix
}

// HopsUpdate has the neighbours that lead to routed peers, sorted by address: all that are known.
type HopsUpdate struct{ Hops []Hop }

// ServiceCIDRsUpdate says which prefixes the addresses of Services are from:
// sorted, all of them.
type ServiceCIDRsUpdate struct{ Prefixes []netip.Prefix }

// OffloadUpdate says whether the bridge is to switch packets of established connections, under a netfilter backend on the
// kernel's datapath.
type OffloadUpdate struct{ Active bool }

// DenialsUpdate switches reports of denied packets on or off. They are off at first.
type DenialsUpdate struct{ Reported bool }

// LogsUpdate switches reports of the rules with Log on or off. They are off at first.
type LogsUpdate struct{ Reported bool }

func (GroupUpdate) isUpdate()         {}
func (GroupRemove) isUpdate()         {}
func (PolicyUpdate) isUpdate()        {}
func (PolicyRemove) isUpdate()        {}
func (StagedUpdate) isUpdate()        {}
func (EndpointUpdate) isUpdate()      {}
func (EndpointRemove) isUpdate()      {}
func (NodeUpdate) isUpdate()          {}
func (NodeRemove) isUpdate()          {}
func (AttachmentUpdate) isUpdate()    {}
func (AttachmentRemove) isUpdate()    {}
func (HostAddressesUpdate) isUpdate() {}
func (HopsUpdate) isUpdate()          {}
func (OffloadUpdate) isUpdate()       {}
func (ServiceCIDRsUpdate) isUpdate()  {}
func (DenialsUpdate) isUpdate()       {}
func (LogsUpdate) isUpdate()          {}

// Problem is a fault of an object for the user: the place, the fault and (in Reason) its effect.
type Problem struct {
	// Source is where the object came from (a file), if known.
	Source string    `json:"source,omitempty"`
	Object ObjectRef `json:"object"`
	// Field is the path inside the object, as in "spec.ingress[0].from[1]".
	Field  string `json:"field,omitempty"`
	Reason string `json:"reason"`
}

// Error makes a Problem usable as an error.
func (p Problem) Error() string {
	s := p.Object.String()
	if p.Source != "" {
		s = p.Source + ": " + s
	}
	if p.Field != "" {
		s += ": " + p.Field
	}
	return printable.String(fmt.Sprintf("%s: %s", s, p.Reason))
}
