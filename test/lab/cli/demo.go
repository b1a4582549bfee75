package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/felixlike/felixlike/deploy/examples"
	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/internal/terminal"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/lab"
)

// The hosts outside the cluster in the demo: one in each half of the network
// that the ipBlock example names.
const (
	allowedHost  = "ip:203.0.113.10"
	exceptedHost = "ip:203.0.113.200"
)

func (o *options) demoCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "demo",
		Short: "Watch NetworkPolicy being enforced on real packets",
		Example: `  felixctl lab demo
  felixctl lab demo --backend iptables`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) (err error) {
			family, err := o.parseProbe()
			if err != nil {
				return err
			}
			ctx, cancel := interruptible(c.Context())
			defer cancel()
			d := &demo{out: c.OutOrStdout(), style: terminal.StyleFor(c.OutOrStdout()), family: family, timeout: o.timeout, start: time.Now()}
			d.say("1. Two nodes, six pods", "Network namespaces, an Open vSwitch and an agent each, joined by a "+o.config.Tunnel+" tunnel; policy is decided by "+o.config.Backend+".")
			if d.lab, err = o.ownLab(c, "demo-"); err != nil {
				return err
			}
			defer func() {
				err = errors.Join(err, d.lab.Down())
				fmt.Fprintf(d.out, "\nEverything is removed again. %s in all.\n", time.Since(d.start).Round(100*time.Millisecond))
			}()
			return d.run(ctx)
		},
	}
	o.configFlags(c)
	o.probeFlags(c)
	return c
}

// demo is one run of the demonstration.
type demo struct {
	out     io.Writer
	style   terminal.Style
	lab     *lab.Lab
	family  model.Family
	timeout time.Duration
	start   time.Time
	wrong   int
}

func (d *demo) say(title, text string) {
	fmt.Fprintf(d.out, "\n%s\n%s\n\n", d.style.Head(title), d.style.Faint(text))
}

func (d *demo) run(ctx context.Context) error {
	state, err := loadExamples("cluster.yaml")
	if err != nil {
		return err
	}
	begin := time.Now()
	if err := d.lab.SetState(ctx, state); err != nil {
		return err
	}
	fmt.Fprintf(d.out, "up in %s\n", time.Since(begin).Round(100*time.Millisecond))
	if err := d.showPods(); err != nil {
		return err
	}
	d.say("2. Before policy", "Rows ask, columns answer. Every cell is probed with real packets.")
	if err := d.matrix(ctx, true); err != nil {
		return err
	}
	d.say("3. The examples, one after the other", "Each is written into the manifests directory; the agents report when it is programmed.")
	files, err := fs.Glob(examples.Files, "policies/*.yaml")
	if err != nil {
		return err
	}
	for i, file := range files {
		policies, err := loadExamples(file)
		if err != nil {
			return err
		}
		state = state.Merge(policies)
		begin := time.Now()
		if err := d.lab.SetState(ctx, state); err != nil {
			return err
		}
		fmt.Fprintf(d.out, "%-28s programmed in %5s   ", strings.TrimSuffix(path.Base(file), ".yaml"), time.Since(begin).Round(time.Millisecond))
		if i == len(files)-1 {
			fmt.Fprintln(d.out)
			break
		}
		if err := d.matrix(ctx, false); err != nil {
			return err
		}
	}
	d.say("4. After policy", "Expected by the reference evaluator, observed by probes.")
	if err := d.matrix(ctx, true); err != nil {
		return err
	}
	return d.finish(ctx)
}

// finish shows the rules of a pod, changes the backends and judges the run.
func (d *demo) finish(ctx context.Context) error {
	pod := model.PodID{Namespace: "shop", Name: "web"}
	d.say("5. The rules of pod "+pod.String(), "As the node has them, in the language of the backend's own tool, with names behind a #.")
	if err := dumpPod(ctx, d.out, io.Discard, d.lab.Status(ctx), pod.String(), "text"); err != nil {
		return err
	}
	if err := d.backends(ctx, pod, model.PodID{Namespace: "shop", Name: "api"}); err != nil {
		return err
	}
	if d.wrong > 0 {
		return fmt.Errorf("%s: %w", plural(d.wrong, "wrong cell"), ErrDisagreement)
	}
	fmt.Fprintf(d.out, "\n%s\n", d.style.Good("Every probe went as the policies say."))
	return nil
}

// backends changes the backend of all nodes, to each of the others and back,
// while a connection that policy allows is in use.
func (d *demo) backends(ctx context.Context, from, to model.PodID) (err error) {
	d.say("6. The same policies under the other backends", fmt.Sprintf(
		"The backends of all nodes are changed while a connection from %s to %s carries data. Then everything is probed again.", from, to))
	stream, err := openStream(d.lab.Pod(from).Namespace(), netip.AddrPortFrom(d.lab.Pod(to).Address(d.family), 80))
	if err != nil {
		return fmt.Errorf("connect %s to %s: %w", from, to, err)
	}
	defer func() { err = errors.Join(err, stream.close()) }()
	nodes := d.lab.Status(ctx).Nodes
	for _, backend := range tour(nodes[0].Agent) {
		begin := time.Now()
		for _, n := range nodes {
			if err := control.NewClient(n.ControlSocket).SetBackend(ctx, backend); err != nil {
				return fmt.Errorf("%s: %w", n.Name, err)
			}
		}
		fmt.Fprintf(d.out, "%-15s took over in %5s   ", backend, time.Since(begin).Round(time.Millisecond))
		if err := d.matrix(ctx, false); err != nil {
			return err
		}
		trips, slowest, err := stream.since()
		if err != nil {
			return fmt.Errorf("the connection from %s to %s broke (%w): %w", from, to, err, ErrDisagreement)
		}
		fmt.Fprintf(d.out, "%-15s the connection went on: %d round trips, the slowest in %s\n", "", trips, slowest.Round(100*time.Microsecond))
	}
	return nil
}

// tour is every backend once, that in force last.
func tour(a *control.Status) []string {
	all := []string{config.NFTables, config.IPTablesNFT, config.IPTablesLegacy, config.OpenFlow}
	now := 0
	if a != nil {
		now = max(slices.Index(all, a.Backend), 0)
	}
	return append(slices.Clone(all[now+1:]), all[:now+1]...)
}

func loadExamples(name string) (lab.State, error) {
	text, err := examples.Files.ReadFile(name)
	if err != nil {
		return lab.State{}, err
	}
	return lab.Parse(name, text)
}

func (d *demo) showPods() error {
	state := d.lab.State()
	t := terminal.NewTable(d.style, "POD", "NODE", "ADDRESSES", "SERVES")
	for _, p := range state.Pods {
		var ips, ports []string
		for _, ip := range p.Status.PodIPs {
			ips = append(ips, ip.IP)
		}
		for _, c := range p.Spec.Containers {
			for _, cp := range c.Ports {
				proto := strings.ToLower(string(cp.Protocol))
				if proto == "" {
					proto = "tcp"
				}
				ports = append(ports, fmt.Sprintf("%s=%s/%d", cp.Name, proto, cp.ContainerPort))
			}
		}
		t.Row(p.Namespace+"/"+p.Name, p.Spec.NodeName, strings.Join(ips, " "), strings.Join(ports, " "))
	}
	t.Row(allowedHost, "outside")
	t.Row(exceptedHost, "outside")
	_, err := fmt.Fprintln(d.out, t)
	return err
}

// matrix probes everything against everything; in short it prints one line.
func (d *demo) matrix(ctx context.Context, full bool) error {
	state := d.lab.State()
	m, err := NewMatrix(&state, []string{allowedHost, exceptedHost}, nil, d.family)
	if err != nil {
		return err
	}
	begin := time.Now()
	m.Fill(d.lab.Probe(ctx, m.Probes(), d.timeout))
	took := time.Since(begin)
	if err := ctx.Err(); err != nil {
		return err
	}
	if full {
		if err := m.Print(d.out); err != nil {
			return err
		}
	}
	d.wrong += len(m.Wrong())
	return m.Summary(d.out, took, d.timeout)
}
