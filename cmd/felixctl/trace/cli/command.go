package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os/signal"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/cmd/felixctl/agentflag"
	"github.com/felixlike/felixlike/cmd/felixctl/trace"
	"github.com/felixlike/felixlike/cmd/felixctl/trace/together"
	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/internal/servicelist"
	"github.com/felixlike/felixlike/internal/terminal"
)

// The command's errors, for exit codes.
var (
	// ErrDenied: the packet is denied, as the policies say.
	ErrDenied = errors.New("denied")
	// ErrDisagreement: the ways of looking contradict each other.
	ErrDisagreement = errors.New("the ways of looking at it disagree (see above)")
)

// Command returns `felixctl trace`.
func Command() *cobra.Command {
	o := &options{Target: agentflag.Target{WholeLab: true}}
	c := &cobra.Command{
		Use:   "trace --from FROM --to TO --port PORT/PROTOCOL",
		Short: "Show why a packet passes or not: policies, rules or flows, sets, step by step",
		Long: `Show why a packet passes or not: policies, rules or flows, sets, step by step.

It answers in two ways, three with --live. If they disagree, it says so: that is a
bug, or another program has changed the rules.

  by the policies      a reference evaluator over the Kubernetes objects, rule by rule
  by programmed state  the packet is followed through the rules, sets and flows that
                       the kernel and the switch hold at this moment; nothing is sent
  by a real packet     (--live) one packet is put into the bridge as if the pod had
                       sent it. nf_tables' trace, iptables' TRACE or Open vSwitch's
                       ofproto/trace follows it to the destination's interface

FROM and TO are namespace/pod, node:NAME or an address, and a pod in the network of
its node is the node; TO may also be service:namespace/name, its name in DNS
(db.shop.svc), or the address of a Service: then every endpoint is traced to which this
node may lead the packet. Without serviceProxy full, --services has to have the Service.
A name for a port is the pod's, or the Service's.

It asks the agent of this node. The node of the source judges egress, the node of the
destination judges ingress: kubectl felixlike trace finds and asks both, and reads the
Service; so does --lab NAME. A node that gives no answer is named, and only the policies
answer for it.

Exit codes: 0 allowed; 1 denied, as the policies say; 2 wrong usage, or the command
failed; 3 the ways disagree.`,
		Example: `  felixctl trace --from shop/web --to shop/db --port 5432/tcp
  felixctl trace --from shop/web --to shop/db --port 5432/tcp --short
  felixctl trace --from 192.0.2.7 --to shop/web --port http/tcp
  felixctl trace --from shop/web --to shop/db --port 5432/tcp --live
  kubectl get services -A -o yaml | felixctl trace --services - --from shop/web --to service:shop/db --port 5432/tcp`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return o.run(c) },
	}
	f := c.Flags()
	f.StringVar(&o.from, "from", "", "source: namespace/pod, node:NAME or an address")
	f.StringVar(&o.to, "to", "", "destination: namespace/pod, node:NAME, service:namespace/name or an address")
	f.StringVar(&o.port, "port", "", "PORT/PROTOCOL of the destination, or icmp, icmp/TYPE, icmp/TYPE/CODE")
	f.StringVar(&o.family, "family", "", "address family: 4 or 6 (default: that of the addresses, 4 if both will do)")
	f.StringVar(&o.state, "state", string(trace.New), fmt.Sprintf("state of the packet's connection: one of %v", trace.Conns()))
	f.StringVar(&o.services, "services", "", "YAML file with Services, for tracing to them; - is standard input")
	f.StringSliceVar(&o.backends, "backend", nil, "follow it also through the desired state of these backends: "+strings.Join(config.BackendNames(), ", "))
	f.BoolVar(&o.live, "live", false, "send one real packet, and follow it too")
	for name, value := range map[string]*bool{together.Where: &o.where, together.State: &o.writes, together.With: &o.with} {
		f.BoolVar(value, name, false, "")
		_ = f.MarkHidden(name)
	}
	f.BoolVar(&o.all, "all", false, "print whole rules, and rules that did not matter")
	f.BoolVar(&o.short, "short", false, "print only the verdict, the deciding rule of each end, and the reason")
	c.MarkFlagsMutuallyExclusive("all", "short")
	o.Flags(c)
	o.LabFlags(c)
	f.DurationVar(&o.timeout, "timeout", 30*time.Second, "give up after this time")
	o.output.Flag(c)
	o.PodFlag(c, "from")
	o.PodFlag(c, "to")
	terminal.Complete(c, "backend", config.BackendNames()...)
	for _, name := range []string{"from", "to", "port"} {
		_ = c.MarkFlagRequired(name) // the flags are there: they were just made
	}
	return c
}

func (o *options) run(c *cobra.Command) error {
	q, err := o.parse()
	if err != nil {
		return err
	}
	if o.with {
		err = o.readOthers(c.InOrStdin())
		q.services = o.others.Services
	} else {
		q.services, err = servicelist.Read(o.services, c.InOrStdin())
	}
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(c.Context(), unix.SIGINT, unix.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	if o.where || o.writes {
		return o.explain(o.answerOthers(ctx, q, c.OutOrStdout()))
	}
	progress := terminal.Progress(c.ErrOrStderr(), terminal.Doing("reading the programmed state"))
	results, err := o.trace(ctx, q)
	progress()
	if err != nil {
		return o.explain(err)
	}
	if err := o.output.Print(c.OutOrStdout(), results, func() error {
		if o.short {
			return printShort(c.OutOrStdout(), results)
		}
		return printResults(c.OutOrStdout(), results, o.all)
	}); err != nil {
		return err
	}
	return outcome(results)
}

// outcome is the error for the exit code: that of the worst result.
func outcome(results []*result) error {
	var err error
	for _, r := range results {
		switch {
		case r.Disagreement != "" && r.Because == "":
			return ErrDisagreement
		case r.Verdict != allowed:
			err = ErrDenied
		}
	}
	return err
}

// explain adds the remedy to an error of the connection to the agent.
func (o *options) explain(err error) error {
	switch {
	case control.NotRunning(err):
		return fmt.Errorf("no agent listens at %s: is it running on this node, or is --socket wrong? (in a lab: --lab NAME)", o.Socket())
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("only root may ask the agent and read the programmed state: %w", err)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("not done within %s (--timeout): %w", o.timeout, err)
	}
	return err
}
