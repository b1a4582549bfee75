package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/felixlike/felixlike/cmd/felixctl/dump"
	"github.com/felixlike/felixlike/cmd/felixctl/dump/live"
	"github.com/felixlike/felixlike/internal/nearest"
	"github.com/felixlike/felixlike/internal/terminal"
)

func snapshotCommand() *cobra.Command {
	var s store
	c := &cobra.Command{
		Use:   "snapshot",
		Short: "Save the state of a node for later comparisons",
		Example: `  felixctl snapshot save before
  felixctl diff snapshot:before live`,
		Args: nearest.Command,
		// Without it, cobra takes an unknown command for a request for help.
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.PersistentFlags().StringVar(&s.dir, "snapshots", DefaultSnapshots, "folder of the snapshots")
	c.AddCommand(saveCommand(&s), listCommand(&s), showCommand(&s), deleteCommand(&s))
	return c
}

func saveCommand(s *store) *cobra.Command {
	var a agent
	var replace bool
	c := &cobra.Command{
		Use:   "save NAME",
		Short: "Save the observed state of the node and the model of its agent",
		Example: `  felixctl snapshot save before
  felixctl snapshot save before --lab lab/node1`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			// Before the node is read: a wrong name needs no waiting.
			if _, err := s.path(args[0]); err != nil {
				return err
			}
			return a.call(c.Context(), func(ctx context.Context) error {
				r, err := a.read(ctx, live.Options{Services: true})
				if err != nil {
					return err
				}
				state, err := live.Parse(r.parts)
				if err != nil {
					return err
				}
				path, err := s.save(&Snapshot{Version: snapshotVersion, Name: args[0], At: time.Now(), Model: r.model, Parts: r.parts}, replace)
				if err != nil {
					return err
				}
				_, err = fmt.Fprintf(c.OutOrStdout(), "saved %s: %s, %s, %s (%s)\n", args[0], r.model.Node, r.model.Backend, counted(state), path)
				if r.busy {
					fmt.Fprintln(c.ErrOrStderr(), "the agent was programming all the while: the snapshot may be half of one state and half of another")
				}
				return err
			})
		},
	}
	a.flags(c)
	c.Flags().BoolVar(&replace, "replace", false, "replace a snapshot of that name")
	return c
}

// counted prints the size of a state.
func counted(s *dump.State) string {
	n := s.Count()
	text := fmt.Sprintf("%d rules in %d chains, %d sets with %d elements", n.Rules, n.Chains, n.Sets, n.Elements)
	if n.Flows > 0 {
		text += fmt.Sprintf(", %d flows", n.Flows)
	}
	return text
}

// saved is a snapshot in a list.
type saved struct {
	Name    string    `json:"name"`
	At      time.Time `json:"at"`
	Node    string    `json:"node"`
	Backend string    `json:"backend"`
}

func listCommand(s *store) *cobra.Command {
	output := terminal.Text
	c := &cobra.Command{
		Use:   "list",
		Short: "List the snapshots, the newest last",
		Example: `  felixctl snapshot list
  felixctl snapshot list -o json`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			all, unreadable := s.list()
			list := []saved{}
			for _, one := range all {
				list = append(list, saved{one.Name, one.At, one.Model.Node, one.Model.Backend})
			}
			out := c.OutOrStdout()
			err := output.Print(out, list, func() error {
				if len(list) == 0 && unreadable == nil {
					_, err := fmt.Fprintf(out, "no snapshots in %s (felixctl snapshot save NAME makes one)\n", s.dir)
					return err
				}
				t := terminal.NewTable(terminal.StyleFor(out), "NAME", "SAVED", "NODE", "BACKEND")
				for _, one := range list {
					t.Row(one.Name, one.At.Format(time.DateTime), one.Node, one.Backend)
				}
				_, err := fmt.Fprintln(out, t)
				return err
			})
			return errors.Join(err, unreadable)
		},
	}
	output.Flag(c)
	return c
}

func showCommand(s *store) *cobra.Command {
	var how shown
	var output terminal.Output
	c := &cobra.Command{
		Use:     "show NAME",
		Short:   "Show a snapshot as felixctl dump shows a node",
		Example: "  felixctl snapshot show before",
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			options, err := how.options()
			if err != nil {
				return err
			}
			one, err := s.load(args[0])
			if err != nil {
				return err
			}
			if output == terminal.Native {
				for _, p := range one.Parts {
					fmt.Fprintf(c.OutOrStdout(), "# %s\n%s", p.Command, p.Text)
				}
				return nil
			}
			state, err := live.Parse(one.Parts)
			if err != nil {
				return err
			}
			return (&side{title: "snapshot " + one.Name, state: state, model: one.Model}).print(c.OutOrStdout(), output, options)
		},
	}
	how.flags(c)
	output.Flag(c, terminal.Text, terminal.Native, terminal.JSON, terminal.YAML)
	return c
}

func deleteCommand(s *store) *cobra.Command {
	return &cobra.Command{
		Use:     "delete NAME...",
		Short:   "Delete snapshots",
		Example: "  felixctl snapshot delete before after",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			var errs []error
			for _, name := range args {
				errs = append(errs, s.delete(name))
			}
			return errors.Join(errs...)
		},
	}
}
