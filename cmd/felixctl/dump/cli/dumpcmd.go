package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/felixlike/felixlike/cmd/felixctl/dump/live"
	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/internal/terminal"
)

// Commands returns `felixctl dump`, `felixctl snapshot` and `felixctl diff`.
func Commands() []*cobra.Command {
	return []*cobra.Command{DumpCommand(), snapshotCommand(), diffCommand(), ProveCommand()}
}

// DumpCommand returns `felixctl dump`.
func DumpCommand() *cobra.Command {
	s := sides{}
	var how shown
	var output terminal.Output
	var pod string
	c := &cobra.Command{
		Use:   "dump [SIDE]",
		Short: "Show the rules, sets and flows of a node, with the names of policies and pods",
		Long: `Show the rules, sets and flows of a node, with the names of policies and pods
behind them.

SIDE is "live" if it is not given, or:

` + sidesHelp + `

-o text writes the tools' own language, in a fixed order, with names behind a #;
-o native the tools' unchanged output; -o json and yaml all in one typed form.

With --pod, only the chains, sets and flows that judge the packets of one pod.`,
		Example: `  felixctl dump
  felixctl dump --pod shop/web --counters
  felixctl dump -o native > before.txt
  nft list ruleset | felixctl dump -
  felixctl dump backend:openflow --elements count`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			options, err := how.options()
			if err != nil {
				return err
			}
			if pod != "" && output == terminal.Native {
				return errors.New("--pod: -o native prints all that the tools print")
			}
			what := append(args, "live")[0]
			s.in, s.everything = c.InOrStdin(), !how.onlyOurs
			return s.agent.call(c.Context(), func(ctx context.Context) error {
				if output == terminal.Native && what == "live" {
					return s.native(ctx, c.OutOrStdout())
				}
				stop := terminal.Progress(c.ErrOrStderr(), terminal.Doing("reading"))
				one, err := s.one(ctx, what, pod)
				stop()
				if err != nil {
					return err
				}
				return one.print(c.OutOrStdout(), output, options)
			})
		},
	}
	s.flags(c)
	how.flags(c)
	c.Flags().StringVar(&pod, "pod", "", "only what judges the packets of this pod of the node: NAMESPACE/NAME")
	output.Flag(c, terminal.Text, terminal.Native, terminal.JSON, terminal.YAML)
	return c
}

// flags adds the flags that give the arguments their meaning.
func (s *sides) flags(c *cobra.Command) {
	s.agent.flags(c)
	c.Flags().StringVar(&s.snapshots.dir, "snapshots", DefaultSnapshots, "folder of the snapshots")
	c.Flags().StringVar(&s.backend, "backend", "", "backend of the rules, sets and flows (default: the one in force)")
	terminal.Complete(c, "backend", config.BackendNames()...)
	c.ValidArgsFunction = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return s.words(), cobra.ShellCompDirectiveDefault // files too
	}
	c.Flags().StringVar(&s.node, "for-node", "", "node that a folder of manifests is computed for (default: the agent's)")
}

// words are the sides that have a name.
func (s *sides) words() []string {
	words := []string{"live", "wanted"}
	for _, name := range config.BackendNames() {
		words = append(words, "backend:"+name)
	}
	saved, _ := s.snapshots.list() // what can be read
	for _, one := range saved {
		words = append(words, "snapshot:"+one.Name)
	}
	return words
}

// one resolves the side, and leaves the part for one pod if there is one.
func (s *sides) one(ctx context.Context, what, pod string) (one *side, err error) {
	if isFolder(what) {
		one, err = s.folder(ctx, what, nil)
	} else {
		one, err = s.resolve(ctx, what)
	}
	if err == nil && pod != "" {
		err = one.narrow(pod)
	}
	return one, err
}

// native prints the output of the tools.
func (s *sides) native(ctx context.Context, out io.Writer) error {
	r, err := s.agent.read(ctx, live.Options{Backend: s.backend, Services: true, Everything: s.everything})
	if err != nil {
		return err
	}
	for _, p := range r.parts {
		if _, err := fmt.Fprintf(out, "# %s\n%s\n", p.Command, strings.TrimRight(p.Text, "\n")); err != nil {
			return err
		}
	}
	return nil
}
