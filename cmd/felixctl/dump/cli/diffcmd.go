package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/felixlike/felixlike/cmd/felixctl/dump"
	"github.com/felixlike/felixlike/cmd/felixctl/dump/compare"
	"github.com/felixlike/felixlike/internal/terminal"
)

// verdictsView is the view that can compare two backends.
const verdictsView = "verdicts"

// differing is one run of diff.
type differing struct {
	sides  sides
	shown  shown
	view   string
	output terminal.Output
}

func diffCommand() *cobra.Command {
	d := &differing{}
	c := &cobra.Command{
		Use:   "diff A B",
		Short: "Show the differences of two states: by object, as text, or by verdicts of packets",
		Long: `Show the differences of two states. A and B are any of:

` + sidesHelp + `

--view structure  chains, rules, elements and flows added, removed, moved, edited
--view text       a unified diff of the tools' own language, in a fixed order
--view verdicts   the pods, nodes and addresses that can reach each other on one side
                  and not on the other, found by following packets through both
                  states; the default for sides of two backends. If none differs, it
                  tries to prove it for all packets, as felixctl prove does, for up to
                  20 s on one processor. The answer says whether it is proved, or a
                  sample (-o json: sample, packets). A difference that only the proof
                  finds is exit code 1 as well

Counters, order, handles, timestamps and flows that the switch learns from traffic
are no difference. Hashes are shown with the names of their policies, rules and pods.

Exit codes: 0 the same; 1 different; 2 wrong usage, or the command failed.`,
		Example: `  felixctl snapshot save before; ...; felixctl diff before live
  felixctl diff live wanted
  felixctl diff live ./manifests
  felixctl diff live backend:openflow
  felixctl diff backend:nftables backend:openflow --view verdicts`,
		Args: cobra.ExactArgs(2),
		RunE: func(c *cobra.Command, args []string) error { return d.run(c, args) },
	}
	d.sides.agent.AllNodes = true
	d.sides.flags(c)
	d.shown.flags(c)
	c.Flags().StringVar(&d.view, "view", "", "structure, text or verdicts (default: structure; verdicts for sides of two backends)")
	d.output.Flag(c, terminal.Text, terminal.Markdown, terminal.JSON, terminal.YAML)
	terminal.Complete(c, "view", "structure", "text", verdictsView)
	return c
}

func (d *differing) run(c *cobra.Command, args []string) error {
	options, err := d.shown.options()
	if err != nil {
		return err
	}
	views := map[string]func(context.Context, *side, *side, compare.Options) (report, error){
		"structure": structureOf, "text": textOf, "verdicts": verdictsOf,
	}
	if _, known := views[d.view]; !known && d.view != "" {
		return fmt.Errorf("--view: %q is not one of structure, text, verdicts", d.view)
	}
	d.sides.in, d.sides.everything = c.InOrStdin(), !d.shown.onlyOurs
	return d.sides.agent.call(c.Context(), func(ctx context.Context) error {
		stop := terminal.Progress(c.ErrOrStderr(), terminal.Doing("comparing"))
		both, err := d.sides.pair(ctx, [2]string{args[0], args[1]})
		var r report
		if err == nil {
			err = d.check(both)
		}
		if err == nil {
			r, err = views[d.view](ctx, both[0], both[1], options)
		}
		stop()
		if err != nil {
			return err
		}
		for _, s := range both {
			if s.busy {
				fmt.Fprintf(c.ErrOrStderr(), "%s: the agent was programming all the while, so this may be half of one state and half of another\n", s.title)
			}
		}
		if err := d.print(c.OutOrStdout(), both, r); err != nil {
			return err
		}
		if r.different() {
			return ErrDifferent
		}
		return nil
	})
}

// check refuses a comparison of nothing, and chooses the view if none was given.
func (d *differing) check(both [2]*side) error {
	for _, s := range both {
		ours := compare.Canonical(s.state, compare.Options{OnlyOurs: d.shown.onlyOurs}).Count()
		if d.shown.onlyOurs && ours.Rules+ours.Flows+ours.Sets == 0 && s.state.Count() != ours {
			return fmt.Errorf("%s: it has no objects of felixlike: --only-ours=false compares those of other programs", s.title)
		}
	}
	a, b := kindsOf(both[0]), kindsOf(both[1])
	unlike := a != "" && b != "" && a != b
	var known bool
	for _, s := range both {
		known = known || s.model != nil
	}
	switch {
	case unlike && d.view == "" && known:
		d.view = verdictsView
	case unlike && d.view != verdictsView:
		return fmt.Errorf("%s has %s and %s has %s: compare the verdicts on packets (--view verdicts)", both[0].title, a, both[1].title, b)
	case d.view == "":
		d.view = "structure"
	}
	return nil
}

// kindsOf describes the programmed objects of a state, such as "policy flows"; "" if it has none.
func kindsOf(s *side) string {
	state := compare.Canonical(&dump.State{Tables: s.state.Tables}, compare.Options{OnlyOurs: true})
	for _, t := range state.Tables {
		switch {
		case t.Dialect.String() == "iptables":
			return "rules of iptables"
		case t.Name == "felixlike":
			return "rules of nftables"
		case t.Name == "felixlike-openflow":
			return "policy flows"
		}
	}
	return ""
}

// document is a report as JSON.
type document struct {
	Before    string `json:"before"`
	After     string `json:"after"`
	Different bool   `json:"different"`
	View      string `json:"view"`
	Report    report `json:"report"`
}

func (d *differing) print(w io.Writer, both [2]*side, r report) error {
	return d.output.Print(w, document{both[0].title, both[1].title, r.different(), d.view, r}, func() error { return d.printText(w, both, r) })
}

func (d *differing) printText(w io.Writer, both [2]*side, r report) error {
	if d.output == terminal.Markdown {
		if _, err := fmt.Fprintf(w, "## %s → %s\n\n", both[0].title, both[1].title); err != nil {
			return err
		}
		return r.markdown(w)
	}
	style := terminal.StyleFor(w)
	if _, err := fmt.Fprintf(w, "%s\n%s\n\n", style.Faint("- "+both[0].title), style.Faint("+ "+both[1].title)); err != nil {
		return err
	}
	return r.text(w, style)
}
