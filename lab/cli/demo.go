package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/felixlike/felixlike/deploy/examples"
	"github.com/felixlike/felixlike/lab"
	"github.com/felixlike/felixlike/model"
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
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) (err error) {
			family, err := o.parseFamily()
			if err != nil {
				return err
			}
			ctx, cancel := interruptible(c.Context())
			defer cancel()
			d := &demo{out: c.OutOrStdout(), style: styleFor(c.OutOrStdout()), family: family, timeout: o.timeout, start: time.Now()}
			d.say("1. Two nodes, six pods", "Network namespaces, an Open vSwitch and an agent each, joined by a "+o.config.Tunnel+" tunnel.")
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
	style   style
	lab     *lab.Lab
	family  model.Family
	timeout time.Duration
	start   time.Time
	wrong   int
}

func (d *demo) say(title, text string) {
	fmt.Fprintf(d.out, "\n%s\n%s\n\n", d.style.head(title), d.style.faint(text))
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

// finish shows the rules of a pod and judges the run.
func (d *demo) finish(ctx context.Context) error {
	pod := model.PodID{Namespace: "shop", Name: "web"}
	d.say("5. The rules of pod "+pod.String(), "As the kernel has them: chains, hashes and counters.")
	if err := d.showRules(ctx, pod); err != nil {
		return err
	}
	if d.wrong > 0 {
		return fmt.Errorf("%s: %w", plural(d.wrong, "wrong cell"), ErrDisagreement)
	}
	fmt.Fprintf(d.out, "\n%s\n", d.style.good("Every probe went as the policies say."))
	return nil
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
	rows := [][]string{{"POD", "NODE", "ADDRESSES", "SERVES"}}
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
		rows = append(rows, []string{p.Namespace + "/" + p.Name, p.Spec.NodeName, strings.Join(ips, " "), strings.Join(ports, " ")})
	}
	rows = append(rows, []string{allowedHost, "outside", "", ""}, []string{exceptedHost, "outside", "", ""})
	return printTable(d.out, rows)
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
	took := time.Since(begin).Round(100 * time.Millisecond)
	if err := ctx.Err(); err != nil {
		return err
	}
	if full {
		if err := m.Print(d.out); err != nil {
			return err
		}
	}
	wrong := m.Wrong()
	d.wrong += len(wrong)
	through, probed := m.Counts()
	summary := d.style.good("all as expected")
	if len(wrong) > 0 {
		summary = d.style.bad(plural(len(wrong), "cell") + " wrong")
	}
	fmt.Fprintf(d.out, "%d of %d probes through, %s (%s, timeout %s)\n", through, probed, summary, took, d.timeout)
	for i, c := range wrong {
		if i == maxShown {
			break
		}
		fmt.Fprintf(d.out, "  %s -> %s %s: expected %s, %s\n", c.Probe.From, c.Probe.To,
			Port{Protocol: c.Probe.Protocol, Port: c.Probe.Port}, verdict(c.Expected), c.Reason)
	}
	return nil
}
