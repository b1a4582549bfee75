package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/report"
	"github.com/felixlike/felixlike/internal/terminal"
)

// settleTimeout bounds the time from the change of a node's backend until all is ready
// there.
const settleTimeout = 2 * time.Minute

// changeTimeout bounds the change of a node's backend. felixctl itself waits for two minutes.
const changeTimeout = 3 * time.Minute

func (t target) backendCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "backend",
		Short: "Show or change the backend of all nodes",
		Example: `  kubectl felixlike backend get
  kubectl felixlike backend set openflow`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(t.getCommand(), t.setCommand())
	return c
}

// nodeBackend is the backend of a node.
type nodeBackend struct {
	Node    string `json:"node"`
	Backend string `json:"backend,omitempty"`
	// Configured is the backend of the configuration while the agent, which found Backend in force, has not changed to it; else empty.
	Configured string `json:"configured,omitempty"`
	// Handover is the change under way, if there is one.
	Handover *control.Handover `json:"handover,omitempty"`
	// Fault is the reason why the agent did not answer.
	Fault string `json:"fault,omitempty"`
}

func (t target) getCommand() *cobra.Command {
	output := terminal.Text
	c := &cobra.Command{
		Use:   "get",
		Short: "Show the backend in force on each node",
		Long: `Show the backend in force on each node.

Exit codes: 0 shown; 2 a node gave no answer.`,
		Example: "  kubectl felixlike backend get",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			replies, err := t.ask(c.Context(), c.ErrOrStderr(), "status", "-o", "json")
			if err != nil {
				return err
			}
			var nodes []nodeBackend
			missing := 0
			for _, r := range replies {
				var s control.Status
				if !r.decode(&s) {
					missing++
				}
				nodes = append(nodes, nodeBackend{r.Node, s.Backend, s.Configured, s.Handover, r.Fault})
			}
			if err := output.Print(c.OutOrStdout(), nodes, func() error { return printBackends(c.OutOrStdout(), nodes) }); err != nil {
				return err
			}
			return errNoAnswer(missing, len(nodes))
		},
	}
	output.Flag(c)
	return c
}

func printBackends(w io.Writer, nodes []nodeBackend) error {
	table := terminal.NewTable(terminal.StyleFor(w), "NODE", "BACKEND", "CHANGING TO")
	for _, n := range nodes {
		switch {
		case n.Fault != "":
			table.Row(n.Node, "NO ANSWER", n.Fault)
		case n.Handover != nil:
			table.Row(n.Node, n.Backend, n.Handover.To+": "+n.Handover.Phase)
		case n.Configured != "":
			table.Row(n.Node, n.Backend, n.Configured+": waits")
		default:
			table.Row(n.Node, n.Backend, "")
		}
	}
	_, err := fmt.Fprintln(w, table)
	return err
}

func (t target) setCommand() *cobra.Command {
	var temporary bool
	c := &cobra.Command{
		Use:   "set " + strings.Join(config.BackendNames(), "|"),
		Short: "Change the backend under traffic, one node after the other",
		Long: `Change the backend under traffic, one node after the other, as felixctl backend set does on
one. Each node must be ready before its change, and again after it. The
first node that is not stops the command: it names the nodes that have changed.

If no --node is given, the setting "backend" of the agents' ConfigMap is changed at the end,
so that it holds when the agents restart. A later "kubectl apply" or "helm upgrade" sets it
back: change it there too. --temporary leaves the ConfigMap as it is.

Exit codes: 0 all nodes have the backend; 2 one has not.`,
		Example: "  kubectl felixlike backend set openflow",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf("want one of %s", strings.Join(config.BackendNames(), ", "))
			}
			return config.CheckChoice("backend", args[0])
		},
		ValidArgs: config.BackendNames(),
		RunE: func(c *cobra.Command, args []string) error {
			agents, err := t.agents(c.Context())
			if err != nil {
				return err
			}
			reached, err := t.roll(c.Context(), agents, args[0], c.OutOrStdout())
			if err != nil || temporary || len(t.nodes) > 0 {
				return err
			}
			if err := t.persist(c.Context(), agents, args[0], c.OutOrStdout()); err != nil {
				return fmt.Errorf("all nodes have the backend %s until their agents restart, but the setting could not be changed: %w", args[0], err)
			}
			return t.verify(c.Context(), reached)
		},
	}
	c.Flags().BoolVar(&temporary, "temporary", false, "only until the agents restart")
	return c
}

// roll changes the backend of one node after the other. It returns the backends that are then
// in force: "iptables" becomes a variant on each node.
func (t target) roll(ctx context.Context, agents []agent, backend string, out io.Writer) (map[string]bool, error) {
	reached := map[string]bool{}
	for i, a := range agents {
		name, err := t.change(ctx, a, backend, out)
		reached[name] = true
		if err != nil {
			var changed []string
			for _, b := range agents[:i] {
				changed = append(changed, b.Node)
			}
			done := "no node has changed"
			if len(changed) > 0 {
				done = fmt.Sprintf("changed to %s: %s", backend, strings.Join(changed, ", "))
			}
			return nil, fmt.Errorf("stopped at node %s: %w (%s)", a.Node, err, done)
		}
	}
	return reached, nil
}

// verify asks all nodes again: an agent may have restarted with the former setting, and a
// node may have joined.
func (t target) verify(ctx context.Context, reached map[string]bool) error {
	nodes, err := t.status(ctx, io.Discard, report.Filter{})
	if err != nil {
		return err
	}
	var others []string
	for _, n := range nodes {
		if n.Status == nil || !reached[n.Status.Backend] || n.Status.Configured != "" {
			others = append(others, n.Node)
		}
	}
	if len(others) > 0 {
		return fmt.Errorf("these nodes have not got the backend, or do not answer: %s: give the command again", strings.Join(others, ", "))
	}
	return nil
}

// change changes the backend of a node that is ready, and waits until it is again. It
// returns the backend in force.
func (t target) change(ctx context.Context, a agent, backend string, out io.Writer) (string, error) {
	if a.Fault != "" {
		return "", errors.New(a.Fault)
	}
	// A node that is not ready because its configured backend cannot be programmed must be able to get another one.
	err := t.settled(ctx, a, "", 0)
	if errors.Is(err, errChanging) {
		err = t.settled(ctx, a, "", settleTimeout)
	}
	if err != nil && !errors.Is(err, errNotConfigured) {
		return "", fmt.Errorf("before the change: %w", err)
	}
	limited, cancel := context.WithTimeout(ctx, changeTimeout)
	defer cancel()
	cmd := t.exec(limited, a, []string{"backend", "set", backend, "-o", "json"})
	var answer, errs bounded
	cmd.Stdout, cmd.Stderr = &answer, &errs
	err = cmd.Run()
	if code, text, err := remoteCode(err, errs.all.Bytes()); err != nil || code != 0 {
		return "", errors.Join(limited.Err(), err, fmt.Errorf("exit code %d: %s", code, text))
	}
	var changed struct{ Backend, Before string }
	if err := json.Unmarshal(answer.all.Bytes(), &changed); err != nil {
		return "", fmt.Errorf("the answer cannot be read: %w", err)
	}
	if _, err := fmt.Fprintf(out, "%s: %s (was %s)\n", a.Node, changed.Backend, changed.Before); err != nil {
		return changed.Backend, err
	}
	if err := t.settled(ctx, a, changed.Backend, settleTimeout); err != nil {
		return changed.Backend, fmt.Errorf("after the change: %w", err)
	}
	return changed.Backend, nil
}

// errNotConfigured is the only reason why a node is not ready: another backend than the configured one is in force.
var errNotConfigured = errors.New("the node is not ready")

// errChanging is errNotConfigured while the node changes to the configured backend by itself.
var errChanging = errors.New("the node is not ready")

// settled waits until the node is ready, with the backend if one is named.
func (t target) settled(ctx context.Context, a agent, backend string, wait time.Duration) error {
	one := t
	one.nodes = []string{a.Node}
	nodes, err := one.waitForStatus(ctx, io.Discard, report.Filter{}, wait)
	if err != nil {
		return err
	}
	n := nodes[0]
	if n.State == ready && backend != "" && n.Status.Backend != backend {
		return fmt.Errorf("the node has %s again: its agent has restarted", n.Status.Backend)
	}
	if n.State != ready {
		if n.Status != nil && n.Status.Configured != "" && len(n.Status.Unready) == 1 {
			is := errNotConfigured
			if n.Status.Handover != nil {
				is = errChanging
			}
			return fmt.Errorf("%w: %s", is, n.Status.Unready[0])
		}
		var why texts
		n.faults(&why)
		reason := n.State
		if len(why) > 0 {
			reason = why[0].text
		}
		return fmt.Errorf("the node is not ready: %s", reason)
	}
	return nil
}

// configKey is the agent's configuration in its ConfigMap.
const configKey = "agent.yaml"

var backendLine = regexp.MustCompile(`(?m)^backend:.*$`)

// persist changes the setting in the ConfigMap that the agents read.
func (t target) persist(ctx context.Context, agents []agent, backend string, out io.Writer) error {
	name, err := t.configMap(ctx, agents[0])
	if err != nil {
		return err
	}
	var object corev1.ConfigMap
	if err := t.get(ctx, &object, "configmap", name); err != nil {
		return err
	}
	before := object.Data[configKey]
	line := "backend: " + backend
	after := backendLine.ReplaceAllLiteralString(before, line)
	if !backendLine.MatchString(before) {
		after = strings.TrimRight(before, "\n") + "\n" + line + "\n"
	}
	// An agent does not start with a file that it cannot read.
	var settings map[string]any
	if err := yaml.UnmarshalStrict([]byte(after), &settings); err != nil || before == "" || settings["backend"] != backend {
		return errors.Join(err, fmt.Errorf("%s of ConfigMap %s has another form than expected: set %q there by hand", configKey, name, line))
	}
	// The version refuses the patch if somebody else has changed the object meanwhile.
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": object.ResourceVersion},
		"data":     map[string]string{configKey: after},
	})
	if err != nil {
		return err
	}
	if _, err := t.output(ctx, "patch", "configmap", name, "--type", "merge", "-p", string(patch)); err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "ConfigMap %s: %q is set\n", name, line)
	return err
}

// configMap returns the name of the ConfigMap that an agent's pod has its settings from.
func (k client) configMap(ctx context.Context, a agent) (string, error) {
	var pod corev1.Pod
	if err := k.get(ctx, &pod, "pod", a.Pod); err != nil {
		return "", err
	}
	for _, v := range pod.Spec.Volumes {
		if v.Name == "config" && v.ConfigMap != nil {
			return v.ConfigMap.Name, nil
		}
	}
	return "", fmt.Errorf("pod %s has no ConfigMap as its volume \"config\"", a.Pod)
}
