package trace

import (
	"fmt"
	"slices"
	"strings"

	"github.com/felixlike/felixlike/felixlike/policy/oracle"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/rules"
)

// Opinion is the verdict on a packet by one method: by the policies, or by the
// programmed rules.
type Opinion struct {
	Through bool   `json:"through"`
	Why     string `json:"why"`
}

// Judgement is the verdict of the policies, computed from the Kubernetes objects.
type Judgement struct {
	Opinion
	Egress  End `json:"egress"`
	Ingress End `json:"ingress"`
}

// End is the verdict of the policies of one end.
type End struct {
	// Who is the pod, or the address if there is no pod.
	Who     string `json:"who"`
	Allowed bool   `json:"allowed"`
	Why     string `json:"why"`
	// Policy and Rule allowed or denied the packet; Passed are the rules that passed it on
	// to a later tier; Isolating are the NetworkPolicies that were asked. RuleName is the name that the author
	// gave the rule.
	Policy    string   `json:"policy,omitempty"`
	Rule      string   `json:"rule,omitempty"`
	RuleName  string   `json:"ruleName,omitempty"`
	Passed    []string `json:"passed,omitempty"`
	Isolating []string `json:"isolating,omitempty"`
	Asked     []Asked  `json:"asked,omitempty"`
}

// Asked is an evaluated rule of a policy, with its result.
type Asked struct {
	Policy  string `json:"policy"`
	Rule    string `json:"rule,omitempty"`
	Allows  bool   `json:"allows"`
	Because string `json:"because"`
}

// Judge asks the reference evaluator about a packet. A packet of a connection that
// was allowed before is not judged again.
func Judge(p Packet, c *oracle.Cluster, n Namer) (*Judgement, error) {
	p, err := p.check()
	if err != nil {
		return nil, err
	}
	if n == nil {
		n = nameless{}
	}
	source, destination := named(p.Source.String(), n.Address(p.Source)), named(p.Destination.String(), n.Address(p.Destination))
	e := c.Explain(oracle.Packet{Source: p.Source, Destination: p.Destination, Protocol: p.Protocol, Port: p.Port})
	// The tunnel rule matches encapsulated packets only, so no ICMP error.
	forged := e.Egress.Why == oracle.TunnelEnd && p.Conn != Related
	if p.Conn == Unjudged {
		for _, end := range []*oracle.Decision{&e.Egress, &e.Ingress} {
			if end.Node != "" {
				*end = oracle.Decision{Allowed: true, Why: knownToNode}
			}
		}
		e.Allowed = e.Egress.Allowed && e.Ingress.Allowed
	}
	// Policies of a node judge packets that fit no connection.
	nodes := p.Conn == Invalid && c.PodAt(p.Source) == nil && c.PodAt(p.Destination) == nil
	if why := p.Conn.unjudged(); why != "" && !forged && !nodes {
		through := p.Conn != Invalid
		return &Judgement{
			Opinion: Opinion{through, why}, Egress: End{Who: source, Allowed: through, Why: why}, Ingress: End{Who: destination, Allowed: through, Why: why},
		}, nil
	}
	j := &Judgement{
		Opinion: Opinion{Through: e.Allowed}, Egress: endOf(source, e.Egress, e.EgressRules), Ingress: endOf(destination, e.Ingress, e.IngressRules),
	}
	j.Why = j.why()
	return j, nil
}

// knownToNode is the ground of a node's end for connections that began without policy.
const knownToNode oracle.Why = "the node's conntrack knows the connection"

// unjudged returns the reason why policy does not judge packets of such a connection, or "".
func (c Conn) unjudged() string {
	switch c {
	case Allowed, Answer:
		return "the connection was allowed when it began"
	case Related:
		return "it is about a connection that was allowed"
	case Invalid:
		return "it fits no connection"
	}
	return ""
}

func endOf(who string, d oracle.Decision, asked []oracle.Asked) End {
	e := End{Who: who, Allowed: d.Allowed, Why: string(d.Why)}
	if d.Why == oracle.RuleAllows || d.Why == oracle.RuleDenies {
		e.Policy, e.Rule, e.RuleName = d.Policy.String(), d.Rule, d.Title
	}
	for _, r := range d.Passed {
		e.Passed = append(e.Passed, r.Policy.String()+" "+model.TitledRule(r.Rule, r.Title))
	}
	for _, id := range d.Isolating {
		e.Isolating = append(e.Isolating, id.String())
	}
	for _, a := range asked {
		e.Asked = append(e.Asked, Asked{Policy: a.Policy.String(), Rule: a.Rule, Allows: a.Allows, Because: a.Because})
	}
	return e
}

// passed names the rules that passed the packet on before a later tier decided, or "".
func (e *End) passed() string {
	if len(e.Passed) == 0 {
		return ""
	}
	return " (passed on by " + strings.Join(e.Passed, ", ") + ")"
}

// why returns the reason for the verdict as a sentence.
func (j *Judgement) why() string {
	for _, one := range []struct {
		direction model.Direction
		end       End
	}{{model.Egress, j.Egress}, {model.Ingress, j.Ingress}} {
		if !one.end.Allowed && one.end.Rule != "" {
			return fmt.Sprintf("%s of %s: %s %s denies it%s", one.direction, one.end.Who, one.end.Policy, model.TitledRule(one.end.Rule, one.end.RuleName), one.end.passed())
		}
		if !one.end.Allowed && len(one.end.Isolating) == 0 {
			return fmt.Sprintf("%s of %s: %s", one.direction, one.end.Who, one.end.Why)
		}
		if !one.end.Allowed {
			return fmt.Sprintf("%s of %s: isolated by %s, and no rule of theirs allows it%s", one.direction, one.end.Who, strings.Join(one.end.Isolating, ", "), one.end.passed())
		}
	}
	var words []string
	for _, one := range []struct {
		direction model.Direction
		end       End
	}{{model.Egress, j.Egress}, {model.Ingress, j.Ingress}} {
		switch {
		case one.end.Rule != "":
			words = append(words, fmt.Sprintf("%s by %s %s%s", one.direction, one.end.Policy, model.TitledRule(one.end.Rule, one.end.RuleName), one.end.passed()))
		case len(one.end.Passed) > 0:
			words = append(words, fmt.Sprintf("%s by default%s", one.direction, one.end.passed()))
		}
	}
	if len(words) == 0 {
		words = append(words, j.Egress.Why)
	}
	return strings.Join(words, ", ")
}

// Opinion returns the fate of the packet as an Opinion.
func (p *Path) Opinion() Opinion {
	o := Opinion{Through: p.Fate.Through(), Why: string(p.Fate)}
	last := p.Decider()
	switch {
	case p.Fate == Dropped && last != nil:
		o.Why = "dropped at " + p.At
		if last.Comment != "" {
			o.Why += ": " + last.Comment
		}
	case p.Fate == ToPeer:
		o.Why = fmt.Sprintf("went on to %s, which was not asked", p.At)
	case p.At != "":
		o.Why += " " + p.At
	}
	return o
}

// Compare describes the difference between the programmed rules' verdict and the
// policies' verdict, "" if there is none. If the path did not pass the node of one end,
// the policies of that end count as evaluated and passed. If a connection began without
// policy, the switch and the kernel judge its packets as those of a new one.
func Compare(j *Judgement, p *Path) string {
	egress, ingress := j.Egress.Allowed || !p.Egress, j.Ingress.Allowed || !p.Ingress
	want := egress && ingress
	got := p.Opinion()
	if want == got.Through {
		return ""
	}
	return fmt.Sprintf("by the policies the packet is %s (%s), by programmed state %s (%s)", word(want), j.Why, word(got.Through), got.Why)
}

// NoEgress reports whether the packet is dropped because an Egress selects its pod, and the node does not have the
// address. That is no verdict of a policy.
func (p *Path) NoEgress() bool {
	return p.Fate == Dropped && (p.Decider().Table == "chain "+rules.ChainEgressDrops || p.Decider().Table == "chain "+rules.ChainEgressGuard)
}

// ByForeign reports whether a chain of another program drops the packet. That is no verdict of a policy.
func (p *Path) ByForeign() bool {
	return p.Fate == Dropped && p.Decider() != nil && p.Decider().Foreign
}

func word(through bool) string {
	if through {
		return "allowed"
	}
	return "denied"
}

// Policies lists the policies that decided something on the way, each once.
func (p *Path) Policies() []string {
	var all []string
	for _, s := range p.Steps {
		if s.Policy == "" {
			continue
		}
		if text := strings.TrimSpace(s.Policy + " " + s.PolicyRule); !slices.Contains(all, text) {
			all = append(all, text)
		}
	}
	return all
}
