package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/report"
	"github.com/felixlike/felixlike/internal/terminal"
)

// waitEvery is the time between two requests of status --wait.
const waitEvery = 2 * time.Second

// States of a node.
const (
	ready    = report.StateReady
	degraded = report.StateDegraded
	changing = report.StateChanging
	noAnswer = "NO ANSWER"
)

// nodeStatus is a node's row.
type nodeStatus struct {
	Node string `json:"node"`
	// State is "Ready", "changing" (a change is being programmed), "Degraded" or
	// "NO ANSWER".
	State string `json:"state"`
	// Fault is the reason why the agent did not answer or is not ready.
	Fault  string          `json:"fault,omitempty"`
	Status *control.Status `json:"status,omitempty"`
}

func (t target) statusCommand() *cobra.Command {
	output := terminal.Text
	var wait time.Duration
	var filter report.Filter
	c := &cobra.Command{
		Use:   "status",
		Short: "Show one row a node, faulty nodes first",
		Long: `Show one row a node, faulty nodes first. Below the table are the faults and problems, each
once with the nodes that have it. --namespace leaves out pods, policies, faults and problems of
other namespaces; STATE is about the whole node. With --strict, a node that has a problem of an
object, such as a policy that is not understood, is Degraded, also for --wait.

Exit codes: 0 all nodes are ready; 1 one is not; 2 one gave no answer.`,
		Example: `  kubectl felixlike status --wait 2m
  kubectl felixlike --node worker-1 --node worker-2 status
  kubectl felixlike status -n shop
  kubectl felixlike status --strict
  kubectl felixlike --context production status -o json`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			nodes, err := t.waitForStatus(c.Context(), c.ErrOrStderr(), filter, wait)
			if err != nil {
				return err
			}
			if err := t.namespaceExists(c.Context(), nodes, filter.Namespace); err != nil {
				return err
			}
			for _, n := range nodes {
				if n.Status != nil {
					*n.Status = filter.Apply(*n.Status)
				}
			}
			if output == terminal.Name {
				err = terminal.PrintNames(c.OutOrStdout(), namesOf(nodes))
			} else {
				err = output.Print(c.OutOrStdout(), map[string]any{"nodes": nodes}, func() error { return printStatus(c.OutOrStdout(), nodes, output) })
			}
			if err != nil {
				return err
			}
			return worst(nodes)
		},
	}
	output.Flag(c, report.Formats()...)
	c.Flags().StringVarP(&filter.Namespace, "namespace", "n", "", "only what concerns this namespace")
	c.Flags().BoolVar(&filter.Strict, "strict", false, "Degraded, exit code 1, also if an object has a problem")
	c.Flags().DurationVar(&wait, "wait", 0, "wait for so long until all nodes are ready")
	return c
}

// namespaceExists asks one node that is in sync. It returns an error if the cluster has no such namespace: without rows, an answer would look as if all
// were well.
func (t target) namespaceExists(ctx context.Context, nodes []nodeStatus, namespace string) error {
	one := slices.IndexFunc(nodes, func(n nodeStatus) bool { return n.Status != nil && n.Status.InSync })
	if namespace == "" || one < 0 {
		return nil
	}
	t.nodes = []string{nodes[one].Node}
	replies, err := t.ask(ctx, io.Discard, "status", "-o", "name", "--namespace", namespace)
	if err != nil {
		return err
	}
	for _, r := range replies {
		if _, text, found := strings.Cut(r.Fault, "exit code 2: "); found && strings.Contains(text, "no such namespace") {
			return errors.New(strings.TrimPrefix(text, "felixctl: "))
		}
	}
	return nil
}

// namesOf are the names of the nodes.
func namesOf(nodes []nodeStatus) []string {
	var names []string
	for _, n := range nodes {
		names = append(names, n.Node)
	}
	return names
}

// worst returns the error for the nodes' states.
func worst(nodes []nodeStatus) error {
	missing, bad := 0, false
	for _, n := range nodes {
		switch n.State {
		case noAnswer:
			missing++
		case degraded, changing:
			bad = true
		}
	}
	if missing > 0 {
		return errNoAnswer(missing, len(nodes))
	}
	if bad {
		return report.ErrFaults
	}
	return nil
}

// waitForStatus asks all nodes, again and again until all are ready or the time is over.
func (t target) waitForStatus(ctx context.Context, progress io.Writer, filter report.Filter, wait time.Duration) ([]nodeStatus, error) {
	end := time.Now().Add(wait)
	for {
		nodes, err := t.status(ctx, progress, filter)
		if err == nil && worst(nodes) == nil || !time.Now().Before(end) {
			return nodes, err
		}
		good := 0
		for _, n := range nodes {
			if n.State == ready {
				good++
			}
		}
		if err != nil {
			fmt.Fprintln(progress, err) // the API server may be away for a moment
		} else {
			fmt.Fprintf(progress, "%d of %d nodes are ready\n", good, len(nodes))
		}
		select {
		case <-ctx.Done():
			return nodes, ctx.Err()
		case <-time.After(waitEvery):
		}
	}
}

// status asks all nodes once. Nodes that are degraded come first; a strict filter says which are.
func (t target) status(ctx context.Context, progress io.Writer, filter report.Filter) ([]nodeStatus, error) {
	replies, err := t.ask(ctx, progress, "status", "-o", "json")
	if err != nil {
		return nil, err
	}
	var nodes []nodeStatus
	for _, r := range replies {
		var s control.Status
		n := nodeStatus{Node: r.Node, State: noAnswer}
		if r.decode(&s) {
			n.State, n.Status = filter.State(s), &s
			if n.State == ready && !r.Ready {
				n.State, r.Fault = degraded, fmt.Sprintf("pod %s is not ready", r.Pod)
			}
		}
		n.Fault = r.Fault
		nodes = append(nodes, n)
	}
	rank := []string{noAnswer, degraded, changing, ready}
	slices.SortStableFunc(nodes, func(a, b nodeStatus) int {
		return slices.Index(rank, a.State) - slices.Index(rank, b.State)
	})
	return nodes, nil
}

func printStatus(w io.Writer, nodes []nodeStatus, output terminal.Output) error {
	style := output.Style(w)
	table := terminal.NewTable(style, "NODE", "STATE", "BACKEND", "VERSION", "UP", "PODS", "POLICIES", "QUARANTINED", "PROBLEMS")
	good := 0
	for _, n := range nodes {
		state := style.Bad(n.State)
		switch n.State {
		case ready:
			state = style.Good(n.State)
			good++
		case changing:
			state = n.State
		}
		if s := n.Status; s != nil {
			table.Row(n.Node, state, s.Backend, s.AgentVersion, time.Since(s.StartedAt).Round(time.Second).String(), len(s.Endpoints), len(s.Policies), len(s.Quarantined), len(s.Problems))
		} else {
			table.Row(n.Node, state, "-", "-", "-", "-", "-", "-", "-")
		}
	}
	if _, err := fmt.Fprintf(w, "%s\n\n%d nodes, %d ready\n", table, len(nodes), good); err != nil {
		return err
	}
	var faults, problems texts
	for _, n := range nodes {
		n.faults(&faults)
		if n.Status != nil {
			for _, p := range n.Status.Problems {
				problems.add(n.Node, p.Error())
			}
		}
	}
	if err := printTexts(w, "degraded:", faults, len(nodes)); err != nil {
		return err
	}
	return printTexts(w, "problems of objects:", problems, len(nodes))
}

// faults adds the reasons why the node is degraded.
func (n nodeStatus) faults(to *texts) {
	if n.Fault != "" {
		to.add(n.Node, n.Fault)
	}
	if n.Status != nil {
		for _, fault := range report.Faults(*n.Status) {
			to.add(n.Node, fault)
		}
	}
}

func printTexts(w io.Writer, heading string, all texts, of int) error {
	if len(all) == 0 {
		return nil
	}
	_, err := fmt.Fprintf(w, "\n%s\n", heading)
	for _, t := range all {
		if err == nil {
			_, err = fmt.Fprintf(w, "  %s: %s\n", named(t.nodes, of), t.text)
		}
	}
	return err
}
