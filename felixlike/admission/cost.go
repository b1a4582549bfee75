package admission

import (
	"strconv"
	"strings"
	"time"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/felixlike/felixlike/felixlike/policy/compile"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/policyflows"
)

// Measured time of the slowest backend for one part of a policy (docs/reference/limits/size.md).
const (
	costOfPrefix      = 30 * time.Microsecond
	costOfAlternative = 90 * time.Microsecond
	costOfSelector    = 2500 * time.Microsecond
	costOfFlow        = 30 * time.Microsecond
)

// costOf estimates from the object alone how long it takes to compile and program a
// policy. The policy engine closes a direction above its limits, so no part counts for
// more than its limit.
func costOf(p *networkingv1.NetworkPolicy, inSwitch bool) time.Duration {
	if p == nil || compile.Staged(p.Annotations) {
		return 0 // nothing of it is programmed
	}
	var in, out parts
	for i := range p.Spec.Ingress {
		in.add(p.Spec.Ingress[i].From, p.Spec.Ingress[i].Ports)
	}
	for i := range p.Spec.Egress {
		out.add(p.Spec.Egress[i].To, p.Spec.Egress[i].Ports)
	}
	// In netfilter, a rule that logs becomes two.
	rules := 1
	if value, found := p.Annotations[model.LogAnnotation]; found && value != "false" && !inSwitch {
		rules = 2
	}
	return in.cost(inSwitch, rules) + out.cost(inSwitch, rules)
}

// parts counts the parts of one direction of a policy.
type parts struct {
	prefixes, alternatives, selectors int
	// flows are the flows of exceptions, if the switch judges.
	flows int
}

func (c *parts) add(peers []networkingv1.NetworkPolicyPeer, ports []networkingv1.NetworkPolicyPort) {
	selectors, blocks := 0, 0
	for i := range peers {
		b := peers[i].IPBlock
		if b == nil {
			selectors++
			continue
		}
		blocks = 1
		c.prefixes += 1 + len(b.Except)
		c.flows++
		for _, e := range b.Except {
			c.flows += max(0, length(e)-length(b.CIDR))
		}
	}
	c.selectors += selectors
	c.alternatives += max(1, selectors+blocks) * max(1, len(ports))
}

// length returns the length of a prefix, or zero.
func length(prefix string) int {
	_, text, _ := strings.Cut(prefix, "/")
	n, _ := strconv.Atoi(text) // the policy engine refuses a length that is not a number
	return n
}

// cost returns the cost of parts of which each alternative becomes that many rules.
func (c *parts) cost(inSwitch bool, rules int) time.Duration {
	cost := time.Duration(min(c.prefixes, compile.MaxPrefixes))*costOfPrefix +
		time.Duration(rules*min(c.alternatives, compile.MaxAlternatives))*costOfAlternative +
		time.Duration(min(c.selectors, compile.MaxSelectors))*costOfSelector
	if inSwitch {
		cost += time.Duration(min(c.flows, policyflows.MaxFlows)) * costOfFlow
	}
	return cost
}
