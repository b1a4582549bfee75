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
	// Pool is set if the address comes from a pool, by a Lease.
	Pool *EgressPool `json:"pool,omitempty"`
	// Pods are the addresses of the selected pods, sorted, those of the address's family alone.
	Pods []netip.Addr `json:"pods,omitempty"`
}

// Candidacy is the place of a node among those that may hold an address, from zero, and how many these are.
type Candidacy struct{ Rank, Of int }

// EgressPool says which address of a pool an Egress has.
type EgressPool struct {
	// Name is the name of the pool. Owner is the UID of the Egress.
	Name  string `json:"name"`
	Owner string `json:"owner"`
	// Allocated is the address that a Lease says belongs to the Egress. Without one, a candidate may allocate Claim; it is the zero Addr
	// if the pool has no free address.
	Allocated netip.Addr `json:"allocated,omitzero"`
	Claim     netip.Addr `json:"claim,omitzero"`
}

// EgressLeases are the Leases of addresses of Egresses, as one node has read them.
type EgressLeases struct {
	// Generation is another one after each change.
	Generation uint64
	Leases     map[netip.Addr]EgressLease
}

// EgressLease is the Lease of an address.
type EgressLease struct {
	// Holder is the node with the address, "" for none.
	Holder string
	// Owner is the UID of the Egress that the address has been allocated to from a pool, and Pool the name of that pool.
	Owner, Pool string
	// Created is the time by the clock of the API server, in seconds.
	Created int64
}

// Covers reports whether packets of a family are those of the Egress.
func (e *EgressAddress) Covers(f Family) bool {
	return !e.Address.IsValid() || FamilyOf(e.Address) == f
}

// EgressesUpdate has all Egresses, in the order of their precedence: the first one that has a pod's address decides.
type EgressesUpdate struct{ Egresses []EgressAddress }

func (EgressesUpdate) isUpdate() {}
