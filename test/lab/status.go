package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/felixlike/felixlike/cmd/felixctl/labs"
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

// metricsURL is the default of the agent's setting healthAddress.
const metricsURL = "http://127.0.0.1:10288/metrics"

// Metric asks the agent for the sum of a metric's samples. The name may have labels, for
// one sample alone.
func (n *Node) Metric(ctx context.Context, name string) (float64, error) {
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, address string) (conn net.Conn, err error) {
			err = n.ns.Do(func() error {
				var d net.Dialer
				conn, err = d.DialContext(ctx, network, address)
				return err
			})
			return conn, err
		},
	}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, metricsURL, http.NoBody)
	if err != nil {
		return 0, err
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, fmt.Errorf("node %s: %w", n.Name(), err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, fmt.Errorf("node %s: metrics: %w", n.Name(), err)
	}
	return sumOf(string(text), name)
}

// sumOf sums the samples of a metric in Prometheus' text format.
func sumOf(text, name string) (sum float64, err error) {
	found := false
	for line := range strings.Lines(text) {
		rest, ok := strings.CutPrefix(line, name)
		if !ok || rest == "" || rest[0] != ' ' && rest[0] != '{' {
			continue
		}
		value, err := strconv.ParseFloat(strings.TrimSpace(rest[strings.LastIndexByte(rest, ' ')+1:]), 64)
		if err != nil {
			return 0, fmt.Errorf("metric %s: %q: %w", name, line, err)
		}
		sum, found = sum+value, true
	}
	if !found {
		return 0, fmt.Errorf("no metric %s", name)
	}
	return sum, nil
}
