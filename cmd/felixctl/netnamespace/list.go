package netnamespace

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/felixlike/felixlike/felixlike/tenancy"
	"github.com/felixlike/felixlike/felixlike/tenancy/change"
	"github.com/felixlike/felixlike/internal/printable"
	"github.com/felixlike/felixlike/internal/terminal"
)

// row is a namespace, or a NetNamespace without one.
type row struct {
	Name string `json:"name"`
	// NetID is nil for a namespace without a number.
	NetID     *int64   `json:"netid"`
	EgressIPs []string `json:"egressIPs,omitempty"`
	// NoNamespace is set if there is only a NetNamespace.
	NoNamespace bool `json:"noNamespace,omitempty"`
}

// listing is the answer of `netnamespace list`.
type listing struct {
	Namespaces []row `json:"namespaces"`
	// Problems are those that the agents have with NetNamespaces.
	Problems []string `json:"problems,omitempty"`
}

func listCommand(a Access) *cobra.Command {
	output := terminal.Text
	c := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls", "get"},
		Short:   "List all namespaces with their numbers",
		Long: `List all namespaces with the numbers of their NetNamespaces, as "oc get netnamespaces" does.
Namespaces with one number are joined, and 0 is global. A namespace without a NetNamespace has
the number "-" and is isolated.

Below the table are the problems that the agents have with NetNamespaces.

It needs the right to list namespaces and netnamespaces.

Exit codes: 0 shown; 2 the command failed.`,
		Example: `  felixctl netnamespace list
  felixctl netnamespace list -o json`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, _ []string) error {
			all, err := list(c.Context(), a)
			if err != nil {
				return err
			}
			return output.Print(c.OutOrStdout(), all, func() error { return all.print(c.OutOrStdout(), output) })
		},
	}
	output.Flag(c, terminal.Text, terminal.Wide, terminal.JSON, terminal.YAML)
	return c
}

func list(ctx context.Context, a Access) (*listing, error) {
	k := kubectl{a}
	objects, err := change.Changer{Cluster: k}.All(ctx)
	if err != nil {
		return nil, err
	}
	names, err := k.namespaces(ctx)
	if err != nil {
		return nil, err
	}
	rows := map[string]*row{}
	classes := tenancy.New()
	for _, o := range objects {
		rows[o.Name] = &row{Name: o.Name, NetID: o.NetID, EgressIPs: o.EgressIPs, NoNamespace: true}
		classes.Set(o.Name, o)
	}
	for _, name := range names {
		if rows[name] == nil {
			rows[name] = &row{Name: name}
		}
		rows[name].NoNamespace = false
	}
	all := &listing{Namespaces: []row{}}
	for _, r := range rows {
		all.Namespaces = append(all.Namespaces, *r)
	}
	slices.SortFunc(all.Namespaces, func(a, b row) int { return cmp.Compare(a.Name, b.Name) })
	for _, p := range classes.Problems() {
		all.Problems = append(all.Problems, p.Error())
	}
	for _, r := range all.Namespaces {
		if r.NoNamespace {
			all.Problems = append(all.Problems, fmt.Sprintf("NetNamespace %s: there is no such namespace: delete it, or the next namespace of that name has its number", r.Name))
		}
	}
	return all, nil
}

func (l *listing) print(w io.Writer, output terminal.Output) error {
	table := terminal.NewTable(output.Style(w), "NAME", "NETID", "EGRESS IPS")
	for _, r := range l.Namespaces {
		number := "-"
		if r.NetID != nil {
			number = fmt.Sprint(*r.NetID)
		}
		table.Row(r.Name, number, strings.Join(r.EgressIPs, ","))
	}
	if _, err := fmt.Fprintln(w, table); err != nil {
		return err
	}
	for i, p := range l.Problems {
		if i == 0 {
			fmt.Fprintln(w)
		}
		if _, err := fmt.Fprintln(w, printable.Lines(p)); err != nil {
			return err
		}
	}
	return nil
}
