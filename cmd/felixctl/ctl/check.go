package ctl

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/felixlike/felixlike/cmd/felixctl/dump"
	"github.com/felixlike/felixlike/cmd/felixctl/dump/wanted"
	"github.com/felixlike/felixlike/cni/install"
	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/report"
	"github.com/felixlike/felixlike/internal/terminal"
	"github.com/felixlike/felixlike/managers"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/ovsdb"
)

func checkCommand() *cobra.Command {
	var t target
	var conflist string
	c := &cobra.Command{
		Use:   "check",
		Short: "Check whether felixlike can work on this node, and whether it does",
		Long: `Check whether felixlike can work on this node, and whether it does. It checks that
the kernel accepts every kind of object of the backend (tried in a network namespace of
its own), the datapath, programs, kernel settings, network configurations of the
container runtime, and other writers of rules. If an agent runs, it checks that all
known objects are in force. Run it before or after the installation; it changes nothing.

Before the installation it takes the settings from --config, the environment and --set.
After it, it checks the backend in force.

Exit codes: 0 all is well, or noted only; 1 something is missing or degraded;
2 the check failed.`,
		Example: `  felixctl check
  felixctl check --config /etc/felixlike/config.yaml
  felixctl check --set backend=openflow --set serviceProxy=full`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			cfg, err := config.Load(c.Flags(), os.Environ())
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(c.Context(), t.timeout)
			defer cancel()
			findings := lookAround(ctx, cfg, control.NewClient(t.Socket()), cmp.Or(cfg.CNIConfDir, "/etc/cni/net.d"), conflist)
			err = t.output.Print(c.OutOrStdout(), findings, func() error {
				table := terminal.NewTable(t.output.Style(c.OutOrStdout()), "RESULT", "WHAT", "DETAIL")
				for _, f := range findings {
					table.Row(painted(t.output.Style(c.OutOrStdout()), f.Level), f.What, f.Detail)
				}
				_, err := fmt.Fprintln(c.OutOrStdout(), table)
				return err
			})
			for _, f := range findings {
				if err == nil && f.Level == install.Missing {
					err = report.ErrFaults
				}
			}
			return err
		},
	}
	config.AddSetFlag(c.Flags())
	t.flags(c, time.Minute)
	t.output.Flag(c)
	c.Flags().StringVar(&conflist, "conflist", "05-felixlike.conflist", "name of felixlike's network configuration in --cni-conf-dir (/etc/cni/net.d if empty)")
	return c
}

// painted colours a level by its severity.
func painted(style terminal.Style, l install.Level) string {
	switch l {
	case install.Good:
		return style.Good(l.String())
	case install.Missing:
		return style.Bad(l.String())
	}
	return l.String()
}

// lookAround returns all findings.
func lookAround(ctx context.Context, cfg *config.Effective, agent *control.Client, confDir, conflist string) []install.Finding {
	var all []install.Finding
	add := func(f install.Finding) { all = append(all, f) }
	inUse := ""
	status, err := agent.Status(ctx)
	switch {
	case control.NotRunning(err):
		add(install.Finding{Level: install.Noted, What: "agent", Detail: "none listens on this node: not installed yet, or not running"})
	case err != nil:
		add(install.Finding{Level: install.Missing, What: "agent", Detail: err.Error()})
	default:
		cfg.Backend = status.Backend
		if status.Underlay != nil {
			inUse = status.Underlay.Datapath
		}
		if status.Underlay != nil && status.Underlay.TrafficMode == model.PolicyOnly {
			cfg.TrafficMode = config.PolicyOnly
		}
		add(agentFinding(status))
		addWarnings(ctx, agent, add)
	}
	if _, err := os.Stat(confDir); err != nil {
		confDir = ""
	}
	o := install.Options{Backend: cfg.Backend, Datapath: cfg.Datapath, InUse: inUse, OVSRunDir: cfg.OVSRunDir, Tunnel: cfg.TunnelInUse(), WireGuardPort: cfg.WireGuardInUse(), SNAT: cfg.SNAT == config.OpenFlow, PolicyOnly: cfg.TrafficMode == config.PolicyOnly, ConfDir: confDir, Conflist: conflist}
	o.Try = func(ctx context.Context) error { return backend.Try(ctx, cfg) }
	o.Inspect(ctx, add)
	_, unreadable := backend.HostsExist(ctx, 0)
	all = append(all, hostPolicies(unreadable, status.Hosts)...)
	if cfg.ServiceProxy == config.ServiceProxyFull {
		all = append(append(all, kubeProxy(ctx)...), apiServers(ctx, cfg.APIServer)...)
	}
	if o.PolicyOnly {
		return append(all, writers(ctx)...)
	}
	if inUse != ovsdb.DatapathNetdev || cfg.WireGuardInUse() != 0 {
		all = append(all, firewalls(ctx, agent, backend.TunnelPortOf(&cfg.Config))...)
	}
	if inUse != ovsdb.DatapathNetdev && cfg.Backend != config.OpenFlow && cfg.Datapath != ovsdb.DatapathNetdev {
		all = append(all, offloadFindings(ctx, cfg.Offload, status.Offload)...)
	}
	return append(all, writers(ctx)...)
}

// offloadFindings says whether packets of established connections skip the host, with the rules of other programs for
// which they do not. Without an agent, now is nil.
func offloadFindings(ctx context.Context, setting string, now *control.Offload) []install.Finding {
	f := install.Finding{Level: install.Good, What: "offload", Detail: "the bridge switches packets of established connections"}
	var why string
	switch {
	case now != nil && now.Setting != config.OffloadOff:
		why = now.Why
	case now != nil || setting != config.OffloadAuto:
		return nil // as configured
	default:
		f.Detail = "no rule of another program has to see packets of established connections"
		why = bypassed(ctx)
	}
	if why != "" {
		f.Level, f.Detail = install.Noted, "packets of established connections take the way through the host: "+why
	}
	return []install.Finding{f}
}

// kubeProxy names what kube-proxy has on the node, which may not be there with serviceProxy full. IPVS is found with the kernel's other settings.
func kubeProxy(ctx context.Context) []install.Finding {
	const what = "kube-proxy"
	var all []install.Finding
	found, err := backend.KubeProxy(ctx, 0)
	for _, detail := range found {
		all = append(all, install.Finding{Level: install.Missing, What: what, Detail: "serviceProxy full works without it only: " + detail})
	}
	if err != nil {
		all = append(all, install.Finding{Level: install.Noted, What: what, Detail: "whether it has rules on this node is unknown: " + err.Error()})
	}
	if len(all) == 0 {
		all = append(all, install.Finding{Level: install.Good, What: what, Detail: "has no table and no chain on this node"})
	}
	return all
}

// apiServers says which of the API servers can be reached without Services. One is enough.
func apiServers(ctx context.Context, servers []string) []install.Finding {
	var all []install.Finding
	for _, at := range servers {
		f := install.Finding{Level: install.Good, What: "API server", Detail: at + " can be reached without Services"}
		conn, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, "tcp", at)
		if err != nil {
			f.Level, f.Detail = install.Noted, fmt.Sprintf("apiServer: %s cannot be reached: %v", at, err)
		} else {
			_ = conn.Close()
		}
		all = append(all, f)
	}
	if len(all) > 0 && !slices.ContainsFunc(all, func(f install.Finding) bool { return f.Level == install.Good }) {
		for i := range all {
			all[i].Level = install.Missing
		}
	}
	return all
}

// hostPolicies says that policies for nodes cannot be in force, if the kernel's tables cannot be read because of err. It matters once there are such policies;
// h is nil without an agent.
func hostPolicies(err error, h *control.Hosts) []install.Finding {
	if err == nil {
		return nil
	}
	f := install.Finding{Level: install.Noted, What: "policies for nodes", Detail: "they need nf_tables under every backend, and cannot be in force here: " + err.Error()}
	if h != nil && len(h.Policies) > 0 {
		f.Level, f.Detail = install.Missing, "this node is open: "+strings.Join(h.Policies, ", ")+": "+f.Detail
	}
	return []install.Finding{f}
}

// bypassed returns why packets of established connections would not skip the host, or "".
func bypassed(ctx context.Context) string {
	b := backend.NewBypassed(0)
	defer b.Close()
	found, err := b.Find(ctx, true)
	switch {
	case err != nil:
		return "whether rules of other programs have to see them is not known: " + err.Error()
	case len(found) > 0:
		return "rules of other programs have to see them: " + strings.Join(found, "; ")
	}
	return ""
}

// firewalls names the chains of other programs that drop the tunnel's packets of nodes.
func firewalls(ctx context.Context, agent *control.Client, port uint16) []install.Finding {
	const what = "tunnel port"
	if port == 0 {
		return nil // the tunnel has none
	}
	var ends managers.Ends
	if m, err := agent.Model(ctx); err == nil {
		ends = managers.EndsOf(m.Node, m.Nodes)
	}
	chains, packet, err := backend.DroppingTunnel(0, port, ends, false)
	if err != nil {
		return []install.Finding{{Level: install.Noted, What: what, Detail: fmt.Sprintf("whether other programs drop packets to it is unknown: %v", err)}}
	}
	var all []install.Finding
	for _, c := range chains {
		all = append(all, install.Finding{
			Level: install.Missing, What: what,
			Detail: fmt.Sprintf("%s drops packets of other nodes to UDP port %d; add a rule: %s", c, port, c.Accepting(packet)),
		})
	}
	if len(all) == 0 {
		all = append(all, install.Finding{Level: install.Good, What: what, Detail: fmt.Sprintf("no known chain of nftables drops packets of other nodes to UDP port %d", port)})
	}
	return all
}

// addWarnings names pods that the backend in force may close because of its bounds.
func addWarnings(ctx context.Context, agent *control.Client, add func(install.Finding)) {
	m, err := agent.Model(ctx)
	if err == nil {
		var state *dump.State
		if state, err = wanted.Of(&m, ""); err == nil {
			for _, warning := range wanted.Warnings(&m, state) {
				add(install.Finding{Level: install.Noted, What: "policies", Detail: warning})
			}
			return
		}
	}
	add(install.Finding{Level: install.Noted, What: "policies", Detail: "cannot be compared with the bounds of the backend: " + err.Error()})
}

func agentFinding(s control.Status) install.Finding {
	f := install.Finding{Level: install.Good, What: "agent", Detail: fmt.Sprintf("version %s, backend %s: all that it knows is in force", s.AgentVersion, s.Backend)}
	switch {
	case !report.Ready(s):
		f.Level, f.Detail = install.Missing, "it is not ready: felixctl status says why"
	case len(s.Problems) > 0:
		f.Level, f.Detail = install.Noted, fmt.Sprintf("all that it knows is in force; %d problems of objects: felixctl status lists them", len(s.Problems))
	}
	return f
}
