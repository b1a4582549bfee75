package cluster

import (
	"cmp"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/report"
	"github.com/felixlike/felixlike/felixlike/version"
	"github.com/felixlike/felixlike/internal/terminal"
)

// nodeVersion is the version of a node's agent.
type nodeVersion struct {
	Node  string `json:"node"`
	Agent string `json:"agent,omitempty"`
	// Switch is the version of the pod that runs Open vSwitch; empty if the node has its own.
	Switch string `json:"openVSwitchPod,omitempty"`
	// Pending is true if the agent's pod has another version than that of Open vSwitch.
	Pending bool `json:"openVSwitchPending,omitempty"`
	// Fault is the reason why the agent did not answer.
	Fault string `json:"fault,omitempty"`
	// Fits is true if the versions of felixctl and agent fit.
	Fits bool `json:"fits"`
}

func (t target) versionCommand() *cobra.Command {
	output := terminal.Text
	c := &cobra.Command{
		Use:   "version",
		Short: "Show the agents' versions, and whether this felixctl fits",
		Long: `Show the agents' versions, and whether this felixctl fits: versions fit if they are at most
one minor version apart. OPEN VSWITCH is the version of the pod that runs it: an upgrade leaves
this pod alone until you delete it.

Exit codes: 0 all fit; 1 one does not; 2 a node gave no answer.`,
		Example: "  kubectl felixlike version",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			replies, err := t.ask(c.Context(), c.ErrOrStderr(), "status", "-o", "json")
			if err != nil {
				return err
			}
			switches, err := t.switches(c.Context())
			if err != nil {
				return err
			}
			client := version.String()
			var nodes []nodeVersion
			missing, bad := 0, false
			for _, r := range replies {
				var s control.Status
				v := nodeVersion{Node: r.Node, Switch: switches[r.Node].Labels[versionLabel]}
				v.Pending = v.Switch != "" && r.Version != "" && v.Switch != r.Version
				if r.decode(&s) {
					v.Agent = s.AgentVersion
					_, v.Fits = version.Skew(client, v.Agent)
					bad = bad || !v.Fits
				} else {
					missing++
				}
				v.Fault = r.Fault
				nodes = append(nodes, v)
			}
			err = output.Print(c.OutOrStdout(), map[string]any{"client": client, "nodes": nodes}, func() error { return printVersions(c.OutOrStdout(), client, nodes) })
			switch {
			case err != nil:
				return err
			case missing == 0 && bad:
				return report.ErrFaults
			}
			return errNoAnswer(missing, len(nodes))
		},
	}
	output.Flag(c)
	return c
}

func printVersions(w io.Writer, client string, nodes []nodeVersion) error {
	table := terminal.NewTable(terminal.StyleFor(w), "NODE", "AGENT", "OPEN VSWITCH", "FITS")
	var pending []string
	for _, n := range nodes {
		fits := "NO: use the felixctl of the agent's version"
		switch {
		case n.Fault != "":
			n.Agent, fits = "-", "NO ANSWER: "+n.Fault
		case n.Fits:
			fits = "yes"
		}
		if n.Pending {
			pending = append(pending, n.Node)
		}
		table.Row(n.Node, n.Agent, cmp.Or(n.Switch, "-"), fits)
	}
	if _, err := fmt.Fprintf(w, "felixctl %s\n%s\n", client, table); err != nil || len(pending) == 0 {
		return err
	}
	_, err := fmt.Fprintf(w, "Open vSwitch runs in a pod of another version on %s: delete these pods one by one when traffic may pause "+
		"(docs/install/upgrade.md)\n", named(pending, len(nodes)))
	return err
}
