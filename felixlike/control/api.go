// Package control is the agent's control socket: a versioned HTTP API on a unix socket that only root may
// use. It serves the agent's status, reports when the datastore's objects have been programmed, and answers
// the probes of package health. Server and client live here; the package holds no state of its own and asks
// the Agent for all.
package control

import (
	"time"

	"github.com/felixlike/felixlike/model"
)

// Version is the version of the API; it is the first element of every path.
const Version = "v1"

// SocketName is the name of the socket in the agent's run directory.
const SocketName = "control.sock"

// Status is the state of one agent.
type Status struct {
	// Version is that of the API, AgentVersion that of the program.
	Version      string `json:"version"`
	AgentVersion string `json:"agentVersion"`
	Node         string `json:"node"`
	Backend      string `json:"backend"`
	// Configured is the backend of the configuration while the agent, which found Backend in force, has not changed to it (docs/install/backend.md); else empty.
	Configured string `json:"configured,omitempty"`
	// Handover is the change of the backend under way, if there is one.
	Handover  *Handover `json:"handover,omitempty"`
	Datastore string    `json:"datastore"`
	PID       int       `json:"pid"`
	// StartedAt is when the agent process began.
	StartedAt time.Time `json:"startedAt"`
	// Underlay is this node's network, as the agent has found it.
	Underlay *Underlay `json:"underlay,omitempty"`
	// Health says where probes and metrics are served, or why not; empty if
	// they are turned off.
	Health string `json:"health,omitempty"`
	// Unready are the reasons why the readiness probe fails; empty if it does not.
	Unready []string `json:"unready,omitempty"`
	// InSync reports that the datastore's first listing is complete; before that nothing is programmed.
	InSync bool `json:"inSync"`
	// Observed is the datastore's newest revision, Programmed the newest that
	// the dataplane holds.
	Observed   uint64 `json:"observedRevision"`
	Programmed uint64 `json:"programmedRevision"`
	// LastApply is the newest attempt to program the dataplane.
	LastApply Apply `json:"lastApply"`
	// Running are the stages that are being applied now.
	Running []Running `json:"running,omitempty"`
	// Writes counts mutating messages since the agent started, by receiver:
	// "nftables", "ovsdb", "openflow", "netlink", "conntrack".
	Writes map[string]int `json:"writes"`
	// Flows counts the agent's flows in the bridge, by the stage that programs
	// them: "openflow" for forwarding, "openflow-policy".
	Flows     map[string]int `json:"flows,omitempty"`
	Policies  []Policy       `json:"policies"`
	Groups    int            `json:"groups"`
	Endpoints []Endpoint     `json:"endpoints"`
	Nodes     []Node         `json:"nodes"`
	// Problems are the problems of the objects, sorted by source and object.
	Problems []model.Problem `json:"problems"`
	// Quarantined are the objects that the dataplane refuses, sorted.
	Quarantined []Quarantined `json:"quarantined"`
	// Repairs are the foreign changes that were undone.
	Repairs Repairs `json:"repairs"`
	// ExistingConnections says what happens to established connections that policy denies now.
	ExistingConnections ExistingConnections `json:"existingConnections"`
	// Staged are the staged policies and what they would have denied, nil if none selects a pod here.
	Staged *Staged `json:"staged,omitempty"`
	// Offload says whether packets of established connections skip the host.
	Offload *Offload `json:"offload,omitempty"`
	// Hosts are the policies of the node itself. Older agents without any have nil.
	Hosts *Hosts `json:"hosts,omitempty"`
	// Verify is the state of the setting verify, nil if it is off.
	Verify *Verify `json:"verify,omitempty"`
	// Layout is how nftables holds NetworkPolicies, nil under another backend.
	Layout *Layout `json:"layout,omitempty"`
}

// Layout is the layout of the backend nftables (setting nftables.layout).
type Layout struct {
	// InForce is "rules" or "maps"; "rules" also if the grants were too many for maps.
	InForce string `json:"inForce"`
	// Grants are those in maps, of at most GrantsBound. Pods is the number of pods of this node whose NetworkPolicies of a direction are in maps. All are
	// zero with "rules".
	Grants      int `json:"grants,omitempty"`
	GrantsBound int `json:"grantsBound,omitempty"`
	Pods        int `json:"podsInMaps,omitempty"`
}

// Verify has the newest proof that the programmed state gives all packets the verdicts of the policies.
type Verify struct {
	// Mode is "onResync" or "everyChange".
	Mode string `json:"mode"`
	// Result is "equal", "differs", "not proved" or "cannot run"; it is empty before the first proof has ended. Reason explains it: the packets
	// that differ, the parts that are not proved, the time since which no proof has ended, or the error.
	Result string `json:"result,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Classes count, for each family, the packets that were compared; empty after a difference, and if rules and flows are the same, so that no packet had to
	// be followed.
	Classes []Classes `json:"classes,omitempty"`
	// Backend is the backend that was proved.
	Backend string `json:"backend,omitempty"`
	// At is when it began, Took how long it took, and CPU its time of processors. Memory is its largest use of memory in bytes.
	At     time.Time     `json:"at,omitzero"`
	Took   time.Duration `json:"tookNanoseconds,omitempty"`
	CPU    time.Duration `json:"cpuNanoseconds,omitempty"`
	Memory int64         `json:"memoryBytes,omitempty"`
	// Abandoned counts the proofs since the last result that stopped because objects or the node's state changed.
	Abandoned int `json:"abandoned,omitempty"`
}

// Classes counts the classes of one family that felixctl prove compares: neither side tells the members of a class apart.
type Classes struct {
	Family     string `json:"family"`
	Addresses  int    `json:"addresses"`
	Ports      int    `json:"ports"`
	Interfaces int    `json:"interfaces"`
}

// States of the policies of the node itself.
const (
	// HostsNone says that no policy applies to the node.
	HostsNone        = "none"
	HostsConfirmed   = "confirmed"
	HostsUnconfirmed = "not confirmed yet"
	HostsWithdrawn   = "withdrawn"
	HostsOff         = "off"
	// HostsNotProgrammed says that the agent could not program all of the policies, or could not remove their table.
	HostsNotProgrammed = "not programmed"
)

// Hosts are the policies of the node itself.
type Hosts struct {
	State string `json:"state"`
	// Policies are those that the datastore has for the node. Withdrawn are those of the last change, if the node did not work with it.
	Policies  []string `json:"policies"`
	Withdrawn []string `json:"withdrawn,omitempty"`
	// Confirmed are those in force in place of Policies, if the last change is withdrawn.
	Confirmed []string `json:"confirmed,omitempty"`
	Reason    string   `json:"reason,omitempty"`
	// FailsafeIn and FailsafeOut are the ports that no policy of the node closes.
	FailsafeIn  []string `json:"failsafeIn"`
	FailsafeOut []string `json:"failsafeOut"`
}

// Offload is the state of the setting offload.
type Offload struct {
	// Setting is "auto" or "off".
	Setting string `json:"setting"`
	// Active reports that the bridge's flows switch established connections. Why says why they do not,
	// with the setting "auto".
	Active bool   `json:"active"`
	Why    string `json:"why,omitempty"`
}

// ExistingConnections is the state of the setting existingConnections.
type ExistingConnections struct {
	// Mode is "keep" or "revalidate". The other fields are for "revalidate" only.
	Mode string `json:"mode,omitempty"`
	// Pending counts the changed pods, policies and groups whose connections have not been looked at. Ended counts
	// the connections that were ended since the agent started.
	Pending int    `json:"pending,omitempty"`
	Ended   uint64 `json:"ended,omitempty"`
	// Running is the walk under way, as far as it is; Last is the newest that has ended.
	Running *Walk `json:"running,omitempty"`
	Last    *Walk `json:"last,omitempty"`
}

// Walk is a look at the established connections of pods whose verdicts may have changed.
type Walk struct {
	At   time.Time     `json:"at"`
	Took time.Duration `json:"tookNanoseconds"`
	// Pods counts the addresses of these pods, Of their connections, Looked those that were judged, Denied
	// those of them that policy denies, and Ended those that were still there and are ended.
	Pods   int    `json:"pods"`
	Of     int    `json:"of"`
	Looked int    `json:"looked"`
	Denied int    `json:"denied"`
	Ended  int    `json:"ended"`
	Error  string `json:"error,omitempty"`
}

// Underlay is this node's network as it was found, or set, and why so.
type Underlay struct {
	// Datapath is the type of the bridge's.
	Datapath    string `json:"datapath"`
	DatapathWhy string `json:"datapathWhy"`
	// Uplink is the interface to the peers, MTU that of pods. Both are known once
	// this node's object is.
	Uplink    string `json:"uplink,omitempty"`
	UplinkWhy string `json:"uplinkWhy,omitempty"`
	MTU       int    `json:"mtu,omitempty"`
	MTUWhy    string `json:"mtuWhy,omitempty"`
	// TrafficMode is the way of packets between nodes.
	TrafficMode model.TrafficMode `json:"trafficMode"`
	// PublicKey and WireGuardPort are the key and the UDP port of the node's WireGuard device, with encryption.
	PublicKey     model.PublicKey `json:"wireGuardPublicKey,omitzero"`
	WireGuardPort uint16          `json:"wireGuardPort,omitempty"`
}

// Handover is a change of the backend on a live node.
type Handover struct {
	// To is the backend that takes over, Phase how far it is.
	To    string    `json:"to"`
	Phase string    `json:"phase"`
	Since time.Time `json:"since"`
	// Error is the last failure; the agent tries again.
	Error string `json:"error,omitempty"`
}

// Running is a stage that is being applied.
type Running struct {
	Stage string    `json:"stage"`
	Since time.Time `json:"since"`
}

// Quarantined is an object that cannot be programmed. Everything else is programmed, and packets that depend
// on the object are dropped. The agent tries it again.
type Quarantined struct {
	Stage string `json:"stage"`
	// Kind is "chain", "set" or "map", Name the dataplane's name of the object;
	// Rule says which rule or member is meant, if one is.
	Kind string `json:"kind"`
	Name string `json:"name"`
	Rule string `json:"rule,omitempty"`
	// Description is the purpose of the object, if it is known.
	Description string `json:"description,omitempty"`
	// Owners are the objects that it was made of.
	Owners []model.ObjectRef `json:"owners,omitempty"`
	Reason string            `json:"reason"`
	Since  time.Time         `json:"since"`
	// Attempts counts the tries. NextTry is the time of the next one; it is zero if only a change of the
	// desired state can help.
	Attempts int       `json:"attempts"`
	NextTry  time.Time `json:"nextTry,omitzero"`
	// Closed are the chains that drop everything because of it, Pods the pods of this
	// node with packets that pass one of them.
	Closed []string `json:"closed,omitempty"`
	Pods   []string `json:"pods,omitempty"`
}

// Object names the object as the dataplane does. The name of a policy has its kind.
func (q Quarantined) Object() string {
	if q.Kind == "policy" {
		return q.Name
	}
	return q.Kind + " " + q.Name
}

// Repairs counts and lists the repairs of foreign changes.
type Repairs struct {
	// Total counts them since the agent started.
	Total int `json:"total"`
	// Last are the newest, the newest last.
	Last []Repair `json:"last,omitempty"`
}

// Repair is a repaired foreign change.
type Repair struct {
	At    time.Time `json:"at"`
	Stage string    `json:"stage"`
	// Kind is "table", "chain", "set" or "map".
	Kind string `json:"kind"`
	Name string `json:"name"`
	// What describes the repaired difference. By names the program that caused it, if known.
	What string `json:"what"`
	By   string `json:"by,omitempty"`
	// Took is the time from the notice to the repair.
	Took time.Duration `json:"tookNanoseconds"`
}

// Apply describes one pass over the dataplane.
type Apply struct {
	At       time.Time     `json:"at"`
	Duration time.Duration `json:"durationNanoseconds"`
	Error    string        `json:"error,omitempty"`
}

// Policy is a policy in force.
type Policy struct {
	Tier      string `json:"tier"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	// API, Part and Within are those of the policy's model.PolicyID.
	API          model.PolicyAPI `json:"api,omitempty"`
	Part         uint16          `json:"part,omitempty"`
	Within       string          `json:"within,omitempty"`
	IngressRules int             `json:"ingressRules"`
	EgressRules  int             `json:"egressRules"`
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
	// Reason is why the endpoint is closed, if it is.
	Reason string `json:"reason,omitempty"`
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
	// EndpointClosed: attached, but its traffic is dropped: the datastore knows
	// no such pod, or an object on its way is quarantined.
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
