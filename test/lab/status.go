package lab

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

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
	// OVSDir holds the sockets of the node's Open vSwitch.
	OVSDir string `json:"ovsDir"`
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

// answerTime is how long an agent may take to tell its state: one that hangs is
// what a status is asked for.
const answerTime = 3 * time.Second

// Status asks all agents for their state, side by side.
func (l *Lab) Status(ctx context.Context) Status {
	l.mu.Lock()
	defer l.mu.Unlock()
	names := slices.Sorted(maps.Keys(l.nodes))
	s := Status{Name: l.Name(), Dir: l.dir, Nodes: make([]NodeStatus, len(names)), Pods: []PodStatus{}}
	var asked sync.WaitGroup
	for i, name := range names {
		asked.Go(func() { s.Nodes[i] = l.nodes[name].describe(ctx) })
	}
	asked.Wait()
	endpoints := map[model.PodID]string{}
	for _, n := range s.Nodes {
		if n.Agent == nil {
			continue
		}
		for _, e := range n.Agent.Endpoints {
			endpoints[model.PodID{Namespace: e.Namespace, Name: e.Name}] = e.State
		}
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

func (n *Node) describe(ctx context.Context) NodeStatus {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	out := NodeStatus{
		Name: n.Name(), Namespace: n.ns.Name(), Addresses: n.spec.Addresses, AgentPID: n.AgentPID(),
		ControlSocket: n.ControlSocket(), LogFile: n.LogFile(), OVSDir: n.OVSDir(),
	}
	status, err := n.Status(ctx)
	switch {
	case err == nil:
		out.Agent = &status
	case errors.Is(err, context.DeadlineExceeded):
		out.Error = fmt.Sprintf("the agent does not answer within %s", answerTime)
	default:
		out.Error = err.Error()
	}
	return out
}
