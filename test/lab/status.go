package lab

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/felixlike/felixlike/internal/labs"
	"github.com/felixlike/felixlike/model"
)

// answerTime bounds the wait for an agent's status: status is the command to find an
// agent that hangs.
const answerTime = 3 * time.Second

// Status asks all agents for their state, side by side.
func (l *Lab) Status(ctx context.Context) labs.Status {
	l.mu.Lock()
	defer l.mu.Unlock()
	names := slices.Sorted(maps.Keys(l.nodes))
	s := labs.Status{Name: l.Name(), Dir: l.dir, Nodes: make([]labs.NodeStatus, len(names)), Pods: []labs.PodStatus{}}
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
		s.Pods = append(s.Pods, labs.PodStatus{
			Pod: id.String(), Node: p.node.Name(), Namespace: p.ns.Name(),
			Addresses: p.Addresses(), State: endpoints[id],
		})
	}
	return s
}

func (n *Node) describe(ctx context.Context) labs.NodeStatus {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	out := labs.NodeStatus{
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
