package cli

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/felixlike/felixlike/cmd/felixctl/labs"
	"github.com/felixlike/felixlike/internal/nearest"
	"github.com/felixlike/felixlike/internal/terminal"
	"github.com/felixlike/felixlike/test/lab"
	"github.com/felixlike/felixlike/test/lab/supervisor"
)

// Commands returns `felixctl lab` with all its commands.
func Commands() *cobra.Command {
	o := &options{}
	c := &cobra.Command{
		Use:   "lab",
		Short: "Clusters made of network namespaces, with real agents and real packets",
		Long: `Clusters made of network namespaces, with real agents and real packets.

Exit codes: 0 as expected; 1 something is not as expected (matrix, verify and
demo: a probe went another way than the policies say; probe: blocked); 2 wrong
usage, or something could not be done.`,
		Example: `  felixctl lab demo
  felixctl lab up --nodes 2 --backend openflow
  felixctl lab apply -f policies/
  felixctl lab matrix`,
		Args: nearest.Command,
		// Without it, cobra takes an unknown command for a request for help.
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	f := c.PersistentFlags()
	f.StringVar(&o.config.Name, nameFlag, "lab", "name of the lab; --lab is the same")
	f.StringVar(&o.config.Root, "root", labs.Root(), "folder of the labs' records, logs and sockets (or "+labs.RootVariable+" of the environment)")
	// The flag is there: it was just made.
	_ = c.RegisterFlagCompletionFunc(nameFlag, func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		names, _ := labs.Names(o.config.Root)
		return names, cobra.ShellCompDirectiveNoFileComp
	})
	c.AddCommand(o.upCommand(), o.superviseCommand(), o.applyCommand(), o.probeCommand(), o.matrixCommand(),
		o.verifyCommand(), o.listCommand(), o.statusCommand(), o.rulesCommand(), o.execCommand(), o.logsCommand(),
		o.restartCommand(), o.downCommand(), o.demoCommand())
	// Other commands of felixctl name a lab by --lab.
	c.SetGlobalNormalizationFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if name == "lab" {
			name = nameFlag
		}
		return pflag.NormalizedName(name)
	})
	return c
}

func (o *options) upCommand() *cobra.Command {
	var nodes int
	var files []string
	c := &cobra.Command{
		Use:   "up",
		Short: "Make a lab and leave it running",
		Example: `  felixctl lab up --nodes 2
  felixctl lab up --backend iptables -f cluster.yaml
  felixctl lab up --set serviceProxy=full --set existingConnections=revalidate`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if nodes < 1 {
				return fmt.Errorf("--nodes %d: must be at least 1", nodes)
			}
			if err := o.config.Check(); err != nil {
				return err
			}
			state, ignored, err := lab.Load(c.Context(), files...)
			if err != nil {
				return err
			}
			if err := printIgnored(c.ErrOrStderr(), ignored); err != nil {
				return err
			}
			for i := len(state.Nodes); i < nodes; i++ {
				state.Nodes = append(state.Nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("node%d", i+1)}})
			}
			program, err := os.Executable()
			if err != nil {
				return err
			}
			args := []string{
				"lab", "supervise", "--name", o.config.Name, "--root", o.config.Root, "--agent", o.config.Agent,
			}
			for _, s := range o.config.Settings() {
				args = append(args, "--set", s)
			}
			stop := terminal.Progress(c.ErrOrStderr(), terminal.Doing("making "+plural(len(state.Nodes), "node")+" and "+plural(len(state.Pods), "pod")))
			if err = supervisor.Start(program, args...); err == nil {
				err = o.client().SetState(c.Context(), state)
			}
			stop()
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(c.OutOrStdout(), "lab %s is up: %s, %s, backend %s (felixctl lab status shows namespaces, sockets and logs)\n",
				o.config.Name, plural(len(state.Nodes), "node"), plural(len(state.Pods), "pod"), o.config.Backend)
			return err
		},
	}
	o.configFlags(c)
	c.Flags().IntVar(&nodes, "nodes", 2, "number of nodes, if the files have fewer")
	c.Flags().StringSliceVarP(&files, "filename", "f", nil, "YAML file, folder or URL to begin with; - is standard input")
	return c
}

// superviseCommand is the command that `up` starts in the background.
func (o *options) superviseCommand() *cobra.Command {
	c := &cobra.Command{
		Use:    "supervise",
		Hidden: true,
		Args:   noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			ctx, cancel := signal.NotifyContext(c.Context(), unix.SIGTERM, unix.SIGINT)
			defer cancel()
			return supervisor.Run(ctx, o.config, supervisor.Ready)
		},
	}
	o.configFlags(c)
	return c
}

func (o *options) applyCommand() *cobra.Command {
	var files []string
	var prune bool
	c := &cobra.Command{
		Use:   "apply -f FILE",
		Short: "Add or replace objects, and wait until they are programmed",
		Long: `Add or replace objects, and wait until they are programmed.

A lab takes Node, Namespace, Pod, NetworkPolicy and ClusterNetworkPolicy, also as
items of a List. Objects of other kinds are passed over and named.

Exit codes: 0 all objects are programmed as written; 1 the agents report problems or
have quarantined objects, which closes pods: they are printed; 2 the command failed.`,
		Example: `  felixctl lab apply -f policies/
  kubectl get networkpolicies -A -o yaml | felixctl lab apply -f -`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			state, ignored, err := lab.Load(c.Context(), files...)
			if err != nil {
				return err
			}
			if err := printIgnored(c.ErrOrStderr(), ignored); err != nil {
				return err
			}
			before, err := o.client().State(c.Context())
			if err != nil {
				return err
			}
			if prune {
				if state.Empty() {
					return errors.New("--prune: there are no objects in the files; it would remove all")
				}
				before = lab.State{Nodes: before.Nodes}
			}
			state = before.Merge(state)
			start := time.Now()
			stop := terminal.Progress(c.ErrOrStderr(), terminal.Doing("waiting until all agents have programmed it"))
			err = o.client().SetState(c.Context(), state)
			stop()
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(c.OutOrStdout(), "programmed in %s: %s, %s, network policies: %d\n", time.Since(start).Round(time.Millisecond),
				plural(len(state.Nodes), "node"), plural(len(state.Pods), "pod"), len(state.Policies)+len(state.ClusterPolicies)+len(state.Antrea.ClusterPolicies)+len(state.Antrea.Policies))
			if err != nil {
				return err
			}
			status, err := o.client().Status(c.Context())
			if err != nil {
				return err
			}
			return printFaults(c.ErrOrStderr(), status)
		},
	}
	c.Flags().StringSliceVarP(&files, "filename", "f", nil, "YAML file, folder or URL; - is standard input")
	c.Flags().BoolVar(&prune, "prune", false, "remove all other objects but the nodes")
	_ = c.MarkFlagRequired("filename") // the flag is there: it was just made
	return c
}

func (o *options) probeCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "probe FROM TO PORT/PROTOCOL",
		Short: "Try one connection; ends are namespace/pod, node:NAME or ip:ADDRESS",
		Long: `Try one connection; ends are namespace/pod, node:NAME or ip:ADDRESS.

Exit codes: 0 through, 1 blocked, 2 not tried.`,
		Example: "  felixctl lab probe shop/web shop/db 80/tcp",
		ValidArgsFunction: func(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 1 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return o.ends(c.Context(), true), cobra.ShellCompDirectiveNoFileComp
		},
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 3 {
				return fmt.Errorf("want FROM TO PORT/PROTOCOL (as in: shop/web shop/db 80/tcp), got %s", plural(len(args), "argument"))
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error { return o.probe(c, args[0], args[1], args[2]) },
	}
	o.probeFlags(c)
	o.outputFlag(c)
	return c
}

// probe tries one connection, and prints the result.
func (o *options) probe(c *cobra.Command, from, to, service string) error {
	family, err := o.parseProbe()
	if err != nil {
		return err
	}
	port, err := ParsePort(service)
	if err != nil {
		return err
	}
	probe := lab.Probe{From: from, To: to, Protocol: port.Protocol, Port: port.Port, Family: family}
	stop := terminal.Progress(c.ErrOrStderr(), terminal.Doing("waiting for an answer"))
	results, err := o.client().Probe(c.Context(), []lab.Probe{probe}, o.timeout)
	stop()
	if err != nil {
		return err
	}
	r := results[0]
	err = o.output.Print(c.OutOrStdout(), r, func() error {
		if !r.Tried {
			return nil // the error says it all
		}
		verdict := fmt.Sprintf("blocked (%s; timeout %s)", r.Reason, o.timeout)
		if r.Through {
			verdict = fmt.Sprintf("through (%s in %s)", r.Reason, r.RTT.Round(time.Microsecond))
		}
		_, err := fmt.Fprintf(c.OutOrStdout(), "%s -> %s %s IPv%s: %s\n", from, to, port, family, verdict)
		return err
	})
	switch {
	case err != nil:
		return err
	case !r.Tried:
		return fmt.Errorf("not tried: %s", r.Reason)
	case !r.Through:
		return ErrBlocked
	}
	return nil
}
