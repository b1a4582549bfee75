package cli

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	dumpcli "github.com/felixlike/felixlike/cmd/felixctl/dump/cli"
	"github.com/felixlike/felixlike/cmd/felixctl/labs"
	"github.com/felixlike/felixlike/internal/terminal"
)

func (o *options) rulesCommand() *cobra.Command {
	var output terminal.Output
	c := &cobra.Command{
		Use:   "rules NAMESPACE/POD",
		Short: "Show the rules, sets and flows that judge a pod's packets, with counters",
		Long: `Show the rules, sets and flows that judge a pod's packets, with counters, and with the names
of policies and pods. It is felixctl dump --pod NAMESPACE/POD --counters on the pod's node.`,
		Example: "  felixctl lab rules shop/web",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf("want NAMESPACE/POD (as in: shop/web), got %s", plural(len(args), "argument"))
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			status, err := o.client().Status(c.Context())
			if err != nil {
				return err
			}
			return dumpPod(c.Context(), c.OutOrStdout(), c.ErrOrStderr(), status, args[0], output)
		},
	}
	output.Flag(c)
	return c
}

// dumpPod runs felixctl dump --pod on the pod's node.
func dumpPod(ctx context.Context, out, errOut io.Writer, s labs.Status, pod string, output terminal.Output) error {
	p := slices.IndexFunc(s.Pods, func(p labs.PodStatus) bool { return p.Pod == pod })
	if p < 0 {
		return fmt.Errorf("%s: no such pod (felixctl lab status lists them)", pod)
	}
	n := slices.IndexFunc(s.Nodes, func(n labs.NodeStatus) bool { return n.Name == s.Pods[p].Node })
	c := dumpcli.DumpCommand()
	c.SetArgs([]string{"--socket", s.Nodes[n].ControlSocket, "--pod", pod, "--counters", "--output", string(output)})
	c.SetOut(out)
	c.SetErr(errOut)
	c.SilenceUsage, c.SilenceErrors = true, true
	return c.ExecuteContext(ctx)
}
