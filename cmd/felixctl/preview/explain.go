package preview

import (
	"fmt"
	"strings"

	"sigs.k8s.io/network-policy-api/apis/v1alpha2"
)

// explain describes a change in sentences.
func (t *text) explain(p *Preview) {
	for _, c := range p.Policies {
		fmt.Fprintf(t, "%s\n", t.style.Bold(c.Kind+" "+c.Policy))
		for _, s := range c.sentences() {
			fmt.Fprintf(t, "  %s\n", s)
		}
		t.problems(c)
	}
	t.WriteString("\n")
	if len(p.Verdicts) == 0 {
		t.WriteString("No packet gets another verdict: what could be reached can be reached, and nothing else.\n")
		return
	}
	families := p.families()
	for _, d := range grouped(p.Verdicts) {
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
		effect := "what only it isolates is open again"
		if c.Kind == clusterPolicy {
			effect = "what its rules match is judged without it"
		}
		all = append(all, "It would be deleted: "+effect+".")
	case Same:
		return append(all, "It exists, and is the same already.")
	}
	if c.after.none() || len(c.Pods) == 0 {
		return all
	}
	all = append(all, fmt.Sprintf("It is about %s: %s.", c.scope(), list(c.Pods)))
	if c.Kind == clusterPolicy {
		return append(all, c.tierText())
	}
	return append(all, "What it is about is isolated: a packet passes if some rule of some NetworkPolicy allows it, else it is dropped. "+
		"Answers always pass, and so does what comes from a pod's own node.")
}

// tierText describes the place of a ClusterNetworkPolicy in the order of evaluation.
func (c *PolicyChange) tierText() string {
	text := "Of its tier, Admin, the first rule that matches decides, before any NetworkPolicy. Pass leaves the packet to them."
	if c.Tier == string(v1alpha2.BaselineTier) {
		text = "Of its tier, Baseline, the first rule that matches decides, where no NetworkPolicy isolates the pod."
	}
	return text + " Answers always pass, and so does traffic between a pod and its own node."
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
