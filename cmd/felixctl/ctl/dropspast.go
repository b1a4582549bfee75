package ctl

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/felixlike/felixlike/felixlike/control"
)

// historyTimeout bounds the agent's answer.
const historyTimeout = 10 * time.Second

// past prints what was denied in the time before now.
func (r *dropsRequest) past(c *cobra.Command) error {
	if r.since <= 0 {
		return fmt.Errorf("--since: %s is not positive", r.since)
	}
	ctx, cancel := context.WithTimeout(c.Context(), historyTimeout)
	defer cancel()
	agent := control.NewClient(r.Socket())
	if err := namespaceExists(ctx, agent, r.filter.Namespace); err != nil {
		return r.explain(err)
	}
	h, err := agent.DropHistory(ctx)
	if err != nil {
		return r.explain(err)
	}
	warnAboutClosed(ctx, agent, c.ErrOrStderr())
	warnOfAbsentPod(ctx, agent, r.filter.Pod, c.ErrOrStderr())
	begin := time.Now().Add(-r.since)
	switch {
	case h.From.IsZero():
		return fmt.Errorf("no denied packet was reported so far: %s", cmp.Or(h.Fault, "the agent begins"))
	case h.From.After(begin):
		fmt.Fprintf(c.ErrOrStderr(), "not all that was denied before %s is known\n", h.From.Local().Format(time.TimeOnly))
	}
	if h.Fault != "" {
		fmt.Fprintf(c.ErrOrStderr(), "denied packets are not reported now: %s\n", h.Fault)
	}
	s := sums{past: true}
	s.AddHistory(h, r.filter, begin)
	return r.show(&s, c.OutOrStdout())
}
