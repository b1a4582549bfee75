package migrate

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/felixlike/felixlike/felixlike/report"
	"github.com/felixlike/felixlike/internal/terminal"
)

// Command returns felixctl migrate.
func Command() *cobra.Command {
	c := &cobra.Command{
		Use:   "migrate",
		Short: "Convert policies of Calico, Cilium and AdminNetworkPolicy, check those of Antrea, and leave kube-proxy",
		Long: `Convert policies of Calico, Cilium and AdminNetworkPolicy, check those of Antrea and OpenShift SDN, and print the steps
away from kube-proxy. It reads files, and changes nothing.

  Calico   NetworkPolicy, GlobalNetworkPolicy, NetworkSet, GlobalNetworkSet, HostEndpoint
           (projectcalico.org/v3 and crd.projectcalico.org/v1)
  Cilium   CiliumNetworkPolicy, CiliumClusterwideNetworkPolicy (cilium.io/v2), addresses and ports only
  AdminNetworkPolicy, BaselineAdminNetworkPolicy
           those of policy.networking.k8s.io/v1alpha1 become ClusterNetworkPolicies of v1alpha2
  Antrea   its kinds of crd.antrea.io/v1beta1 are taken as they are
  OpenShift SDN
           EgressNetworkPolicy (network.openshift.io/v1) is taken as it is

A rule that allows and has no counterpart is left out. An object with a rule that denies and has no counterpart
is left out as a whole. Both are named. Lines with ALLOWS MORE name what may be allowed although an original denies it.

Exit codes: 0 everything was converted, and nothing more is allowed; 1 otherwise; 2 the command failed.`,
		Example: `  felixctl migrate check -f policies/
  felixctl migrate convert -f policies/ > converted.yaml
  felixctl preview -f converted.yaml
  kubectl get -A -o yaml networkpolicies.crd.projectcalico.org,globalnetworkpolicies.crd.projectcalico.org,networksets.crd.projectcalico.org,globalnetworksets.crd.projectcalico.org,hostendpoints.crd.projectcalico.org,networkpolicies.networking.k8s.io | felixctl migrate check -f -`,
	}
	c.AddCommand(checkCommand(), convertCommand(), kubeProxyCommand())
	return c
}

// input has the flags for the input.
type input struct{ files, clusterCIDRs []string }

func (i *input) flags(c *cobra.Command) {
	c.Flags().StringArrayVarP(&i.files, "filename", "f", nil, "file or folder with policies; - is standard input")
	c.Flags().StringSliceVar(&i.clusterCIDRs, "cluster-cidr", nil, "prefixes of all pods and nodes, which prefixes and the entity world of Cilium do not match")
}

func (i *input) convert(stdin io.Reader) (*Result, error) {
	if len(i.files) == 0 {
		return nil, errors.New("no input given: use -f FILE")
	}
	clusterCIDRs, err := prefixes(i.clusterCIDRs)
	if err != nil {
		return nil, fmt.Errorf("--cluster-cidr: %w", err)
	}
	documents, err := read(i.files, stdin)
	if err != nil {
		return nil, err
	}
	return convert(documents, Options{ClusterCIDRs: clusterCIDRs})
}

func checkCommand() *cobra.Command {
	var in input
	output := terminal.Text
	c := &cobra.Command{
		Use:     "check -f FILE...",
		Short:   "Show what each policy would be converted to, and what is lost",
		Example: "  felixctl migrate check -f policies/",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			result, err := in.convert(c.InOrStdin())
			if err != nil {
				return err
			}
			if err := output.Print(c.OutOrStdout(), result, func() error { return printTable(c.OutOrStdout(), result) }); err != nil {
				return err
			}
			return verdict(result)
		},
	}
	in.flags(c)
	output.Flag(c)
	return c
}

func convertCommand() *cobra.Command {
	var in input
	c := &cobra.Command{
		Use:     "convert -f FILE...",
		Short:   "Print the converted policies as YAML; losses and notes go to standard error",
		Example: "  felixctl migrate convert -f policies/ > converted.yaml",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			result, err := in.convert(c.InOrStdin())
			if err != nil {
				return err
			}
			text, err := result.YAML()
			if err != nil {
				return err
			}
			if _, err := c.OutOrStdout().Write(text); err != nil {
				return err
			}
			if err := printLosses(c.ErrOrStderr(), result); err != nil {
				return err
			}
			return verdict(result)
		},
	}
	in.flags(c)
	return c
}

// verdict returns the error for exit code 1 if something is lost.
func verdict(r *Result) error {
	if r.Complete() {
		return nil
	}
	return report.ErrFaults
}

func printTable(w io.Writer, r *Result) error {
	table := terminal.NewTable(terminal.StyleFor(w), "OBJECT", "CONVERTS TO", "LOST")
	for _, o := range r.Objects {
		var becomes, lost []string
		for _, ref := range o.Becomes {
			if ref == o.Object {
				becomes = append(becomes, "itself")
				continue
			}
			becomes = append(becomes, ref.String())
		}
		for _, l := range o.Losses {
			lost = append(lost, l.String())
		}
		switch {
		case len(becomes) == 0 && len(lost) == 0 && isCalico(o.Object, "NetworkPolicy", "GlobalNetworkPolicy"):
			becomes = []string{"nothing: it only passes packets on"}
		case len(becomes) == 0 && isCalico(o.Object, "NetworkSet", "GlobalNetworkSet"):
			becomes = []string{"rules that select it"}
		case len(becomes) == 0 && len(lost) == 0 && isCalico(o.Object, "HostEndpoint"):
			becomes = []string{"nodes in the policies that select it"}
		case len(lost) == 0 && isCalico(o.Object, "FelixConfiguration"):
			becomes = []string{"the setting in the note"}
		case len(becomes) == 0:
			becomes = []string{"-"}
		}
		if len(lost) == 0 {
			lost = []string{"nothing"}
		}
		for i := range max(len(becomes), len(lost)) {
			table.Row(at(i, []string{o.Object.String()}), at(i, becomes), at(i, lost))
		}
	}
	if _, err := fmt.Fprintln(w, table); err != nil {
		return err
	}
	return printNotes(w, r)
}

func at(i int, list []string) string {
	if i < len(list) {
		return list[i]
	}
	return ""
}

func printLosses(w io.Writer, r *Result) error {
	var out strings.Builder
	for _, o := range r.Objects {
		for _, l := range o.Losses {
			begin := "lost: "
			if l.AllowsMore {
				begin, l.AllowsMore = allowsMore, false
			}
			fmt.Fprintf(&out, "%s%s: %s\n", begin, o.Object, l)
		}
	}
	if _, err := io.WriteString(w, out.String()); err != nil {
		return err
	}
	return printNotes(w, r)
}

// printNotes prints the differences of many objects. What may be allowed more comes last, so that it stays on the screen.
func printNotes(w io.Writer, r *Result) error {
	var out strings.Builder
	for _, n := range r.Notes {
		fmt.Fprintln(&out, "note:", n)
	}
	for _, text := range r.AllowsMore {
		fmt.Fprintln(&out, allowsMore+text)
	}
	_, err := io.WriteString(w, out.String())
	return err
}
