package cli

import (
	"context"
	"fmt"
	"os/signal"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/internal/terminal"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/lab"
	"github.com/felixlike/felixlike/test/lab/supervisor"
)

// options are the flags that the commands share.
type options struct {
	config  lab.Config
	family  string
	output  terminal.Output
	timeout time.Duration
}

// configFlags adds the flags of commands that make a lab.
func (o *options) configFlags(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&o.config.Agent, "agent", "", "agent binary (default: beside felixctl, or in $PATH)")
	f.StringVar(&o.config.Backend, "backend", "nftables", "policy backend of the agents: "+choices("backend"))
	f.StringVar(&o.config.TrafficMode, "traffic-mode", "encap", "packets between pods of different nodes: "+choices("trafficMode"))
	f.StringVar(&o.config.Datapath, "datapath", "netdev", "OVS datapath: "+choices("datapath"))
	f.StringVar(&o.config.Tunnel, "tunnel", "geneve", "tunnel between the nodes: "+choices("tunnel"))
	f.StringVar(&o.config.LogLevel, "agent-log-level", "info", "log level of the agents: "+choices("logLevel"))
	f.Var(setFlag{&o.config}, "set", "set another setting of the agents by `KEY=VALUE`, for example serviceProxy=full (docs/reference/settings.md); may be repeated")
	for flag, setting := range map[string]string{"backend": "backend", "datapath": "datapath", "tunnel": "tunnel", "agent-log-level": "logLevel"} {
		terminal.Complete(c, flag, config.Choices(setting)...)
	}
}

// setFlag is the flag --set.
type setFlag struct{ *lab.Config }

// Set takes KEY=VALUE.
func (f setFlag) Set(text string) error { return f.Config.Set(text) }

// String returns no text: no setting is set by default.
func (f setFlag) String() string { return "" }

// Type is the word of the help.
func (f setFlag) Type() string { return "KEY=VALUE" }

func choices(setting string) string { return strings.Join(config.Choices(setting), ", ") }

// probeFlags adds the flags of commands that probe.
func (o *options) probeFlags(c *cobra.Command) {
	o.familyFlag(c)
	c.Flags().DurationVar(&o.timeout, "timeout", time.Second, "a probe without an answer for so long counts as blocked")
}

func (o *options) familyFlag(c *cobra.Command) {
	c.Flags().StringVar(&o.family, "family", "4", "address family: 4 or 6")
}

func (o *options) outputFlag(c *cobra.Command) { o.output.Flag(c) }

// listFlag is outputFlag for commands that list something with names.
func (o *options) listFlag(c *cobra.Command) {
	o.output.Flag(c, terminal.Text, terminal.Wide, terminal.Name, terminal.JSON, terminal.YAML)
}

// parseProbe returns the family to probe in, having checked the probe flags.
func (o *options) parseProbe() (model.Family, error) {
	if o.timeout <= 0 {
		return 0, fmt.Errorf("--timeout %s: must be more than nothing", o.timeout)
	}
	return o.parseFamily()
}

func (o *options) parseFamily() (model.Family, error) {
	switch o.family {
	case "4":
		return model.IPv4, nil
	case "6":
		return model.IPv6, nil
	}
	return 0, fmt.Errorf("--family %q: must be 4 or 6", o.family)
}

func (o *options) client() *supervisor.Client {
	return supervisor.NewClient(o.config.Root, o.config.Name)
}

// interruptible returns a context that ends on an interrupt, so that a lab
// that lives in this process is taken down.
func interruptible(ctx context.Context) (context.Context, context.CancelFunc) {
	return signal.NotifyContext(ctx, unix.SIGINT, unix.SIGTERM)
}

// nameFlag is the flag with the name of the lab.
const nameFlag = "name"

// noArgs refuses arguments of a command that takes none. A name of a lab is the usual one.
func noArgs(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return fmt.Errorf("%s takes no argument, and %q is one: a lab is named by --%s %s", c.CommandPath(), args[0], nameFlag, args[0])
}
