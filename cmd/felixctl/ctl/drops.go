package ctl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/report"
	"github.com/felixlike/felixlike/internal/terminal"
	"github.com/felixlike/felixlike/model"
)

// dropsRequest has the values of the flags.
type dropsRequest struct {
	target
	follow bool
	// staged shows what staged policies would have denied, instead.
	staged        bool
	listen, since time.Duration
	filter        report.DropFilter
}

func dropsCommand() *cobra.Command {
	var r dropsRequest
	c := &cobra.Command{
		Use:   "drops [--since TIME | --follow]",
		Short: "Show the packets that policy denies on this node, with both ends and the policies",
		Long: `Show the packets that policy denies on this node, with both ends and the
policies. It listens for ten seconds (--for) and prints the sums. With --since it
prints the sums of the last minutes, at most of the last hour. With --follow it prints
each packet as it comes, until it is interrupted.

DIRECTION is that of the policy: egress of the source, or ingress of the
destination. A packet that no policy allows to or from a pod which policies isolate is
denied by all of these; a policy without rules is one of them.

It shows packets that policy denies, not packets dropped as invalid or forged. With
serviceProxy: full it also shows connections to a Service without an endpoint, without
one on this node (policy Local), or from outside its source ranges.
Connections that were allowed go on and are not judged. The dataplane reports about
100 packets a second at most on this node, so of a flood only a part. Packets not
shown are counted if their number is known. Reporting does not change the verdicts.

--staged shows the connections that staged policies (annotation felixlike.io/enforce: "no")
would have denied, and that were not: for each policy the last 64 that differ in more than
time and source port. It does not listen, and --since may be longer than an hour.

Exit codes: 0 nothing was denied, or --follow was interrupted; 1 something was
denied, or with --staged would have been; 2 the command failed.`,
		Example: `  felixctl drops
  felixctl drops --since 15m
  felixctl drops --for 1m --pod shop/db
  felixctl drops --staged
  felixctl drops --follow --direction egress -o json`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return r.run(c) },
	}
	r.AllNodes = true
	r.Flags(c)
	r.output.Flag(c, terminal.Text, terminal.JSON, terminal.YAML)
	c.Flags().Lookup("output").Usage += streamUsage
	c.Flags().BoolVar(&r.follow, "follow", false, "print packets as they come, until interrupted")
	c.Flags().DurationVar(&r.listen, "for", 10*time.Second, "listen for so long; with --follow, end then")
	c.Flags().DurationVar(&r.since, "since", 0, "show what was denied in the time before now, at most an hour (--staged: any time), and do not listen")
	c.Flags().BoolVar(&r.staged, "staged", false, "show the connections that staged policies would have denied, and do not listen")
	c.MarkFlagsMutuallyExclusive("since", "for")
	c.MarkFlagsMutuallyExclusive("staged", "for")
	c.MarkFlagsMutuallyExclusive("staged", "follow")
	c.MarkFlagsMutuallyExclusive("since", "follow")
	c.Flags().StringVar(&r.filter.Pod, "pod", "", "only packets from or to this pod (namespace/name, or with --namespace its name)")
	c.Flags().StringVarP(&r.filter.Namespace, "namespace", "n", "", "only packets from or to pods of this namespace")
	c.Flags().StringVar(&r.filter.Direction, "direction", "", "only packets that policies of this direction deny: ingress or egress")
	r.PodFlag(c, "pod")
	r.NamespaceFlag(c, "namespace")
	terminal.Complete(c, "direction", model.Ingress.String(), model.Egress.String())
	return c
}

// streamUsage says how the formats for programs print many objects.
const streamUsage = "; json: an object a line, yaml: a document an object"

// ErrDenied makes the exit code say that something was denied.
var ErrDenied = errors.New("policy has denied packets")

func (r *dropsRequest) run(c *cobra.Command) error {
	if f := &r.filter; f.Pod != "" && f.Namespace != "" && !strings.Contains(f.Pod, "/") {
		f.Pod = f.Namespace + "/" + f.Pod
	}
	if err := r.filter.Check(); err != nil {
		return fmt.Errorf("--%w", err)
	}
	if r.listen <= 0 {
		return fmt.Errorf("--for: %s is not positive", r.listen)
	}
	if r.staged {
		return r.printStaged(c)
	}
	if c.Flags().Changed("since") {
		return r.past(c)
	}
	ctx, stop := signal.NotifyContext(c.Context(), unix.SIGINT, unix.SIGTERM)
	defer stop()
	ctx, limit := r.limited(ctx, !r.follow || c.Flags().Changed("for"))
	defer limit.end(nil)
	ctx, hungUp := context.WithCancel(ctx)
	defer hungUp()
	if file, ok := terminal.File(c.OutOrStdout()); ok {
		go untilHangup(ctx, file, hungUp)
	}
	if err := namespaceExists(ctx, control.NewClient(r.Socket()), r.filter.Namespace); err != nil {
		return r.explain(err)
	}
	if r.follow {
		return r.stream(ctx, limit, c)
	}
	return r.collect(ctx, limit, c)
}

// beginTime bounds the wait until the agent reports packets.
const beginTime = 30 * time.Second

// listenLimit bounds the time of listening. That begins when the agent does: the result
// "policy has denied nothing" must not mean that nobody has listened.
type listenLimit struct {
	end   context.CancelCauseFunc
	timer *time.Timer
	time  time.Duration
	begun bool
}

// limited returns a context that ends with errNotBegun if the agent does not begin within
// beginTime. If bounded, it also ends after the time to listen.
func (r *dropsRequest) limited(ctx context.Context, bounded bool) (context.Context, *listenLimit) {
	ctx, end := context.WithCancelCause(ctx)
	l := &listenLimit{end: end, timer: time.AfterFunc(beginTime, func() { end(errNotBegun) })}
	if bounded {
		l.time = r.listen
	}
	return ctx, l
}

// agentBegins notes that the agent reports packets from now on.
func (l *listenLimit) agentBegins() {
	l.begun = true
	l.timer.Stop()
}

// begin begins the time to listen.
func (l *listenLimit) begin() {
	if l.time > 0 {
		l.timer = time.AfterFunc(l.time, func() { l.end(nil) })
	}
}

var errNotBegun = fmt.Errorf("the agent has not begun to report denied packets within %s", beginTime)

// notBegun returns errNotBegun if that ended the context.
func notBegun(ctx context.Context, err error) error {
	if err == nil && errors.Is(context.Cause(ctx), errNotBegun) {
		return errNotBegun
	}
	return err
}

// warnAboutClosed names the closed pods without drop reports: netfilter backends drop the
// packets of quarantined objects in chains that do not report.
func warnAboutClosed(ctx context.Context, agent *control.Client, w io.Writer) {
	s, err := agent.Status(ctx)
	if err != nil || s.Backend == config.OpenFlow {
		return // following works without the status
	}
	for _, q := range s.Quarantined {
		if len(q.Pods) > 0 {
			fmt.Fprintf(w, "closed, without drop reports: %s: %s is quarantined: %s\n", strings.Join(q.Pods, ", "), q.Object(), q.Reason)
		}
	}
}

// stream prints packets as they come.
func (r *dropsRequest) stream(ctx context.Context, limit *listenLimit, c *cobra.Command) error {
	out := c.OutOrStdout()
	lines := newDropLines(out)
	agent := control.NewClient(r.Socket())
	return r.explain(notBegun(ctx, agent.Drops(ctx, func() {
		limit.agentBegins()
		defer limit.begin()
		warnAboutClosed(ctx, agent, c.ErrOrStderr())
		warnOfAbsentPod(ctx, agent, r.filter.Pod, c.ErrOrStderr())
		if !r.output.ForPrograms() {
			fmt.Fprintln(c.ErrOrStderr(), "following denied packets on this node; interrupt to end")
		}
	}, func(d control.Drop) error {
		if !r.filter.Shows(d) {
			return nil
		}
		return r.output.PrintLine(out, d, func() error { return printDrop(lines, d) })
	})))
}

// collect adds packets up for a while.
func (r *dropsRequest) collect(ctx context.Context, limit *listenLimit, c *cobra.Command) error {
	s := sums{}
	progress := func() {}
	agent := control.NewClient(r.Socket())
	err := notBegun(ctx, agent.Drops(ctx, func() {
		limit.agentBegins()
		defer limit.begin()
		warnAboutClosed(ctx, agent, c.ErrOrStderr())
		warnOfAbsentPod(ctx, agent, r.filter.Pod, c.ErrOrStderr())
		fmt.Fprintf(c.ErrOrStderr(), "listening for %s\n", r.listen)
		progress = terminal.Progress(c.ErrOrStderr(), terminal.Doing("listening"))
	}, func(d control.Drop) error {
		if r.filter.Shows(d) {
			s.Add(d, 1, d.At)
		}
		return nil
	}))
	progress()
	if err == nil && !limit.begun {
		err = errors.New("interrupted before the agent began to report denied packets")
	}
	if err != nil {
		return r.explain(err)
	}
	return r.show(&s, c.OutOrStdout())
}

// show prints sums, and returns ErrDenied if there are any.
func (r *dropsRequest) show(s *sums, w io.Writer) (err error) {
	if r.output.ForPrograms() {
		err = s.printLines(w, r.output)
	} else {
		err = s.print(w)
	}
	if err == nil && s.Len() > 0 {
		return ErrDenied
	}
	return err
}

// sums are packets added up.
type sums struct {
	report.DropSums
	// past is set if the packets are not of the time of the command.
	past bool
}

func (s *sums) print(w io.Writer) error {
	if s.Len() == 0 {
		_, err := fmt.Fprintf(w, "policy has denied nothing%s\n", s.missing())
		return err
	}
	heads := []string{"FROM", "TO", "PORT", "DIRECTION", "DENIED BY", "PACKETS"}
	if s.past {
		heads = append(heads, "LAST")
	}
	table := terminal.NewTable(terminal.StyleFor(w), heads...)
	for _, row := range s.Sorted() {
		cells := []any{row.From.String(), row.To.String(), row.PortText(), row.Direction, report.DeniedBy(row.Drop), row.Packets}
		if s.past {
			cells = append(cells, row.Last.Local().Format(time.TimeOnly))
		}
		table.Row(cells...)
	}
	if _, err := fmt.Fprintln(w, table); err != nil || s.NotShown == 0 {
		return err
	}
	_, err := fmt.Fprintf(w, "%d more packets were denied and are not shown: there were too many\n", s.NotShown)
	return err
}

func (s *sums) missing() string {
	if s.NotShown == 0 {
		return ""
	}
	return fmt.Sprintf(" that is to be shown, and %d packets besides that there was no room for", s.NotShown)
}

// printLines prints each row for programs.
func (s *sums) printLines(w io.Writer, as terminal.Output) error {
	for _, row := range s.Sorted() {
		row.SourcePort = 0 // one of many
		if err := as.PrintLine(w, row, nil); err != nil {
			return err
		}
	}
	if s.NotShown > 0 {
		return as.PrintLine(w, control.Drop{At: time.Now(), NotShown: s.NotShown}, nil)
	}
	return nil
}

// newDropLines returns the table of packets that are printed as they come.
func newDropLines(w io.Writer) *terminal.Lines {
	widths := []int{len("15:04:05.000"), 22, 22, len("icmpv6 echo-request"), len("DIRECTION")}
	return terminal.NewLines(w, widths, "TIME", "FROM", "TO", "PORT", "DIRECTION", "DENIED BY")
}

func printDrop(to *terminal.Lines, d control.Drop) error {
	if d.NotShown > 0 {
		return to.Note(fmt.Sprintf("%d more not shown", d.NotShown))
	}
	return to.Row(d.At.Local().Format("15:04:05.000"), d.From.String(), d.To.String(), d.PortText(), d.Direction, report.DeniedBy(d))
}

// untilHangup calls f when the reader of a pipe is gone. A failed write would show it
// as well, but there may be nothing to write.
func untilHangup(ctx context.Context, file *os.File, f func()) {
	const every = 500 * time.Millisecond
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		fds := []unix.PollFd{{Fd: int32(file.Fd())}}
		if n, err := unix.Poll(fds, 0); err == nil && n > 0 && fds[0].Revents&(unix.POLLERR|unix.POLLHUP) != 0 {
			f()
			return
		}
	}
}
