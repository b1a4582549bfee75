package ctl

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/internal/terminal"
)

func servicesCommand() *cobra.Command {
	var t target
	c := &cobra.Command{
		Use:   "services [NAMESPACE/NAME]",
		Short: "Show how this node serves Services, and which endpoints it uses and why",
		Long: `Show how this node serves Services (setting serviceProxy: full), or one Service with
its addresses and endpoints.

INSIDE is for clients in the cluster, OUTSIDE for those outside it, who come by a
node port, an external IP or a load balancer. An endpoint is used, or the column says
why not:

  not ready     the EndpointSlice says so
  terminating   its pod ends, and others are ready
  other zone    all endpoints have hints for zones, and it has none for this one
  other node    the same with hints for nodes
  policy Local  the traffic policy wants endpoints of this node, and it is elsewhere

A star marks endpoints of this node. EMPTY says what happens to connections that have
no endpoint: refuse answers with an ICMP error, drop is silent.

BY is there under openflow: where connections of pods get their endpoint, in the bridge
or, past it, by the host. With a name, a line says why by the host.`,
		Example: `  felixctl services
  felixctl services shop/web
  felixctl services -o json`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			name := ""
			if len(args) > 0 {
				if name = args[0]; strings.Count(name, "/") != 1 {
					return fmt.Errorf("%q: must be namespace/name", name)
				}
			}
			return t.call(c.Context(), func(ctx context.Context, agent *control.Client) error {
				all, err := agent.Services(ctx, name)
				if err != nil {
					return err
				}
				return t.output.Print(c.OutOrStdout(), all, func() error {
					if name != "" && len(all.Services) > 0 {
						return printService(c.OutOrStdout(), all.Services[0], t.output)
					}
					return printServices(c.OutOrStdout(), all, t.output)
				})
			})
		},
	}
	t.AllNodes = true
	t.flags(c, 30*time.Second)
	t.output.Flag(c)
	return c
}

// printServices prints a line for each port.
func printServices(w io.Writer, all control.Services, format terminal.Output) error {
	switch {
	case !all.Proxy:
		_, err := fmt.Fprintf(w, "%s: another program serves Services (serviceProxy: off)\n", all.Node)
		return err
	case len(all.Services) == 0:
		_, err := fmt.Fprintf(w, "%s: no Services\n", all.Node)
		return err
	}
	by := slices.ContainsFunc(all.Services, func(s control.Service) bool { return slices.ContainsFunc(s.Ports, translated) })
	table := terminal.NewTable(format.Style(w), withBy(by, "BY", "SERVICE", "PORT", "ADDRESS", "USED")...)
	var problems strings.Builder
	for _, s := range all.Services {
		for _, p := range s.Ports {
			address, where := "none", ""
			if len(p.Frontends) > 0 {
				address, where = p.Frontends[0].Address.String(), p.Frontends[0].TranslatedBy
			}
			table.Row(cells(withBy(by, cmp.Or(where, "-"), s.Namespace+"/"+s.Name, portName(p), address, usedOf(p)))...)
		}
		writeProblems(&problems, s)
	}
	_, err := fmt.Fprintf(w, "%s\n%s\n%s", all.Node, table, problems.String())
	return err
}

// translated reports whether the agent says who translates addresses of a port.
func translated(p control.ServicePort) bool {
	return slices.ContainsFunc(p.Frontends, func(f control.ServiceFrontend) bool { return f.TranslatedBy != "" })
}

// withBy returns a row with the column BY, if it is there.
func withBy(there bool, by string, row ...string) []string {
	if there {
		row = append(row, by)
	}
	return row
}

func cells(row []string) []any {
	all := make([]any, len(row))
	for i, c := range row {
		all[i] = c
	}
	return all
}

// writeByHost writes why the host translates addresses, each reason once, with the first address.
func writeByHost(b *strings.Builder, p control.ServicePort) {
	var reasons []string
	of := map[string][]string{}
	for _, f := range p.Frontends {
		if f.ByHostBecause == "" {
			continue
		}
		if of[f.ByHostBecause] == nil {
			reasons = append(reasons, f.ByHostBecause)
		}
		of[f.ByHostBecause] = append(of[f.ByHostBecause], frontendAddress(f))
	}
	for _, why := range reasons {
		more := ""
		if n := len(of[why]) - 1; n > 0 {
			more = fmt.Sprintf(" and %d more", n)
		}
		fmt.Fprintf(b, "by host: %s%s: %s\n", of[why][0], more, why)
	}
}

func portName(p control.ServicePort) string { return fmt.Sprintf("%d/%s", p.Port, p.Protocol) }

// usedOf counts the endpoints that clients inside the cluster reach.
func usedOf(p control.ServicePort) string {
	used := 0
	for _, e := range p.Endpoints {
		if e.Inside == control.EndpointUsed {
			used++
		}
	}
	return fmt.Sprintf("%d of %d", used, len(p.Endpoints))
}

func writeProblems(b *strings.Builder, s control.Service) {
	for _, p := range s.Problems {
		fmt.Fprintf(b, "problem: %s\n", p.Error())
	}
}

// printService prints the addresses and endpoints of one Service.
func printService(w io.Writer, s control.Service, format terminal.Output) error {
	var b strings.Builder
	for i, p := range s.Ports {
		if i > 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "%s/%s %s", s.Namespace, s.Name, portName(p))
		if p.Name != "" {
			fmt.Fprintf(&b, " (%s)", p.Name)
		}
		if p.AffinitySeconds > 0 {
			fmt.Fprintf(&b, ", a client keeps its endpoint for %s", time.Duration(p.AffinitySeconds)*time.Second)
		}
		b.WriteByte('\n')
		by := translated(p)
		frontends := terminal.NewTable(format.Style(w), withBy(by, "BY", "KIND", "ADDRESS", "CLIENTS", "EMPTY")...)
		for _, f := range p.Frontends {
			frontends.Row(cells(withBy(by, cmp.Or(f.TranslatedBy, "-"), f.Kind, frontendAddress(f), clientsOf(f), cmp.Or(f.Empty, "-")))...)
		}
		fmt.Fprintln(&b, frontends)
		writeByHost(&b, p)
		if len(p.Endpoints) == 0 {
			b.WriteString("no endpoints\n")
			continue
		}
		endpoints := terminal.NewTable(format.Style(w), "ENDPOINT", "NODE", "INSIDE", "OUTSIDE")
		for _, e := range p.Endpoints {
			node := cmp.Or(e.Node, "-")
			if e.Local {
				node += "*"
			}
			endpoints.Row(e.Address.String(), node, e.Inside, cmp.Or(e.Outside, "-"))
		}
		fmt.Fprintln(&b, endpoints)
	}
	writeProblems(&b, s)
	_, err := io.WriteString(w, b.String())
	return err
}

func frontendAddress(f control.ServiceFrontend) string {
	if f.Address.IsUnspecified() {
		family := "IPv6"
		if f.Address.Is4() {
			family = "IPv4"
		}
		return fmt.Sprintf("port %d (%s)", f.Port, family)
	}
	return netip.AddrPortFrom(f.Address, f.Port).String()
}

// clientsOf names who may use a frontend.
func clientsOf(f control.ServiceFrontend) string {
	switch {
	case f.Sources == nil:
		return "all"
	case len(*f.Sources) == 0:
		return "none"
	}
	texts := make([]string, 0, len(*f.Sources))
	for _, p := range *f.Sources {
		texts = append(texts, p.String())
	}
	slices.Sort(texts)
	if len(texts) > 1 {
		return fmt.Sprintf("%s and %d more", texts[0], len(texts)-1)
	}
	return texts[0]
}
