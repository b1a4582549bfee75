package ctl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/denied"
	"github.com/felixlike/felixlike/internal/terminal"
	"github.com/felixlike/felixlike/model"
)

// stagedDrop are connections that a staged policy would have denied.
type stagedDrop struct {
	control.Drop
	Connections uint64    `json:"connections"`
	Last        time.Time `json:"last"`
}

// printStaged prints the connections that staged policies would have denied, and returns ErrDenied if there are any.
func (r *dropsRequest) printStaged(c *cobra.Command) error {
	if c.Flags().Changed("since") && r.since <= 0 {
		return fmt.Errorf("--since: %s is not positive", r.since)
	}
	ctx, cancel := context.WithTimeout(c.Context(), historyTimeout)
	defer cancel()
	agent := control.NewClient(r.Socket())
	if err := namespaceExists(ctx, agent, r.filter.Namespace); err != nil {
		return r.explain(err)
	}
	status, err := agent.Status(ctx)
	if err != nil {
		return r.explain(err)
	}
	s := status.Staged
	switch {
	case s == nil:
		_, err := fmt.Fprintln(c.ErrOrStderr(), "no staged policy selects a pod")
		return err
	case s.NotEvaluated != "":
		return errors.New("no connection is evaluated by staged policies: " + s.NotEvaluated)
	case s.Last != nil && s.Last.Error != "":
		fmt.Fprintf(c.ErrOrStderr(), "not all connections are evaluated: %s\n", s.Last.Error)
	}
	warnOfAbsentPod(ctx, agent, r.filter.Pod, c.ErrOrStderr())
	m, err := agent.Model(ctx)
	if err != nil {
		return r.explain(err)
	}
	shown, missing := stagedDrops(s, &m, time.Time{})
	if r.since > 0 {
		shown, missing = stagedDrops(s, &m, time.Now().Add(-r.since))
	}
	shown = slices.DeleteFunc(shown, func(d stagedDrop) bool { return !r.filter.Shows(d.Drop) })
	if missing > 0 {
		fmt.Fprintf(c.ErrOrStderr(), "%d older connections of all pods are only counted (felixctl policies --staged)\n", missing)
	}
	if err := r.writeStaged(c.OutOrStdout(), shown); err != nil || len(shown) == 0 {
		return err
	}
	return ErrDenied
}

// stagedDrops returns the connections that are kept of those since a time, the most frequent first, and the number of those that are not. The agent knows
// the name of the pod that the policy selects; the model names the other end, as it is now.
func stagedDrops(s *control.Staged, m *control.Model, since time.Time) (all []stagedDrop, missing uint64) {
	view := viewOf(m)
	for _, p := range s.Policies {
		missing += p.Denied
		for _, f := range p.Flows {
			missing -= min(missing, f.Connections)
			if f.Last.Before(since) {
				continue
			}
			d := stagedDrop{Connections: f.Connections, Last: f.Last, Drop: control.Drop{
				At: f.At, Direction: f.Direction, From: view.End(f.Source), To: view.End(f.Destination), Protocol: f.Protocol.String(), By: control.ByStaged, Policy: p.Policy,
			}}
			own := &d.To
			if f.Direction == model.Egress.String() {
				own = &d.From
			}
			own.Pod, own.Node = f.Pod, ""
			if f.Protocol.IsICMP() {
				kind, code := model.ICMPTypeAndCode(f.Port)
				d.ICMP = &control.ICMPType{Type: kind, Code: code}
			} else {
				d.Port = f.Port
			}
			all = append(all, d)
		}
	}
	slices.SortStableFunc(all, func(a, b stagedDrop) int {
		return cmp.Or(cmp.Compare(b.Connections, a.Connections), cmp.Compare(a.Policy, b.Policy), b.Last.Compare(a.Last))
	})
	return all, missing
}

// viewOf names the addresses of a model.
func viewOf(m *control.Model) *denied.View {
	pods, nodes := map[model.PodID][]netip.Addr{}, map[string]*model.Node{}
	for _, p := range m.Pods {
		pods[p.ID] = p.Addresses
	}
	for _, n := range m.Nodes {
		nodes[n.Name] = n
	}
	return denied.NewView(pods, nil, nodes, m.Node, m.HostAddresses)
}

// timeText returns the local time, with the date if it is older than a day: staged policies count until they change.
func timeText(at, now time.Time) string {
	if now.Sub(at) >= 24*time.Hour {
		return at.Local().Format(time.DateTime)
	}
	return at.Local().Format(time.TimeOnly)
}

func (r *dropsRequest) writeStaged(w io.Writer, all []stagedDrop) error {
	if r.output.ForPrograms() {
		for _, d := range all {
			if err := r.output.PrintLine(w, d, nil); err != nil {
				return err
			}
		}
		return nil
	}
	if len(all) == 0 {
		_, err := fmt.Fprintln(w, "staged policies would have denied nothing that is to be shown")
		return err
	}
	table := terminal.NewTable(terminal.StyleFor(w), "FROM", "TO", "PORT", "DIRECTION", "WOULD BE DENIED BY", "CONNECTIONS", "LAST")
	for _, d := range all {
		table.Row(d.From.String(), d.To.String(), d.PortText(), d.Direction, d.Policy, d.Connections, timeText(d.Last, time.Now()))
	}
	_, err := fmt.Fprintln(w, table)
	return err
}
