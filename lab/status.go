package lab

import (
	"context"
	"maps"
	"net/netip"
	"slices"

	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/model"
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
	// ControlSocket is where felixctl finds the agent, LogFile its log.
	ControlSocket string `json:"controlSocket"`
	LogFile       string `json:"logFile"`
	// Agent is what the agent says of itself; Error why it does not.
	Agent *control.Status `json:"agent,omitempty"`
	Error string          `json:"error,omitempty"`
}

// PodStatus is the state of a pod.
type PodStatus struct {
	Pod       string       `json:"pod"`
	Node      string       `json:"node"`
	Namespace string       `json:"netns"`
	Addresses []netip.Addr `json:"addresses"`
	// State is what the node's agent says of the pod's endpoint.
	State string `json:"state"`
}

// Status asks all agents for their state.
func (l *Lab) Status(ctx context.Context) Status {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := Status{Name: l.Name(), Dir: l.dir}
	endpoints := map[model.PodID]string{}
	for _, name := range slices.Sorted(maps.Keys(l.nodes)) {
		n := l.nodes[name]
		ns := NodeStatus{
			Name: name, Namespace: n.ns.Name(), Addresses: n.spec.Addresses, AgentPID: n.AgentPID(),
			ControlSocket: n.ControlSocket(), LogFile: n.LogFile(),
		}
		status, err := n.Status(ctx)
		if err != nil {
			ns.Error = err.Error()
		} else {
			ns.Agent = &status
		}
		for _, e := range status.Endpoints {
			endpoints[model.PodID{Namespace: e.Namespace, Name: e.Name}] = e.State
		}
		s.Nodes = append(s.Nodes, ns)
	}
	for _, id := range slices.SortedFunc(maps.Keys(l.pods), model.PodID.Compare) {
		p := l.pods[id]
		s.Pods = append(s.Pods, PodStatus{
			Pod: id.String(), Node: p.node.Name(), Namespace: p.ns.Name(),
			Addresses: p.Addresses(), State: endpoints[id],
		})
	}
	return s
}
