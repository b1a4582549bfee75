package model

import "net/netip"

// MaxEgressAddresses is how many addresses of Egresses one node holds.
const MaxEgressAddresses = 255

// EgressAddress is an Egress: it gives packets of pods to the outside of the cluster a source address.
type EgressAddress struct {
	Object ObjectRef `json:"object"`
	// Address is the source address, of one family. Without one, packets of the pods to the outside are dropped, in both
	// families.
	Address netip.Addr `json:"address,omitzero"`
	// Node is the name of the node that holds the address. It is empty while no node has taken a leased address.
	Node string `json:"node,omitempty"`
	// Assigned reports that the agent of the node adds the address to an interface if no other program has.
	Assigned bool `json:"assigned,omitempty"`
	// Leased reports that the node has been elected, and holds the address while it renews its Lease.
	Leased bool `json:"leased,omitempty"`
	// Candidacy is that of this node for a leased address; nil if it may not hold it.
	Candidacy *Candidacy `json:"candidacy,omitempty"`
	// Pods are the addresses of the selected pods, sorted, those of the address's family alone.
	Pods []netip.Addr `json:"pods,omitempty"`
}

// Candidacy is the place of a node among those that may hold an address, from zero, and how many these are.
type Candidacy struct{ Rank, Of int }

// Covers reports whether packets of a family are those of the Egress.
func (e *EgressAddress) Covers(f Family) bool {
	return !e.Address.IsValid() || FamilyOf(e.Address) == f
}

// EgressesUpdate has all Egresses, in the order of their precedence: the first one that has a pod's address decides.
type EgressesUpdate struct{ Egresses []EgressAddress }

func (EgressesUpdate) isUpdate() {}
