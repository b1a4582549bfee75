package labs

import (
	"net/netip"

	"github.com/felixlike/felixlike/felixlike/control"
)

// Status is the state of a lab.
type Status struct {
	Name  string       `json:"name"`
	Dir   string       `json:"dir"`
	Nodes []NodeStatus `json:"nodes"`
	Pods  []PodStatus  `json:"pods"`
}

// NodeStatus is the state of a node.
type NodeStatus struct {
	Name      string       `json:"name"`
	Namespace string       `json:"netns"`
	Addresses []netip.Addr `json:"addresses"`
	AgentPID  int          `json:"agentPID"`
	// ControlSocket is the agent's socket for felixctl, LogFile its log.
	ControlSocket string `json:"controlSocket"`
	LogFile       string `json:"logFile"`
	// OVSDir holds the sockets of the node's Open vSwitch.
	OVSDir string `json:"ovsDir"`
	// Agent is the agent's status; Error is the reason if there is none.
	Agent *control.Status `json:"agent,omitempty"`
	Error string          `json:"error,omitempty"`
}

// PodStatus is the state of a pod.
type PodStatus struct {
	Pod       string       `json:"pod"`
	Node      string       `json:"node"`
	Namespace string       `json:"netns"`
	Addresses []netip.Addr `json:"addresses"`
	// State is the state of the pod's endpoint in the agent's status.
	State string `json:"state"`
}

// PodNames names the pods by their addresses.
func (s Status) PodNames() map[string]string {
	names := map[string]string{}
	for _, p := range s.Pods {
		for _, a := range p.Addresses {
			names[a.String()] = p.Pod
		}
	}
	return names
}
