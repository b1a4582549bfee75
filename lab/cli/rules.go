package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/felixlike/felixlike/felixlike"
	"github.com/felixlike/felixlike/internal/terminal"
	"github.com/felixlike/felixlike/lab"
	"github.com/felixlike/felixlike/lab/namespace"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/rules"
	"github.com/felixlike/felixlike/tables/iptables"
	"github.com/felixlike/felixlike/tables/nftables"
)

func (o *options) rulesCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "rules NAMESPACE/POD",
		Short: "Show the rules that a pod's packets meet, in the words of the backend's own tool",
		Long: `Show the rules that a pod's packets meet, in the words of the backend's own
tool (nft, iptables-save and ipset, or ovs-ofctl), with counters, and with the policy and
the rule of it that each comes from.`,
		Example: "  felixctl lab rules shop/web",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf("want NAMESPACE/POD (as in: shop/web), got %s", plural(len(args), "argument"))
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			family, err := o.parseFamily()
			if err != nil {
				return err
			}
			status, err := o.client().Status(c.Context())
			if err != nil {
				return err
			}
			r, err := readRules(c.Context(), status, args[0], family)
			if err != nil {
				return err
			}
			return o.output.Print(c.OutOrStdout(), r, func() error { return r.print(c.OutOrStdout()) })
		},
	}
	o.familyFlag(c)
	o.outputFlag(c)
	return c
}

// podRules is what the packets of a pod meet in one family.
type podRules struct {
	Pod     string `json:"pod"`
	Node    string `json:"node"`
	Backend string `json:"backend"`
	Address string `json:"address"`
	// Commands print all that the node holds.
	Commands []string       `json:"commands"`
	Dispatch []listedEntry  `json:"dispatch"`
	Chains   []*listedChain `json:"chains"`
	Sets     []listedSet    `json:"sets"`
}

// listedSet is a set that a rule looks into; members are named where they are
// known to the lab.
type listedSet struct {
	Name    string   `json:"name"`
	Members []string `json:"members"`
}

// readRules asks the tool of the backend on the pod's node, and follows the
// chains from where the pod's address is dispatched to.
func readRules(ctx context.Context, s lab.Status, pod string, family model.Family) (*podRules, error) {
	p := slices.IndexFunc(s.Pods, func(p lab.PodStatus) bool { return p.Pod == pod })
	if p < 0 {
		return nil, fmt.Errorf("%s: no such pod (felixctl lab status lists them)", pod)
	}
	n := s.Nodes[slices.IndexFunc(s.Nodes, func(n lab.NodeStatus) bool { return n.Name == s.Pods[p].Node })]
	if n.Agent == nil {
		return nil, fmt.Errorf("%s: %s", n.Name, n.Error)
	}
	a := slices.IndexFunc(s.Pods[p].Addresses, func(a netip.Addr) bool { return model.FamilyOf(a) == family })
	if a < 0 {
		return nil, fmt.Errorf("%s has no IPv%s address", pod, family)
	}
	r := &podRules{Pod: pod, Node: n.Name, Backend: n.Agent.Backend, Address: s.Pods[p].Addresses[a].String()}
	if err := r.read(ctx, n, family); err != nil {
		return nil, fmt.Errorf("read the rules of %s: %w", n.Name, err)
	}
	r.names(s)
	return r, nil
}

// read runs the backend's tool, and follows what it prints.
func (r *podRules) read(ctx context.Context, n lab.NodeStatus, family model.Family) error {
	run := func(argv ...string) (string, error) {
		r.Commands = append(r.Commands, "ip netns exec "+n.Namespace+" "+strings.Join(argv, " "))
		return runIn(ctx, n.Namespace, argv)
	}
	if r.Backend == felixlike.OpenFlow {
		out, err := run("ovs-ofctl", "-O", "OpenFlow15", "dump-flows", "unix:"+filepath.Join(n.OVSDir, lab.Bridge+".mgmt"))
		r.followFlows(parseFlows(out), rulesOf(n.Agent))
		return err
	}
	l, err := r.list(run, family)
	if err == nil {
		r.follow(l, family)
	}
	return err
}

// list runs the tools of a backend in netfilter.
func (r *podRules) list(run func(argv ...string) (string, error), family model.Family) (*listing, error) {
	if r.Backend == felixlike.NFTables {
		out, err := run("nft", "list", "table", "inet", nftables.DefaultTable)
		return parseNFT(out), err
	}
	tool := r.Backend
	if family == model.IPv6 {
		tool = "ip6" + strings.TrimPrefix(tool, "ip")
	}
	saved, err := run(tool+"-save", "-c")
	if err != nil {
		return nil, err
	}
	sets, err := run("ipset", "save")
	return parseIPTables(saved, sets), err
}

// runIn runs a program in a network namespace and returns what it prints.
func runIn(ctx context.Context, netns string, argv []string) (string, error) {
	ns, err := namespace.Open(netns)
	if err != nil {
		return "", err
	}
	defer ns.Close()
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err = ns.Do(cmd.Start); err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w %s", strings.Join(argv, " "), err, strings.TrimSpace(errs.String()))
	}
	return out.String(), nil
}

// follow collects the chains from the dispatch on, but not the dispatch to
// other pods, with the rules of the family, and the sets that they look into.
func (r *podRules) follow(l *listing, family model.Family) {
	// nft lists the rules of both families.
	foreign := "ip6 "
	if family == model.IPv6 {
		foreign = "ip "
	}
	r.Dispatch = l.dispatch(r.Address)
	others := []string{rules.ChainToPods, iptables.KernelName(rules.ChainToPods)}
	var todo []string
	for _, e := range r.Dispatch {
		todo = append(todo, l.target(e.Verdict))
	}
	sets := map[string]bool{}
	for i := 0; i < len(todo); i++ {
		if todo[i] == "" || slices.Contains(todo[:i], todo[i]) || slices.Contains(others, todo[i]) {
			continue
		}
		c := &listedChain{Name: todo[i]}
		r.Chains = append(r.Chains, c)
		for _, rule := range l.chains[todo[i]].Rules {
			if strings.HasPrefix(rule.Match, foreign) {
				continue
			}
			c.Rules = append(c.Rules, rule)
			todo = append(todo, l.target(rule.Verdict))
			for _, set := range l.setsOf(rule.Match) {
				sets[set] = true
			}
		}
	}
	for _, name := range sortedKeys(sets) {
		r.Sets = append(r.Sets, listedSet{Name: name, Members: slices.Sorted(slices.Values(l.members[name]))})
	}
}

// names adds the names of pods to members that are their addresses.
func (r *podRules) names(s lab.Status) {
	pods := map[string]string{}
	for _, p := range s.Pods {
		for _, a := range p.Addresses {
			pods[a.String()] = p.Pod
		}
	}
	for _, set := range r.Sets {
		for i, m := range set.Members {
			for _, word := range strings.FieldsFunc(m, func(c rune) bool { return strings.ContainsRune(" ,=", c) }) {
				if pod := pods[word]; pod != "" {
					set.Members[i] = m + " (" + pod + ")"
				}
			}
		}
	}
}

// shownMembers bounds how much of a set is printed.
const shownMembers = 4

func (r *podRules) print(w io.Writer) error {
	style := terminal.StyleFor(w)
	var b strings.Builder
	fmt.Fprintf(&b, "%s on %s, backend %s, %s\n", r.Pod, r.Node, r.Backend, r.Address)
	for _, c := range r.Commands {
		fmt.Fprintf(&b, "%s\n", style.Faint("from: "+c))
	}
	if len(r.Dispatch) == 0 {
		fmt.Fprintf(&b, "\nThe address is in no dispatch: the pod is closed, or on the host's network.\n")
	} else {
		fmt.Fprintln(&b)
	}
	for _, e := range r.Dispatch {
		fmt.Fprintf(&b, "%s: %s  %s\n", style.Bold(e.In), e.Match, e.Verdict)
	}
	for _, c := range r.Chains {
		t := terminal.NewTable(style, "  PACKETS", "MATCH", "VERDICT", "FOR")
		for _, rule := range c.Rules {
			match := rule.Match
			if match == "" {
				match = "any"
			}
			t.Row(rule.Packets, match, rule.Verdict, rule.For)
		}
		fmt.Fprintf(&b, "\nchain %s\n%s\n", style.Bold(c.Name), t)
	}
	if len(r.Sets) > 0 {
		t := terminal.NewTable(style, "SET", "MEMBERS")
		for _, set := range r.Sets {
			shown := strings.Join(set.Members[:min(len(set.Members), shownMembers)], ", ")
			if more := len(set.Members) - shownMembers; more > 0 {
				shown += fmt.Sprintf(" and %d more", more)
			}
			t.Row(set.Name, shown)
		}
		fmt.Fprintf(&b, "\n%s\n", t)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
