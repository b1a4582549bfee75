package ctl

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/felixlike/felixlike/cmd/felixctl/preview"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/internal/terminal"
)

// ErrPasses is the error of reach --deny if a packet passes, after the output.
var ErrPasses = errors.New("a packet passes")

func reachCommand() *cobra.Command {
	var t target
	var q preview.Question
	var port string
	var deny, denied bool
	c := &cobra.Command{
		Use:   "reach [--from ENDS] [--to ENDS] [--port PORT/PROTOCOL]",
		Short: "Show who may reach whom by the policies of the cluster, and why",
		Long: `Show who may reach whom by the policies of the cluster, and why: every port, and
all pods, nodes and outside addresses that are asked about. Pods that no policy can
distinguish are evaluated once, so the answer holds for each packet that may begin a
connection.

ENDS is one of:
` + preview.Ends + `.
Labels are selectors as in kubectl get -l. A pod in its host's network is its node.

The answer is by the policies and not by the kernel: "felixctl diff live wanted" says
whether the node has programmed them. Services and node ports are not ends, since
policy applies to the pods behind them. -o json has the reasons of all denied ways,
and a digest of the objects.

Exit codes: 0 answered, and with --deny nothing passes; 1 with --deny something
passes; 2 the command failed, or an end has no pod or node.`,
		Example: `  felixctl reach --to shop/db
  felixctl reach --from shop/web --to shop/db --port 5432/tcp --denied
  felixctl reach --from namespaces:tenant=a --to namespaces:tenant=b --deny
  felixctl reach --from outside --to namespace:shop
  kubectl felixlike reach --from pods:app=web --to outside`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			var err error
			if q.Port, err = preview.ParsePort(port); err != nil {
				return fmt.Errorf("--%w", err)
			}
			return t.call(c.Context(), func(ctx context.Context, agent *control.Client) error {
				m, err := agent.Model(ctx)
				if err == nil {
					err = m.Judges()
				}
				if err != nil {
					return err
				}
				objects, err := allObjects(ctx, agent)
				if err != nil {
					return err
				}
				stop := terminal.Progress(c.ErrOrStderr(), terminal.Doing("evaluating packets"))
				if m.Failsafe != nil {
					q.Failsafe = *m.Failsafe
				}
				r, err := preview.ReachOf(ctx, objects, q)
				stop()
				if err != nil {
					return err
				}
				if err := t.output.Print(c.OutOrStdout(), r, func() error { return preview.PrintReach(c.OutOrStdout(), r, denied) }); err != nil {
					return err
				}
				if deny && r.Passes() {
					return ErrPasses
				}
				return nil
			})
		},
	}
	t.flags(c, 2*time.Minute)
	t.output.Flag(c)
	c.Flags().StringVar(&q.From, "from", "", "the sources (default: anywhere)")
	c.Flags().StringVar(&q.To, "to", "", "the destinations (default: anywhere)")
	c.Flags().StringVar(&port, "port", "", "PORT/PROTOCOL of the destination, or icmp for echo requests (default: all)")
	c.Flags().BoolVar(&deny, "deny", false, "exit with 1 if anything passes")
	c.Flags().BoolVar(&denied, "denied", false, "show what is denied, too")
	return c
}
