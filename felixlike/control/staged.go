package control

import (
	"net/netip"
	"time"

	"github.com/felixlike/felixlike/model"
)

// Staged are the staged policies of a node's pods (annotation felixlike.io/enforce), which are not enforced.
type Staged struct {
	Node string `json:"node"`
	// NotEvaluated says why no connection is evaluated by them, with trafficMode networkPolicyOnly.
	NotEvaluated string         `json:"notEvaluated,omitempty"`
	Policies     []StagedPolicy `json:"policies"`
	// Last is the newest look at the connections.
	Last *StagedLook `json:"last,omitempty"`
}

// StagedPolicy is a staged policy, and what it would have denied.
type StagedPolicy struct {
	// Policy is the policy as model.PolicyID.String has it.
	Policy string `json:"policy"`
	// Since is when it was staged, or the agent started.
	Since time.Time `json:"since"`
	// Evaluated counts the new connections of its pods, Denied those that it would have denied.
	Evaluated uint64 `json:"evaluated"`
	Denied    uint64 `json:"denied"`
	// Pods has the denied ones by pod of this node, sorted; Others counts those of pods that are not listed.
	Pods   []StagedPod `json:"pods"`
	Others uint64      `json:"others,omitempty"`
	// Flows are the denied connections that began last, sorted by the newest one of each.
	Flows []StagedFlow `json:"flows"`
}

// StagedFlow are connections that a staged policy would have denied, and that differ in time and source port only.
type StagedFlow struct {
	// Pod is the pod of this node that the policy selects.
	Pod string `json:"pod"`
	// StagedConnection is the first one, as far as it is kept.
	StagedConnection
	Connections uint64    `json:"connections"`
	Last        time.Time `json:"last"`
}

// StagedPod is a pod with connections that a staged policy would have denied.
type StagedPod struct {
	Pod    string           `json:"pod"`
	Denied uint64           `json:"denied"`
	First  StagedConnection `json:"first"`
	Last   StagedConnection `json:"last"`
}

// StagedConnection is a connection that a staged policy would have denied.
type StagedConnection struct {
	// At is when the agent saw it.
	At time.Time `json:"at"`
	// Direction is the one in which the policy denies, as the pod sees it.
	Direction   string         `json:"direction"`
	Source      netip.Addr     `json:"source"`
	Destination netip.Addr     `json:"destination"`
	Protocol    model.Protocol `json:"protocol"`
	// Port is the destination port, of ICMP the model.ICMPMessage.
	Port uint16 `json:"port"`
}

// StagedLook is a look at the connections of a node's pods.
type StagedLook struct {
	At   time.Time     `json:"at"`
	Took time.Duration `json:"tookNanoseconds"`
	// Connections counts the entries that were read, New those that were judged.
	Connections int    `json:"connections"`
	New         int    `json:"new"`
	Error       string `json:"error,omitempty"`
}
