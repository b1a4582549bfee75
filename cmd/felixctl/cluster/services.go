package cluster

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/report"
	"github.com/felixlike/felixlike/internal/terminal"
	"github.com/felixlike/felixlike/model"
)

// servedPort says how some nodes serve a port of a Service: those that use as many endpoints for clients inside the cluster.
type servedPort struct {
	Service string `json:"service"`
	Port    string `json:"port"`
	Address string `json:"address,omitempty"`
	Used    int    `json:"used"`
	Known   int    `json:"known"`
	// Nodes are the nodes, Problems what they do not serve.
	Nodes    []string        `json:"nodes"`
	Problems []model.Problem `json:"problems,omitempty"`
}

// servedServices is the answer of `services`.
type servedServices struct {
	Ports []servedPort `json:"ports"`
	// Off are the nodes on which another program serves Services, NoAnswer those that are missing.
	Off      []string `json:"off,omitempty"`
	NoAnswer []string `json:"noAnswer,omitempty"`
}

func (t target) servicesCommand() *cobra.Command {
	output := terminal.Text
	c := &cobra.Command{
		Use:   "services [NAMESPACE/NAME]",
		Short: "Show how the nodes serve Services, and where they differ",
		Long: `Show the ports of Services that the nodes serve (setting serviceProxy: full), or those of
one Service, with the number of endpoints that clients inside the cluster reach. Nodes that
use another number, as with zones or policy Local, have a line of their own. The endpoints,
and why one is not used, are in felixctl services NAMESPACE/NAME on a node (--node).

Exit codes: 0 shown; 1 a Service is not served as it says; 2 a node gave no answer.`,
		Example: `  kubectl felixlike services
  kubectl felixlike services shop/web
  kubectl felixlike --node worker-1 services shop/web`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			replies, err := t.ask(c.Context(), c.ErrOrStderr(), append(append([]string{"services"}, args...), "-o", "json")...)
			if err != nil {
				return err
			}
			all := servedServices{Ports: []servedPort{}}
			for _, r := range replies {
				var s control.Services
				switch {
				case !r.decode(&s):
					all.NoAnswer = append(all.NoAnswer, r.Node)
					fmt.Fprintf(c.ErrOrStderr(), "%s: %s\n", r.Node, r.Fault)
				case !s.Proxy:
					all.Off = append(all.Off, r.Node)
				default:
					all.add(r.Node, s.Services)
				}
			}
			slices.SortStableFunc(all.Ports, func(a, b servedPort) int { return cmp.Compare(a.Service, b.Service) })
			if err := output.Print(c.OutOrStdout(), all, func() error { return all.print(c.OutOrStdout(), len(replies), output) }); err != nil {
				return err
			}
			if len(all.NoAnswer) == 0 && slices.ContainsFunc(all.Ports, func(p servedPort) bool { return len(p.Problems) > 0 }) {
				return report.ErrFaults
			}
			return errNoAnswer(len(all.NoAnswer), len(replies))
		},
	}
	output.Flag(c)
	return c
}

// add adds the Services of a node to the lines of nodes that serve them alike.
func (s *servedServices) add(node string, services []control.Service) {
	for _, service := range services {
		ports := service.Ports
		if len(ports) == 0 && len(service.Problems) > 0 {
			ports = []control.ServicePort{{}} // nothing of it is served
		}
		for _, p := range ports {
			one := servedPort{Service: service.Namespace + "/" + service.Name, Known: len(p.Endpoints), Nodes: []string{node}, Problems: service.Problems}
			if p.Port != 0 {
				one.Port = fmt.Sprintf("%d/%s", p.Port, p.Protocol)
			}
			if len(p.Frontends) > 0 {
				one.Address = p.Frontends[0].Address.String()
			}
			for _, e := range p.Endpoints {
				if e.Inside == control.EndpointUsed {
					one.Used++
				}
			}
			if i := slices.IndexFunc(s.Ports, one.alike); i >= 0 {
				s.Ports[i].Nodes = append(s.Ports[i].Nodes, node)
			} else {
				s.Ports = append(s.Ports, one)
			}
		}
	}
}

// alike reports whether two nodes serve a port alike.
func (p servedPort) alike(o servedPort) bool {
	return p.Service == o.Service && p.Port == o.Port && p.Address == o.Address && p.Used == o.Used && p.Known == o.Known && slices.EqualFunc(p.Problems, o.Problems, func(a, b model.Problem) bool { return a.Error() == b.Error() })
}

func (s *servedServices) print(w io.Writer, nodes int, output terminal.Output) error {
	table := terminal.NewTable(output.Style(w), "SERVICE", "PORT", "ADDRESS", "USED", "NODES")
	var b strings.Builder
	said := map[string]bool{}
	for _, p := range s.Ports {
		table.Row(p.Service, cmp.Or(p.Port, "none"), cmp.Or(p.Address, "none"), fmt.Sprintf("%d of %d", p.Used, p.Known), named(p.Nodes, nodes))
		for _, problem := range p.Problems {
			if text := fmt.Sprintf("problem: %s\n", problem.Error()); !said[text] {
				said[text] = true
				b.WriteString(text)
			}
		}
	}
	text := ""
	if len(s.Ports) > 0 {
		text = fmt.Sprintln(table)
	}
	if len(s.Off) > 0 {
		text += fmt.Sprintf("%s: another program serves Services (serviceProxy: off)\n", named(s.Off, nodes))
	}
	if text+b.String() == "" {
		text = "no Services\n"
	}
	_, err := io.WriteString(w, text+b.String())
	return err
}
