package ctl

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/policy/compile"
	"github.com/felixlike/felixlike/internal/terminal"
	"github.com/felixlike/felixlike/model"
)

// order is the order in which the rules of one pod are evaluated, or of the node itself.
type order struct {
	Node string `json:"node"`
	Pod  string `json:"pod,omitempty"`
	// NotInForce is the state of the node's own policies if they are not in force: off or withdrawn.
	NotInForce string `json:"notInForce,omitempty"`
	// PreDNAT are rules for the node itself that are judged before DNAT, and before Ingress.
	PreDNAT *direction `json:"preDNAT,omitempty"`
	Ingress direction  `json:"ingress"`
	Egress  direction  `json:"egress"`
}

// direction has the rules of a direction.
type direction struct {
	Rules []orderedRule `json:"rules"`
	// Isolated reports that a NetworkPolicy isolates the pod: packets without an allowing
	// rule are denied, and the baseline tier is skipped.
	Isolated bool `json:"isolated"`
}

// orderedRule is one rule, or a NetworkPolicy that has none.
type orderedRule struct {
	Tier string `json:"tier"`
	// AntreaTier is the tier of a policy of Antrea's API: its name if it always exists, with its
	// priority. Antrea's policies are evaluated by the priority of their tier first.
	AntreaTier string `json:"antreaTier,omitempty"`
	// Priority is that of a policy of the admin or the baseline tier.
	Priority *float64 `json:"priority,omitempty"`
	Policy   string   `json:"policy"`
	Rule     string   `json:"rule,omitempty"`
	// RuleName is the name that the author gave the rule.
	RuleName string `json:"ruleName,omitempty"`
	Action   string `json:"action,omitempty"`
	Peers    string `json:"peers,omitempty"`
	Ports    string `json:"ports,omitempty"`
}

// orderOf returns the order for a pod of the model's node.
func orderOf(m *control.Model, pod model.PodID) (*order, error) {
	at := slices.IndexFunc(m.Endpoints, func(e *model.Endpoint) bool { return e.ID == pod })
	if at < 0 {
		return nil, fmt.Errorf("pod %s: node %s has no such pod that policy applies to", pod, m.Node)
	}
	o := &orderer{groups: map[model.GroupID]*control.Group{}, policies: map[model.PolicyID]*model.Policy{}}
	for i := range m.Groups {
		o.groups[m.Groups[i].ID] = &m.Groups[i]
	}
	for _, p := range m.Policies {
		o.policies[p.ID] = p
	}
	e := m.Endpoints[at]
	return &order{Node: m.Node, Pod: pod.String(), Ingress: o.direction(e.Ingress, model.Ingress), Egress: o.direction(e.Egress, model.Egress)}, nil
}

// orderOfNode returns the order for the model's node itself.
func orderOfNode(m *control.Model, node string) (*order, error) {
	switch {
	case node != m.Node:
		return nil, fmt.Errorf("node:%s: the agent that was asked runs on node %s", node, m.Node)
	case m.HostPolicies.Empty():
		return nil, fmt.Errorf("node:%s: no policy applies to the node itself", node)
	}
	h := m.HostPolicies
	o := &orderer{groups: map[model.GroupID]*control.Group{}, policies: map[model.PolicyID]*model.Policy{}}
	for _, g := range h.Groups {
		o.groups[g.ID] = &control.Group{Group: g.Group, Members: g.Members}
	}
	for _, p := range h.Policies {
		o.policies[p.ID] = p
	}
	out := &order{Node: m.Node, Ingress: o.direction(h.Ingress, model.Ingress), Egress: o.direction(h.Egress, model.Egress)}
	if !h.PreDNAT.Empty() {
		pre := o.direction(h.PreDNAT, model.Ingress)
		out.PreDNAT = &pre
	}
	switch {
	case m.HostState.Off:
		out.NotInForce = control.HostsOff
	case m.HostState.Withdrawn == h.Fingerprint():
		out.NotInForce = control.HostsWithdrawn
	}
	return out, nil
}

// orderer resolves the references of a model's rules.
type orderer struct {
	groups   map[model.GroupID]*control.Group
	policies map[model.PolicyID]*model.Policy
}

func (o *orderer) direction(applied model.Applied, d model.Direction) direction {
	out := direction{Isolated: applied.Isolated(), Rules: []orderedRule{}}
	asked := slices.Concat(applied.Admin, applied.NetworkPolicies)
	if !out.Isolated {
		asked = append(asked, applied.Baseline...)
	}
	for _, id := range asked {
		p := o.policies[id]
		if p == nil {
			continue // it is changing just now
		}
		head := orderedRule{Tier: id.Tier.String(), Policy: id.String()}
		switch {
		case id.BeforeTiers():
		case id.API != model.Kubernetes:
			head.AntreaTier = antreaTier(p.Precedence.Tier)
			fallthrough
		case id.Tier != model.TierNetworkPolicy:
			head.Priority = &p.Precedence.Priority
		}
		for _, r := range p.Rules(d) {
			one := head
			one.Rule, one.RuleName = r.Name, r.Title
			one.Action, one.Peers, one.Ports = r.Action.String(), o.peers(&r, d), o.ports(&r)
			out.Rules = append(out.Rules, one)
		}
		if len(p.Rules(d)) == 0 {
			out.Rules = append(out.Rules, head)
		}
	}
	return out
}

// antreaTier returns "emergency (50)", or "tier (7)" for a tier that somebody made.
func antreaTier(priority uint16) string {
	for _, name := range compile.AntreaTiers() {
		if fixed, _ := compile.AntreaTier(name); fixed == priority {
			return fmt.Sprintf("%s (%d)", name, priority)
		}
	}
	return fmt.Sprintf("tier (%d)", priority)
}

// peers names the peers of a rule in few words: their selectors and networks. Named ports of egress are those of the
// peers: if a rule has nothing else, the pods that declare the names are the peers.
func (o *orderer) peers(r *model.Rule, d model.Direction) string {
	peers := r.Peers
	switch {
	case d == model.Egress && r.AnyPeer && len(r.NamedPorts) > 0 && len(r.Ports) == 0:
		peers = r.NamedPorts
	case r.AnyPeer:
		return "any"
	}
	var selectors, networks []string
	for _, id := range peers {
		g := o.groups[id]
		if g == nil {
			continue
		}
		if id.Kind() != model.Networks {
			selector := g.Description
			if _, pods, named := strings.Cut(selector, " of "); named && id.Kind() == model.AddressPorts {
				selector = pods // the name of the port is in Ports
			}
			if !slices.Contains(selectors, selector) {
				selectors = append(selectors, selector)
			}
			continue
		}
		for _, m := range g.Members {
			if m.Except {
				networks = append(networks, "except "+m.Prefix.String())
			} else {
				networks = append(networks, m.Prefix.String())
			}
		}
	}
	return cmp.Or(strings.Join(slices.Concat(some(selectors), some(networks)), ", "), "none")
}

// ports says in few words which ports a rule is about. A named port shows the numbers that
// pods declare now.
func (o *orderer) ports(r *model.Rule) string {
	if r.AnyPort {
		return "any"
	}
	var all []string
	for _, p := range r.Ports {
		all = append(all, p.String())
	}
	for _, id := range r.NamedPorts {
		if o.groups[id] == nil {
			continue
		}
		for _, m := range o.groups[id].Members {
			text := fmt.Sprintf("%s/%d (named)", m.Protocol, m.Port)
			if !slices.Contains(all, text) {
				all = append(all, text)
			}
		}
	}
	return cmp.Or(strings.Join(some(all), ", "), "none")
}

// some returns the first of many.
func some(all []string) []string {
	const most = 4
	if len(all) <= most {
		return all
	}
	return append(slices.Clone(all[:most-1]), fmt.Sprintf("%d more", len(all)-most+1))
}

func printOrder(w io.Writer, o *order) error {
	style := terminal.StyleFor(w)
	if o.NotInForce != "" {
		if _, err := fmt.Fprintf(w, "not in force: %s (felixctl status has the reason)\n", o.NotInForce); err != nil {
			return err
		}
	}
	type part struct {
		name string
		direction
	}
	parts := []part{{"Ingress", o.Ingress}, {"Egress", o.Egress}}
	if o.PreDNAT != nil {
		parts = slices.Insert(parts, 0, part{"Ingress before DNAT", *o.PreDNAT})
	}
	for _, part := range parts {
		if _, err := fmt.Fprintf(w, "%s\n", style.Head(part.name+" of "+cmp.Or(o.Pod, "the node itself")+" ("+o.Node+")")); err != nil {
			return err
		}
		table := terminal.NewTable(style, "TIER", "PRIORITY", "POLICY", "RULE", "ACTION", "PEERS", "PORTS")
		for _, r := range part.Rules {
			priority := "-"
			if r.Priority != nil {
				priority = fmt.Sprint(*r.Priority)
			}
			table.Row(cmp.Or(r.AntreaTier, r.Tier), priority, r.Policy, cmp.Or(model.TitledRule(r.Rule, r.RuleName), "-"), cmp.Or(r.Action, "-"), cmp.Or(r.Peers, "-"), cmp.Or(r.Ports, "-"))
		}
		last := "allow"
		if part.Isolated {
			last = "deny: a NetworkPolicy isolates the pod"
		}
		if len(part.Rules) > 0 {
			fmt.Fprintln(w, table)
		}
		if _, err := fmt.Fprintf(w, "everything else: %s\n\n", last); err != nil {
			return err
		}
	}
	return nil
}
