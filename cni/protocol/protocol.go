// Package protocol is the API between the CNI plugin and the agent of its node: JSON over
// HTTP on the agent's CNI socket (internal/socketapi).
//
// Version is the first element of each path. A change that an older plugin or agent would
// misunderstand gets another version. The receiver ignores fields that it does not know.
// An agent that does not serve the plugin's version refuses the request, and the plugin
// asks the runtime to try again. Version v1 was gRPC; the agent refuses it in gRPC.
package protocol

import "net/netip"

// Version is the version of the API.
const Version = "v2"

// Paths of the API. All take POST.
const (
	// AddPath attaches a sandbox, and answers when its policy is in force. A second
	// call for an attached sandbox changes nothing and gets the same answer.
	AddPath = "/" + Version + "/add"
	// ChainPath takes a sandbox whose interface another plugin has made, and answers when its policy is in force. It needs an agent with
	// trafficMode networkPolicyOnly; AddPath needs one with another mode.
	ChainPath = "/" + Version + "/chain"
	// DelPath detaches a sandbox. It succeeds if the sandbox is not attached.
	DelPath = "/" + Version + "/del"
	// CheckPath fails unless the sandbox is attached as AddPath left it, and programmed.
	CheckPath = "/" + Version + "/check"
	// StatusPath fails with code not-ready unless AddPath would succeed.
	StatusPath = "/" + Version + "/status"
	// GCPath removes all attachments but those that are listed.
	GCPath = "/" + Version + "/gc"
)

// Sandbox is a pod's sandbox in the runtime's words.
type Sandbox struct {
	ContainerID string `json:"containerID"`
	// NetNS is the path of the network namespace; may be empty for DelPath.
	NetNS string `json:"netns,omitempty"`
	// Interface is the name of the interface inside.
	Interface string `json:"interface"`
	// The pod; may be empty for DelPath.
	PodNamespace string `json:"podNamespace,omitempty"`
	PodName      string `json:"podName,omitempty"`
	// PodUID is the kubelet's; empty if the runtime does not pass it on.
	PodUID string `json:"podUID,omitempty"`
}

// SandboxRequest is the body of AddPath and DelPath.
type SandboxRequest struct {
	Sandbox Sandbox `json:"sandbox"`
}

// ChainRequest is the body of ChainPath.
type ChainRequest struct {
	Sandbox Sandbox `json:"sandbox"`
	// Addresses are those that the plugins before have given the interface, as prefixes.
	Addresses []string `json:"addresses"`
}

// CheckRequest is the body of CheckPath.
type CheckRequest struct {
	Sandbox Sandbox `json:"sandbox"`
	// Addresses are those of the runtime's copy of the result, as prefixes.
	Addresses []string `json:"addresses,omitempty"`
}

// GCRequest is the body of GCPath.
type GCRequest struct {
	// Valid are the attachments that are to stay.
	Valid []Attachment `json:"valid"`
}

// Attachment names an attachment.
type Attachment struct {
	ContainerID string `json:"containerID"`
	Interface   string `json:"interface"`
}

// Empty is the body and the answer of calls that have none.
type Empty struct{}

// AddReply is the answer of AddPath.
type AddReply struct {
	// Host and Pod are the node's side and the pod's side of the pair.
	Host Interface `json:"host"`
	Pod  Interface `json:"pod"`
	// Addresses are one a family, IPv4 first.
	Addresses []Address `json:"addresses"`
}

// Interface is one side of the pair.
type Interface struct {
	Name string `json:"name"`
	MAC  string `json:"mac"`
	MTU  int    `json:"mtu"`
}

// Address is an address of the pod, with the next hop of its default route.
type Address struct {
	// Prefix is the one address, as 10.244.1.7/32.
	Prefix  netip.Prefix `json:"prefix"`
	Gateway netip.Addr   `json:"gateway"`
}
