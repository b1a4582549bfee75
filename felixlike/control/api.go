// Package control is the agent's control socket: a versioned HTTP API on a
// unix socket that only root may use. It serves the agent's status and tells
// when what the datastore holds has been programmed. Server and client live
// here; the package holds no state of its own and asks the Agent for all.
package control

import (
	"context"
	"time"

	"github.com/felixlike/felixlike/model"
)

// Version is the version of the API; it is the first element of every path.
const Version = "v1"

// Agent is what the server asks.
type Agent interface {
	// Status returns a snapshot.
	Status() Status
	// Sync makes the datastore look again, waits until everything that it
	// holds then, and every pod of the list, is programmed, and returns the
	// revision that is.
	Sync(ctx context.Context, pods []model.PodID) (uint64, error)
	// WaitProgrammed waits until the revision (or a later one) is programmed
	// and returns the one that is.
	WaitProgrammed(ctx context.Context, revision uint64) (uint64, error)
}

// Status is the state of one agent.
type Status struct {
	Version   string `json:"version"`
	Node      string `json:"node"`
	Backend   string `json:"backend"`
	Datastore string `json:"datastore"`
	PID       int    `json:"pid"`
	// StartedAt is when the agent process began.
	StartedAt time.Time `json:"startedAt"`
	// InSync tells that the datastore's first listing is complete; before
	// that nothing is programmed.
	InSync bool `json:"inSync"`
	// Observed is the datastore's newest revision, Programmed the newest that
	// the dataplane holds.
	Observed   uint64 `json:"observedRevision"`
	Programmed uint64 `json:"programmedRevision"`
	// LastApply is the newest attempt to program the dataplane.
	LastApply Apply `json:"lastApply"`
	// Writes counts mutating messages since the agent started, by receiver:
	// "nftables", "ovsdb", "openflow", "netlink", "conntrack".
	Writes    map[string]int `json:"writes"`
	Policies  []Policy       `json:"policies"`
	Groups    int            `json:"groups"`
	Endpoints []Endpoint     `json:"endpoints"`
	Nodes     []Node         `json:"nodes"`
	// Problems are what is wrong with the objects, sorted by source and object.
	Problems []model.Problem `json:"problems"`
}

// Apply describes one pass over the dataplane.
type Apply struct {
	At       time.Time     `json:"at"`
	Duration time.Duration `json:"durationNanoseconds"`
	Error    string        `json:"error,omitempty"`
}

// Policy is a policy in force.
type Policy struct {
	Tier         string `json:"tier"`
	Namespace    string `json:"namespace,omitempty"`
	Name         string `json:"name"`
	IngressRules int    `json:"ingressRules"`
	EgressRules  int    `json:"egressRules"`
	// Endpoints counts the local endpoints that it applies to.
	Endpoints int `json:"endpoints"`
}

// Endpoint is a local pod.
type Endpoint struct {
	Namespace string   `json:"namespace"`
	Name      string   `json:"name"`
	Interface string   `json:"interface,omitempty"`
	Addresses []string `json:"addresses,omitempty"`
	// State is one of the EndpointState values.
	State string `json:"state"`
	// IngressPolicies and EgressPolicies are the policies that apply.
	IngressPolicies []string `json:"ingressPolicies,omitempty"`
	EgressPolicies  []string `json:"egressPolicies,omitempty"`
}

// States of an endpoint.
const (
	// EndpointProgrammed: attached, and its policy is in the dataplane.
	EndpointProgrammed = "programmed"
	// EndpointPending: attached, but its newest policy is not programmed yet.
	EndpointPending = "pending"
	// EndpointClosed: attached, but the datastore knows no such pod; its
	// traffic is dropped.
	EndpointClosed = "closed"
	// EndpointDetached: known to the datastore, but without an interface.
	EndpointDetached = "detached"
)

// Node is a node of the cluster.
type Node struct {
	Name      string   `json:"name"`
	Addresses []string `json:"addresses"`
	PodCIDRs  []string `json:"podCIDRs"`
	Local     bool     `json:"local"`
}
