// Package cli is `felixctl bench live`. It also has progress, formats and files for the
// other commands of `felixctl bench`, which felixlab runs. Package livebench does the
// work; its tests and test/bench/cli cover this package.
package cli

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/cmd/felixctl/livebench"
	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/model"
)

// Command returns `felixctl bench live`.
func Command() *cobra.Command {
	var cfg livebench.Config
	var from, to, output, out string
	var backends []string
	var change bool
	c := &cobra.Command{
		Use:   "live",
		Short: "Watch the agent of a live node: CPU, memory, programmed changes and their times",
		Long: `Watch the agent of a live node: CPU, memory, programmed changes and their times.

It only reads the agent's status and metrics, and the kernel's counters for the
processes of agent and ovs-vswitchd. Without changes meanwhile there are no times,
and full checks of iptables come every 90 seconds: watch for longer to see some.

With --from, --to and --port, TCP connections are opened between two pods, a
hundred a second at the most, and reset at once. The server has to accept them, and
policy has to allow it. The client has to be on this node, in a network namespace
that is in ` + "/run/netns" + `, where container runtimes put them.

With --switch, the backend is changed under the node's traffic, in turn, as
felixctl backend set does, and changed back at the end, also after an error or an
interrupt. If felixctl is killed, the node stays with the backend it has then,
until the agent restarts.`,
		Example: "  felixctl bench live --for 10m --rounds 3\n" +
			"  felixctl bench live --from shop/web --to shop/api --port 80\n" +
			"  felixctl bench live --switch --backends nftables,openflow --for 1m",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) (err error) {
			if cfg.Switch, err = switched(c, change, backends); err != nil {
				return err
			}
			if cfg.From, err = podFlag("from", from); err != nil {
				return err
			}
			if cfg.To, err = podFlag("to", to); err != nil {
				return err
			}
			if err := CheckOutput(output); err != nil {
				return err
			}
			r, err := watch(c, cfg)
			if err != nil {
				return err
			}
			return Finish(c, r, output, out)
		},
	}
	f := c.Flags()
	f.StringVar(&cfg.Socket, "socket", filepath.Join(config.Defaults().RunDir, control.SocketName), "control socket of the agent")
	f.DurationVar(&cfg.Watch, "for", 30*time.Second, "how long a turn is")
	f.IntVar(&cfg.Rounds, "rounds", 1, "how many turns there are, with --switch for each backend")
	f.StringVar(&from, "from", "", "open connections from this pod of this node: namespace/name")
	f.StringVar(&to, "to", "", "to this pod")
	f.Uint16Var(&cfg.Port, "port", 0, "to this TCP port")
	f.BoolVar(&change, "switch", false, "change the backend of the live node between the turns, and back at the end")
	f.StringSliceVar(&backends, "backends", config.BackendsInForce(), "with --switch: the backends, in turn")
	f.StringVar(&out, "out", "", "also write OUT.json and OUT.md")
	OutputFlag(c, &output)
	return c
}

// switched returns the backends to change to: none without --switch.
func switched(c *cobra.Command, change bool, backends []string) ([]string, error) {
	if !change {
		if c.Flags().Changed("backends") {
			return nil, errors.New("--backends: the backend of a live node is changed with --switch only")
		}
		return nil, nil
	}
	for _, b := range backends {
		if !slices.Contains(config.BackendsInForce(), b) {
			return nil, fmt.Errorf("--backends: backend %q: must be one of %s", b, strings.Join(config.BackendsInForce(), ", "))
		}
	}
	return backends, nil
}

// watch watches until the end or an interrupt.
func watch(c *cobra.Command, cfg livebench.Config) (*livebench.Report, error) {
	cfg.Progress = NewProgress(c.ErrOrStderr())
	cfg.Command = CommandLine(os.Args)
	ctx, cancel := signal.NotifyContext(c.Context(), unix.SIGINT, unix.SIGTERM)
	defer cancel()
	r, err := livebench.Watch(ctx, cfg)
	if control.NotRunning(err) {
		return nil, fmt.Errorf("no agent listens at %s: is it running on this node, or is --socket wrong? (felixctl lab status names the sockets of a lab)", cfg.Socket)
	}
	return r, err
}

// podFlag reads the name of a pod, empty if there is none.
func podFlag(name, text string) (model.PodID, error) {
	if text == "" {
		return model.PodID{}, nil
	}
	id, err := control.ParsePod(text)
	if err != nil {
		return id, fmt.Errorf("--%s: %w", name, err)
	}
	return id, nil
}
