package ctl

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/report"
	"github.com/felixlike/felixlike/felixlike/version"
)

// versions are those of felixctl and of the agent of this node.
type versions struct {
	Client string `json:"client"`
	// Agent is empty if none runs; Reason is the reason for no answer.
	Agent  string `json:"agent,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Skew compares the two versions: "none", "supported" or "unsupported".
	Skew string `json:"skew,omitempty"`
}

func versionCommand() *cobra.Command {
	var t target
	c := &cobra.Command{
		Use:   "version",
		Short: "Show the versions of felixctl and of this node's agent, and whether they fit",
		Long: `Show the versions of felixctl and of this node's agent, and whether they fit.
Versions fit if they are at most one minor version apart.

Exit codes: 0 they fit, or no agent could be asked; 1 they do not fit.`,
		Example: `  felixctl version
  felixctl version -o json
  kubectl felixlike --node worker-1 version`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			v := versions{Client: version.String()}
			err := t.call(c.Context(), func(ctx context.Context, agent *control.Client) error {
				s, err := agent.Status(ctx)
				v.Agent = s.AgentVersion
				return err
			})
			if err != nil {
				v.Agent, v.Reason = "", err.Error()
			} else {
				v.Skew = skew(v.Client, v.Agent)
			}
			if err := t.output.Print(c.OutOrStdout(), v, func() error { return v.print(c) }); err != nil {
				return err
			}
			if v.Skew == skewUnsupported {
				return report.ErrFaults
			}
			return nil
		},
	}
	t.flags(c, 5*time.Second)
	t.output.Flag(c)
	return c
}

// Values of versions.Skew.
const skewNone, skewSupported, skewUnsupported = "none", "supported", "unsupported"

func skew(client, agent string) string {
	switch same, supported := version.Skew(client, agent); {
	case same:
		return skewNone
	case supported:
		return skewSupported
	}
	return skewUnsupported
}

func (v versions) print(c *cobra.Command) error {
	agent, skew := v.Agent, v.Skew
	if v.Reason != "" {
		agent, skew = "unknown: "+v.Reason, "unknown"
	}
	if v.Skew == skewUnsupported {
		skew += ": use the felixctl of the agent's version"
	}
	_, err := fmt.Fprintf(c.OutOrStdout(), "client: %s\nagent:  %s\nskew:   %s\n", v.Client, agent, skew)
	return err
}
