package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/felixlike/felixlike/internal/printable"
)

// bindingName is the ClusterRoleBinding of the agents, in the manifests and in the chart.
const bindingName = "felixlike"

// locate finds the namespace of the agents, unless a flag named it: the one of the manifests if it has agents, else the one in their ClusterRoleBinding.
// Pods of tenants may have the labels too; a ClusterRoleBinding is none of their objects.
func (t *target) locate(ctx context.Context, note io.Writer) error {
	if t.namespace != "" || t.lab != "" {
		return nil
	}
	t.namespace = namespace
	var pods corev1.PodList
	out, err := t.output(ctx, "get", "--raw", "/api/v1/namespaces/"+namespace+"/pods?limit=1&labelSelector="+url.QueryEscape(selector))
	if err == nil {
		err = json.Unmarshal(out, &pods)
	}
	none := fmt.Sprintf("namespace %s has none", namespace)
	switch {
	case err != nil && !forbidden(err):
		return fmt.Errorf("find the agents: %w", err)
	case err != nil:
		none = fmt.Sprintf("no right to list the pods of namespace %s", namespace)
	case len(pods.Items) > 0:
		return nil
	}
	var binding rbacv1.ClusterRoleBinding
	if err := t.get(ctx, &binding, "clusterrolebinding/"+bindingName); err != nil {
		return fmt.Errorf("find the agents: %s, and ClusterRoleBinding %s, which names theirs, cannot be read: %w; name their namespace by %s", none, bindingName, err, agentsNamespace)
	}
	if len(binding.Subjects) == 0 || binding.Subjects[0].Namespace == "" {
		return fmt.Errorf("find the agents: %s, and ClusterRoleBinding %s has no subjects[0].namespace; name their namespace by %s", none, bindingName, agentsNamespace)
	}
	if t.namespace = binding.Subjects[0].Namespace; t.namespace != namespace {
		fmt.Fprintf(note, "the agents are in namespace %s, says ClusterRoleBinding %s\n", printable.String(t.namespace), bindingName)
	}
	return nil
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
		a.Fault = printable.String(a.Fault)
		all[i] = a
		if t.lastLines && crashed != "" {
			group.Go(func() error {
				if line := t.lastLine(ctx, a.Pod, crashed); line != "" {
					all[i].Fault += "; its log ends: " + line
				}
				return nil
			})
		}
	}
	_ = group.Wait() // they return no error
	return all
}

// logTimeout bounds the reading of a log: the answer can do without.
const logTimeout = 5 * time.Second

// lastLine returns the last line of a container's log; "" if it has none, or it may not be read.
func (k client) lastLine(ctx context.Context, pod, container string) string {
	ctx, cancel := context.WithTimeout(ctx, logTimeout)
	defer cancel()
	out, err := k.output(ctx, "logs", "pod/"+pod, "--container", container, "--tail", "1", "--limit-bytes", "4096")
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
		if ended != nil && ended.ExitCode == 0 || c.State.Running != nil && sidecar(pod, c.Name) {
			continue // it is done, or need not be
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
	a.Fault = fmt.Sprintf("pod %s does not run: %s", pod.Name, strings.TrimSpace(fmt.Sprintf("%s %s %s", pod.Status.Phase, pod.Status.Reason, pod.Status.Message)))
	return a, ""
}

// sidecar reports whether an init container runs as long as the pod.
func sidecar(pod *corev1.Pod, name string) bool {
	return slices.ContainsFunc(pod.Spec.InitContainers, func(c corev1.Container) bool {
		return c.Name == name && c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
	})
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
		case ended != nil: // the waiting message only tells of the back-off
			why += fmt.Sprintf(" (exit code %d, %s)", ended.ExitCode, ended.Reason)
		case now.Waiting.Message != "":
			why += ": " + now.Waiting.Message
		}
		return why
	case now.Terminated != nil:
		return fmt.Sprintf("has ended: %s (exit code %d)", now.Terminated.Reason, now.Terminated.ExitCode)
	case now.Running != nil:
		return "runs and has not ended"
	}
	return ""
}
