package preview

import (
	"fmt"
	"strings"

	"sigs.k8s.io/network-policy-api/apis/v1alpha2"
)

// explain describes a change in sentences.
func (t *text) explain(p *Preview) {
	for _, c := range p.Policies {
		fmt.Fprintf(t, "%s\n", t.style.Bold(c.Policy))
		for _, s := range c.sentences() {
			fmt.Fprintf(t, "  %s\n", s)
		}
		t.problems(c)
	}
	t.WriteString("\n")
	if !p.Changes() {
		t.WriteString("No packet gets another verdict.\n")
		return
	}
	families := p.families()
	for _, d := range Grouped(p.Verdicts) {
		fmt.Fprintf(t, "%s\n", d.sentence(t, families))
	}
}

// sentences describe the change of a policy and how policies work.
func (c *PolicyChange) sentences() []string {
	var all []string
	switch c.What {
	case Created:
		all = append(all, "It would be created.")
	case Changed:
		all = append(all, "It exists, and would be replaced.")
	case Deleted:
		effect := "pods that no other policy isolates are open again"
		if c.Kind != networkPolicy {
			effect = "the other policies judge the packets that its rules match"
		}
		all = append(all, "It would be deleted: "+effect+".")
	case Same:
		return append(all, "It exists, and is the same already.")
	}
	if !c.after.none() && len(c.Nodes) > 0 {
		return append(all, fmt.Sprintf("It applies to %s themselves: %s.", c.scope(), list(c.Nodes)),
			"The first matching rule decides. Before the rules, the failsafe ports, answers, and packets to the node's own pods pass.")
	}
	if c.after.none() || len(c.Pods) == 0 {
		return all
	}
	all = append(all, fmt.Sprintf("It applies to %s: %s.", c.scope(), list(c.Pods)))
	if c.Kind != networkPolicy {
		return append(all, c.tierText())
	}
	return append(all, "These pods are isolated: a packet passes if a rule of any NetworkPolicy of the pod allows it, else it is dropped. "+
		"Answers always pass, and so do packets from a pod's own node.")
}

// tierText describes the place of a ClusterNetworkPolicy in the order of evaluation.
func (c *PolicyChange) tierText() string {
	text := "In its tier, Admin, the first matching rule decides, before any NetworkPolicy. Pass leaves the packet to the NetworkPolicies."
	switch {
	case strings.EqualFold(c.Tier, string(v1alpha2.BaselineTier)):
		text = "In its tier, " + c.Tier + ", the first matching rule decides, if no NetworkPolicy isolates the pod."
	case c.Kind != clusterPolicy:
		text = "The policies of its tier, " + c.Tier + ", decide in the order of their priorities, behind the tiers of lower priorities and before any NetworkPolicy. " +
			"The first matching rule decides. Pass leaves the packet to the NetworkPolicies."
	}
	return text + " Answers always pass, and so do packets from a pod's own node."
}

// sentence names the ends that can or cannot connect any more.
func (d *Difference) sentence(t *text, families []string) string {
	can := t.style.Good("could now reach")
	if d.Becomes == Denied {
		can = t.style.Bad("could no longer reach")
	}
	by := "by " + strings.ReplaceAll(strings.Join(d.Ports, ", "), "all but, ", "everything but ")
	if by == "by all" {
		by = "by any protocol and port"
	}
	if len(d.Families) < len(families) {
		by += " over " + strings.Join(d.Families, " and ")
	}
	return fmt.Sprintf("%s %s %s %s: %s.", list(d.From), can, list(d.To), by, d.Because)
}
