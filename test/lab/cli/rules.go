package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/felixlike/felixlike/cmd/felixctl/dump"
	"github.com/felixlike/felixlike/cmd/felixctl/dump/live"
	"github.com/felixlike/felixlike/cmd/felixctl/labs"
	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/internal/namespace"
	"github.com/felixlike/felixlike/internal/terminal"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/rules"
	"github.com/felixlike/felixlike/tables/iptables"
	"github.com/felixlike/felixlike/test/lab"
)

func (o *options) rulesCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "rules NAMESPACE/POD",
		Short: "Show the rules that a pod's packets meet, in the words of the backend's own tool",
		Long: `Show the rules that a pod's packets meet, in the words of the backend's own
tool (nft; iptables-save and ipset; or ovs-ofctl), with counters, and with the
policy and the rule of it that each comes from.

Under backend openflow these are the flows of the tables that judge, rule by
rule; one that several rules share is listed with each. Open vSwitch counts no
packets for parts of a conjunction. Flows without an address or port of the pod
count the packets of all pods on the node.`,
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

// podRules are the rules for the packets of a pod in one family.
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
func readRules(ctx context.Context, s labs.Status, pod string, family model.Family) (*podRules, error) {
	p := slices.IndexFunc(s.Pods, func(p labs.PodStatus) bool { return p.Pod == pod })
	if p < 0 {
		return nil, fmt.Errorf("%s: no such pod (felixctl lab status lists them)", pod)
	}
	n := s.Nodes[slices.IndexFunc(s.Nodes, func(n labs.NodeStatus) bool { return n.Name == s.Pods[p].Node })]
	if n.Agent == nil {
		return nil, fmt.Errorf("%s: %s", n.Name, n.Error)
	}
	a := slices.IndexFunc(s.Pods[p].Addresses, func(a netip.Addr) bool { return model.FamilyOf(a) == family })
	if a < 0 {
		return nil, fmt.Errorf("%s has no IPv%s address", pod, family)
	}
	r := &podRules{Pod: pod, Node: n.Name, Backend: n.Agent.Backend, Address: s.Pods[p].Addresses[a].String()}
	held, err := r.read(ctx, n, family)
	if err != nil {
		return nil, fmt.Errorf("read the state of %s: %w", n.Name, err)
	}
	if r.Backend == config.OpenFlow {
		return r, r.flows(held, n.Agent, s.PodNames(), family)
	}
	r.follow(listed(held), family)
	r.names(s.PodNames())
	return r, nil
}

// read asks the backend's own tools on the node, and records the command lines.
func (r *podRules) read(ctx context.Context, n labs.NodeStatus, family model.Family) (*dump.State, error) {
	at := live.Node{NetNS: namespace.Path(n.Namespace)}
	if r.Backend == config.OpenFlow {
		at.OVSRunDir, at.Bridge = n.OVSDir, lab.Bridge
	}
	parts, err := live.Read(ctx, at, live.Options{Backend: r.Backend})
	if err != nil {
		return nil, err
	}
	// Chains of iptables have the same names in both families.
	parts = slices.DeleteFunc(parts, func(p live.Part) bool { return p.Family != 0 && p.Family != family })
	for _, p := range parts {
		r.Commands = append(r.Commands, "ip netns exec "+n.Namespace+" "+p.Command)
	}
	return live.Parse(parts)
}

// flows shows the flows that judge the pod.
func (r *podRules) flows(s *dump.State, agent *control.Status, pods map[string]string, family model.Family) error {
	p := podFlows{
		address: r.Address, port: portOf(s.Flows, r.Address), family: family, names: ruleNames(agent), pods: pods, pod: r.Pod, parts: map[uint32]uint16{},
	}
	if p.port == 0 {
		return fmt.Errorf("%s has no port there", r.Pod)
	}
	r.Chains = p.tables(s.Flows)
	return nil
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
	others := []string{rules.ChainAllowedOut, iptables.KernelName(rules.ChainAllowedOut)}
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
func (r *podRules) names(pods map[string]string) {
	for _, set := range r.Sets {
		for i, m := range set.Members {
			address, _, _ := strings.Cut(m, ",")
			if pod := pods[address]; pod != "" {
				set.Members[i] = m + " (" + pod + ")"
			}
		}
	}
}

// shownMembers bounds the printed members of a set.
const shownMembers = 4

func (r *podRules) print(w io.Writer) error {
	style := terminal.StyleFor(w)
	var b strings.Builder
	fmt.Fprintf(&b, "%s on %s, backend %s, %s\n", r.Pod, r.Node, r.Backend, r.Address)
	for _, c := range r.Commands {
		fmt.Fprintf(&b, "%s\n", style.Faint("from: "+c))
	}
	switch {
	case r.Backend == config.OpenFlow:
	case len(r.Dispatch) == 0:
		fmt.Fprintf(&b, "\nThe address is in no dispatch: the pod is closed, or on the host's network.\n")
	default:
		fmt.Fprintln(&b)
	}
	for _, e := range r.Dispatch {
		fmt.Fprintf(&b, "%s: %s  %s\n", style.Bold(e.In), e.Match, e.Verdict)
	}
	for _, c := range r.Chains {
		if r.Backend == config.OpenFlow {
			fmt.Fprintf(&b, "\ntable %s, %s\n%s\n", style.Bold(c.Name), c.What, c.flows(style))
			continue
		}
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

// flows prints a table of flows. Of many that have the same part in a rule, as
// the members of a group, only some are shown.
func (c *listedChain) flows(style terminal.Style) *terminal.Table {
	t := terminal.NewTable(style, "  PACKETS", "PRIORITY", "MATCH", "ACTIONS", "FOR")
	alike := 0
	for i, f := range c.Rules {
		if i > 0 && c.Rules[i-1].Verdict == f.Verdict && c.Rules[i-1].For == f.For && f.Priority == c.Rules[i-1].Priority {
			alike++
		} else {
			alike = 0
		}
		packets, match := fmt.Sprintf("%9d", f.Packets), cmp.Or(f.Match, "any")
		if strings.HasPrefix(f.Verdict, "conjunction") {
			packets = "" // the switch counts none
		}
		last := i+1 == len(c.Rules) || c.Rules[i+1].Verdict != f.Verdict || c.Rules[i+1].For != f.For
		switch {
		case alike < shownMembers || f.For == "":
			t.Row(packets, f.Priority, match, f.Verdict, f.For)
		case last:
			t.Row("", f.Priority, fmt.Sprintf("and %d more", alike-shownMembers+1), f.Verdict, f.For)
		}
	}
	return t
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
