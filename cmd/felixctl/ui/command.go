package ui

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/felixlike/felixlike/cmd/felixctl/agentflag"
	"github.com/felixlike/felixlike/cmd/felixctl/labs"
)

// CommandName is the name of the command.
const CommandName = "ui"

// options are the flags.
type options struct {
	port int
	once bool
	out  string
}

// Command returns `felixctl ui` for the agents that access reaches.
func Command(access Access) *cobra.Command {
	o := &options{}
	c := &cobra.Command{
		Use:   CommandName + " [--once --out FILE]",
		Short: "Show the cluster in a browser: health, who reaches whom, one pod, why, denied packets",
		Long: `Show the cluster in a browser, until it is interrupted. It prints the address of the pages, which listen on
127.0.0.1 and need the token in that address. It asks the agents by the commands of felixctl,
installs nothing, and changes nothing in the cluster.

  /             health, nodes, closed pods, denied packets a second
  /matrix       who reaches whom, by class of pods or namespace; with ?backend=NAME a frame around each
                cell where that backend would give a packet another verdict than the programmed state
  /pod/NS/NAME  who reaches a pod, and whom it reaches, with the deciding rules
  /why          a packet, step by step (felixctl trace); in a lab, a button sends it
  /denied       denied packets of the last hour
  /what-if      the effect of a change of policies (felixctl preview)
  /policies     the rules and their counters
  /backends     what each node has programmed; with ?prove=wanted, or the name of a backend, whether it
                gives all packets the same verdicts

--once writes one file with health, matrix, denied packets and policies, and ends.

Exit codes: 0 interrupted, or the file is written; 2 the command failed, or a node gave no answer: the file
says so.`,
		Example: `  felixctl ui --lab demo
  kubectl felixlike ui
  kubectl felixlike ui --once --out report.html`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			if o.once != (o.out != "") {
				return errors.New("--once and --out FILE belong together")
			}
			if o.once {
				return o.report(ctx, &source{access: access, life: ctx})
			}
			return o.serve(ctx, access, c.OutOrStdout())
		},
	}
	c.Flags().IntVar(&o.port, "port", 0, "port on 127.0.0.1 (0: any that is free)")
	c.Flags().BoolVar(&o.once, "once", false, "write one file, and end")
	c.Flags().StringVar(&o.out, "out", "", "`FILE` that --once writes")
	return c
}

// LocalCommand returns `felixctl ui` for a lab or for the agent of this node. The pages run these commands; lab finds felixlab.
func LocalCommand(commands func() []*cobra.Command, lab func() (string, error)) *cobra.Command {
	t := &agentflag.Target{WholeLab: true}
	c := Command(local{t, commands, lab, nodeTimeout})
	t.Flags(c)
	c.Flags().StringVar(&t.Root, "lab-root", labs.Root(), "folder of the labs (or "+labs.RootVariable+" of the environment)")
	c.AddCommand(dataCommand())
	return c
}

// report writes the file of --once.
func (o *options) report(ctx context.Context, s *source) error {
	now, err := s.get(ctx)
	if err != nil {
		return err
	}
	if err := o.write(ctx, now); err != nil {
		return err
	}
	if now.Fault != "" {
		return fmt.Errorf("%s has no verdicts: %s", o.out, now.Fault)
	}
	missing := 0
	for _, n := range now.Nodes {
		if n.Fault != "" {
			missing++
		}
	}
	if missing > 0 {
		return fmt.Errorf("%s is written without %d of %d nodes, which gave no answer", o.out, missing, len(now.Nodes))
	}
	return nil
}

// write puts the report in place of a regular file, or of none, when it is whole. Only the user may read it.
func (o *options) write(ctx context.Context, now *snapshot) error {
	if info, err := os.Lstat(o.out); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("%s: not a regular file", o.out)
	}
	file, err := os.CreateTemp(filepath.Dir(o.out), ".felixctl-*") // with mode 0600
	if err != nil {
		return err
	}
	if err := errors.Join(writeReport(ctx, file, now), file.Close()); err != nil {
		return errors.Join(err, os.Remove(file.Name()))
	}
	if err := os.Rename(file.Name(), o.out); err != nil {
		return errors.Join(err, os.Remove(file.Name()))
	}
	return nil
}

// serve serves the pages until ctx ends.
func (o *options) serve(ctx context.Context, access Access, out io.Writer) error {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", o.port))
	if err != nil {
		return err
	}
	s, err := newServer(ctx, access, l.Addr().String())
	if err != nil {
		return errors.Join(err, l.Close())
	}
	// The token is in it: whoever reads it can see the pages.
	if _, err := fmt.Fprintf(out, "http://%s/?token=%s\n", s.host, s.token); err != nil {
		return errors.Join(err, l.Close())
	}
	server := &http.Server{Handler: s, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: pageTimeout, BaseContext: func(net.Listener) context.Context { return ctx }}
	done := context.AfterFunc(ctx, func() { _ = server.Close() }) // the listener goes with it
	defer done()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
