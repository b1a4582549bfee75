package ctl

import (
	"context"
	"fmt"
	"os/signal"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/internal/terminal"
	"github.com/felixlike/felixlike/model"
)

// policyLogRequest has the values of the flags.
type policyLogRequest struct {
	target
	listen time.Duration
}

func policyLogCommand() *cobra.Command {
	var r policyLogRequest
	c := &cobra.Command{
		Use:   "policy-log",
		Short: "Follow the connections that logging policies decide on this node",
		Long: `Follow the log of policies on this node: the first packet of each connection that
a rule with logging decides. It prints each packet as it comes, until it is
interrupted, or for the time of --for. The agent writes the same lines to its
standard output, also while nobody follows.

The annotation felixlike.io/log on a NetworkPolicy or ClusterNetworkPolicy turns
logging on: "true" for all its rules, or a list of "allow" and "deny". The annotation
felixlike.io/log-label adds a label to the lines.

A rule logs 20 packets a second at most. Packets above that are counted.

Exit codes: 0 the time is over, or it was interrupted; 2 the command failed.`,
		Example: `  felixctl policy-log
  felixctl policy-log --for 1m -o json`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return r.run(c) },
	}
	r.Flags(c)
	r.output.Flag(c, terminal.Text, terminal.JSON, terminal.YAML)
	c.Flags().Lookup("output").Usage += streamUsage
	c.Flags().DurationVar(&r.listen, "for", 0, "end after so long; 0 to end when interrupted")
	return c
}

func (r *policyLogRequest) run(c *cobra.Command) error {
	if r.listen < 0 {
		return fmt.Errorf("--for: %s is negative", r.listen)
	}
	ctx, stop := signal.NotifyContext(c.Context(), unix.SIGINT, unix.SIGTERM)
	defer stop()
	if r.listen > 0 {
		var end context.CancelFunc
		ctx, end = context.WithTimeout(ctx, r.listen)
		defer end()
	}
	ctx, hungUp := context.WithCancel(ctx)
	defer hungUp()
	out := c.OutOrStdout()
	if file, ok := terminal.File(out); ok {
		go untilHangup(ctx, file, hungUp)
	}
	widths := []int{len("15:04:05.000"), len("VERDICT"), 22, 22, len("icmpv6 echo-request"), len("DIRECTION"), len("networkpolicy"), 0}
	lines := terminal.NewLines(out, widths, "TIME", "VERDICT", "FROM", "TO", "PORT", "DIRECTION", "TIER", "RULE", "LABEL")
	return r.explain(control.NewClient(r.Socket()).PolicyLog(ctx, func() {
		if !r.output.ForPrograms() {
			fmt.Fprintln(c.ErrOrStderr(), "following the log of policies on this node; interrupt to end")
		}
	}, func(l control.Logged) error {
		return r.output.PrintLine(out, l, func() error { return printLogged(lines, l) })
	}))
}

func printLogged(to *terminal.Lines, d control.Logged) error {
	if d.NotLogged > 0 {
		return to.Note(fmt.Sprintf("%d more not logged", d.NotLogged))
	}
	return to.Row(d.At.Local().Format("15:04:05.000"), d.Verdict, d.From.String(), d.To.String(), d.PortText(), d.Direction, d.Tier, d.Policy.String()+" "+model.TitledRule(d.Rule, d.RuleName), d.LogLabel)
}
