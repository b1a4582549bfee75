package ctl

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/report"
)

// Commands returns the commands that talk to the agent of this node.
func Commands() []*cobra.Command {
	return []*cobra.Command{statusCommand(), backendCommand(), previewCommand(), reachCommand(), policiesCommand(), servicesCommand(), dropsCommand(), policyLogCommand(), checkCommand(), hostsCommand(), diagsCommand(), versionCommand()}
}

// waitEvery is the pause between two requests of status --wait.
const waitEvery = 500 * time.Millisecond

func statusCommand() *cobra.Command {
	var t target
	var wait time.Duration
	var filter report.Filter
	c := &cobra.Command{
		Use:   "status",
		Short: "Show the known, programmed and quarantined objects of this node's agent",
		Long: `Show the known, programmed and quarantined objects of this node's agent.

The first line says whether the node is ready. --namespace, --pod and --faults choose
what follows it; the first line and the exit code are those of the whole node.
-o wide does not fit the tables to the terminal; -o name prints the names of the pods.
--strict takes problems of objects, such as a policy that is not understood, for a
fault of the node.
--wait asks until the node is ready, also while no agent listens yet.

Exit codes: 0 all known objects are in force; 1 they are not (no listing yet, an
apply failed, a change is pending, or an object is quarantined); 2 the agent did
not answer.`,
		Example: `  felixctl status
  felixctl status --wait 1m
  felixctl status -n shop --faults
  felixctl status -o json
  felixctl status --lab lab/node1`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if filter.Pod != "" {
				if _, err := control.ParsePod(filter.Pod); err != nil {
					return fmt.Errorf("--pod: %w", err)
				}
			}
			t.timeout += wait
			return t.call(c.Context(), func(ctx context.Context, agent *control.Client) error {
				s, err := waited(ctx, agent.Status, filter.Ready, wait)
				if err != nil {
					return err
				}
				if s.InSync {
					if err := namespaceExists(ctx, agent, filter.Namespace); err != nil {
						return err
					}
				}
				if err := report.Status(c.OutOrStdout(), s, filter, t.output); err != nil {
					return err
				}
				if !filter.Ready(s) {
					return report.ErrFaults
				}
				return nil
			})
		},
	}
	t.AllNodes = true
	t.flags(c, 10*time.Second)
	t.output.Flag(c, report.Formats()...)
	f := c.Flags()
	f.StringVarP(&filter.Namespace, "namespace", "n", "", "only what concerns this namespace")
	f.StringVar(&filter.Pod, "pod", "", "only this pod (namespace/name)")
	f.DurationVar(&wait, "wait", 0, "wait for so long until the node is ready")
	f.BoolVar(&filter.Faults, "faults", false, "only what is degraded: closed pods, quarantined objects, problems")
	f.BoolVar(&filter.Strict, "strict", false, "Degraded, exit code 1, also if an object has a problem")
	t.NamespaceFlag(c, "namespace")
	t.PodFlag(c, "pod")
	return c
}

// namespaceExists returns an error for a namespace that the cluster does not have: without rows, an answer about it would look as if all were well.
func namespaceExists(ctx context.Context, agent *control.Client, namespace string) error {
	if namespace == "" {
		return nil
	}
	objects, err := allObjects(ctx, agent)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(objects.Namespaces, func(n *corev1.Namespace) bool { return n.Name == namespace }) ||
		slices.ContainsFunc(objects.Pods, func(p *corev1.Pod) bool { return p.Namespace == namespace }) ||
		slices.ContainsFunc(objects.Policies, func(p *networkingv1.NetworkPolicy) bool { return p.Namespace == namespace }) {
		return nil
	}
	return fmt.Errorf("--namespace %s: the cluster has no such namespace", namespace)
}

// waited asks until the node is ready, or for as long as wait, and returns the last answer.
func waited(ctx context.Context, ask func(context.Context) (control.Status, error), ready func(control.Status) bool, wait time.Duration) (control.Status, error) {
	for end := time.Now().Add(wait); ; {
		s, err := ask(ctx)
		left := time.Until(end)
		if err == nil && ready(s) || left <= 0 {
			return s, err
		}
		select {
		case <-ctx.Done():
			return s, ctx.Err()
		case <-time.After(min(left, waitEvery)):
		}
	}
}
