package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"

	"github.com/felixlike/felixlike/internal/printable"
)

// locate finds the namespace of the agents, unless a flag named it: the one of the manifests, else the only one that has such pods in the host's
// network. Pods of tenants may have the labels too, so the namespace of the manifests comes first, and of two others none is taken.
func (t *target) locate(ctx context.Context) error {
	if t.namespace != "" || t.lab != "" {
		return nil
	}
	t.namespace = namespace
	var pods corev1.PodList
	out, err := t.output(ctx, "get", "--raw", "/api/v1/namespaces/"+namespace+"/pods?limit=1&labelSelector="+url.QueryEscape(selector))
	if err == nil {
		err = json.Unmarshal(out, &pods)
	}
	switch {
	case err != nil && !forbidden(err):
		return fmt.Errorf("find the agents: %w", err)
	case len(pods.Items) > 0:
		return nil
	}
	if all := t.get(ctx, &pods, "pods", "--all-namespaces", "-l", selector); all != nil {
		if err != nil {
			return fmt.Errorf("find the agents: no right to list the pods of namespace %s, nor of all: %w; if the agents run elsewhere, name their namespace by %s", namespace, all, agentsNamespace)
		}
		return fmt.Errorf("find the agents: namespace %s has none, and there is no right to look in all: %w; name theirs by %s", namespace, all, agentsNamespace)
	}
	var found []string
	for _, p := range pods.Items {
		if p.Spec.HostNetwork && slices.ContainsFunc(p.Spec.Containers, func(c corev1.Container) bool { return c.Name == container }) {
			found = append(found, p.Namespace)
		}
	}
	slices.Sort(found)
	switch found = slices.Compact(found); len(found) {
	case 0:
		return nil // each node says that it has none
	case 1:
		t.namespace = found[0]
		return nil
	}
	return fmt.Errorf("find the agents: the namespaces %s have pods with their labels: name the right one by %s", strings.Join(found, ", "), agentsNamespace)
}

// forbidden reports whether the API server has refused a request for want of a right.
func forbidden(err error) bool { return strings.Contains(strings.ToLower(err.Error()), "forbidden") }

// agents returns the agents of the nodes, sorted by node. A node without an agent that can
// be asked has a Fault.
func (t target) agents(ctx context.Context) ([]agent, error) {
	if t.lab != "" {
		return t.labAgents()
	}
	get := []string{"get", "pods", "-l", selector, "-o", "json"}
	if len(t.nodes) == 1 {
		get = append(get, "--field-selector", "spec.nodeName="+t.nodes[0])
	}
	out, err := t.output(ctx, get...)
	if err != nil {
		return nil, err
	}
	var pods corev1.PodList
	if err := json.Unmarshal(out, &pods); err != nil {
		return nil, fmt.Errorf("read the list of agents: %w", err)
	}
	byNode := map[string]agent{}
	for _, a := range t.agentsOf(ctx, pods.Items) {
		// During an update a node may have two pods.
		if known, ok := byNode[a.Node]; a.Node != "" && (!ok || known.Fault != "") {
			byNode[a.Node] = a
		}
	}
	nodes := t.nodes
	if len(nodes) == 0 {
		if nodes, err = t.allNodes(ctx); err != nil {
			return nil, err
		}
	}
	var all []agent
	for _, node := range nodes {
		a, ok := byNode[node]
		if !ok {
			a = agent{Node: node, Fault: fmt.Sprintf("no agent: namespace %s has no pod with the labels %s there", t.namespace, selector)}
		}
		all = append(all, a)
	}
	if len(all) == 0 {
		return nil, errors.New("the cluster has no Linux nodes")
	}
	slices.SortFunc(all, func(a, b agent) int { return strings.Compare(a.Node, b.Node) })
	return slices.Compact(all), nil
}

// allNodes returns the nodes on which an agent can run.
func (k client) allNodes(ctx context.Context) ([]string, error) {
	out, err := k.output(ctx, "get", "nodes", "-l", corev1.LabelOSStable+"=linux", "-o", "name")
	if err != nil {
		return nil, err
	}
	var nodes []string
	for _, name := range strings.Fields(string(out)) {
		nodes = append(nodes, strings.TrimPrefix(name, "node/"))
	}
	return nodes, nil
}

// agentsOf returns the agents of pods. The fault of one that has crashed ends with its last log line.
func (t target) agentsOf(ctx context.Context, pods []corev1.Pod) []agent {
	all := make([]agent, len(pods))
	var group errgroup.Group
	group.SetLimit(atOnce)
	for i := range pods {
		a, crashed := agentOf(&pods[i])
		if crashed != "" {
			group.Go(func() error {
				if line := t.lastLine(ctx, a.Pod, crashed); line != "" {
					all[i].Fault += "; its log ends: " + line
				}
				return nil
			})
		}
		all[i] = a
	}
	_ = group.Wait() // they return no error
	return all
}

// lastLine returns the last line of a container's log; "" if it has none, or it may not be read.
func (k client) lastLine(ctx context.Context, pod, container string) string {
	out, err := k.output(ctx, "logs", "pod/"+pod, "--container", container, "--tail", "1")
	if err != nil {
		return ""
	}
	return printable.String(strings.TrimSpace(string(out)))
}

// agentOf returns the agent of a pod. Its container must run; it need not be ready, since an agent that is not ready can still answer. If the pod cannot
// start, the fault names the container that prevents it; crashed is its name if it has a log.
func agentOf(pod *corev1.Pod) (a agent, crashed string) {
	a = agent{Node: pod.Spec.NodeName, Pod: pod.Name, Version: pod.Labels[versionLabel]}
	for _, c := range pod.Status.ContainerStatuses {
		if c.Name == container && c.State.Running != nil {
			a.Ready = c.Ready
			return a, ""
		}
	}
	for _, c := range pod.Status.InitContainerStatuses {
		ended := c.State.Terminated
		if ended != nil && ended.ExitCode == 0 || c.Started != nil && *c.Started && c.State.Running != nil {
			continue // it is done, or a sidecar
		}
		if why := whyNot(c.State, c.LastTerminationState); why != "" {
			a.Fault = fmt.Sprintf("init container %s of pod %s %s", c.Name, pod.Name, why)
			return a, logged(c)
		}
	}
	for _, c := range pod.Status.ContainerStatuses {
		if c.Name == container {
			if why := whyNot(c.State, c.LastTerminationState); why != "" {
				a.Fault = fmt.Sprintf("container %s of pod %s %s", container, pod.Name, why)
				return a, logged(c)
			}
		}
	}
	a.Fault = fmt.Sprintf("pod %s does not run: %s", pod.Name, strings.TrimSpace(fmt.Sprintf("%s %s %s", pod.Status.Phase, pod.Status.Reason, printable.String(pod.Status.Message))))
	return a, ""
}

// logged returns the name of a container that has ended once, so that it has a log.
func logged(c corev1.ContainerStatus) string {
	if c.State.Terminated == nil && c.LastTerminationState.Terminated == nil {
		return ""
	}
	return c.Name
}

// whyNot says why a container does not run; "" if nothing prevents it.
func whyNot(now, last corev1.ContainerState) string {
	switch {
	case now.Waiting != nil:
		why := "waits: " + now.Waiting.Reason
		switch ended := last.Terminated; {
		case ended != nil: // the message is that of the back-off
			why += fmt.Sprintf(" (exit code %d, %s)", ended.ExitCode, ended.Reason)
		case now.Waiting.Message != "":
			why += ": " + printable.String(now.Waiting.Message)
		}
		return why
	case now.Terminated != nil:
		return fmt.Sprintf("has ended: %s (exit code %d)", now.Terminated.Reason, now.Terminated.ExitCode)
	case now.Running != nil:
		return "runs and has not ended"
	}
	return ""
}
