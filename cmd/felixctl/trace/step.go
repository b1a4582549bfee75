package trace

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/rules"
	"github.com/felixlike/felixlike/tables/iptables"
)

// Step is one thing that happened to the packet.
type Step struct {
	// Node is the name of the node. Place holds the rule: the bridge, a table of
	// netfilter, or the host's routing.
	Node  string `json:"node"`
	Place string `json:"place"`
	// Table is the chain, or the OpenFlow table.
	Table string `json:"table,omitempty"`
	// Number is the rule's place in its chain, from 1, or the flow's priority.
	Number int `json:"number,omitempty"`
	// Rule is the rule or flow as text.
	Rule string `json:"rule,omitempty"`
	// Effect describes the effect of the rule on the packet.
	Effect string `json:"effect"`
	// Comment is the purpose of the rule, as its author wrote it.
	Comment string `json:"comment,omitempty"`
	// Policy and PolicyRule are the Kubernetes policy, and the rule of it, behind the
	// rule. RuleName is the name that the author gave PolicyRule.
	Policy     string `json:"policy,omitempty"`
	PolicyRule string `json:"policyRule,omitempty"`
	RuleName   string `json:"ruleName,omitempty"`
	// Sets are the memberships that made it match.
	Sets []Membership `json:"sets,omitempty"`
	// Missed are the rules of policies that were asked before and did not match.
	Missed []Miss `json:"missed,omitempty"`
	// Foreign is set if the chain is another program's.
	Foreign bool `json:"foreign,omitempty"`
}

// Membership is a member of a set, or of a conjunction's dimension, that matched a
// packet.
type Membership struct {
	Set    string `json:"set"`
	Member string `json:"member"`
	// Owner is the owner of the member's address, About the meaning of the set; both
	// are empty if unknown.
	Owner string `json:"owner,omitempty"`
	About string `json:"about,omitempty"`
}

// Miss is a rule of a policy that was evaluated and did not match.
type Miss struct {
	Policy     string `json:"policy"`
	PolicyRule string `json:"policyRule,omitempty"`
	RuleName   string `json:"ruleName,omitempty"`
	Rule       string `json:"rule,omitempty"`
	// Because is the first of its conditions that failed.
	Because string `json:"because"`
}

// Fate is the end of a packet's path.
type Fate string

// The fates.
const (
	// ToPod and ToNode: it came to where it was sent.
	ToPod  Fate = "delivered to the pod"
	ToNode Fate = "delivered to the node"
	// Outside: it left the cluster.
	Outside Fate = "left the cluster"
	// ToPeer: it went on to a node that was not asked.
	ToPeer Fate = "went to a node that was not asked"
	// Dropped: a rule or flow dropped it.
	Dropped Fate = "dropped"
	// Stayed: it never left its sender.
	Stayed Fate = "stayed in the pod"
)

// Through reports whether it was not dropped.
func (f Fate) Through() bool { return f != Dropped }

// Path is the path of a packet.
type Path struct {
	Packet Packet `json:"packet"`
	Steps  []Step `json:"steps"`
	Fate   Fate   `json:"fate"`
	// At is its end: a pod, a node, or the place that dropped it.
	At string `json:"at,omitempty"`
	// Egress and Ingress are true if the node of the source or of the destination was
	// on the way, so that its policies were evaluated.
	Egress  bool `json:"egressAsked"`
	Ingress bool `json:"ingressAsked"`
}

// Decider returns the step that decided, or nil.
func (p *Path) Decider() *Step { return Decider(p.Steps) }

// Decider returns the last step. If that is in the chain of all denied or rejected packets,
// Decider returns the step that led there, because it has the reason.
func Decider(steps []Step) *Step {
	last := len(steps) - 1
	if last >= 0 && steps[last].chain() == rules.ChainAnswer {
		// The packet passed other tables on its way there.
		for last > 0 && !steps[last].afterDenial() {
			last--
		}
	}
	for last > 0 && steps[last].afterDenial() {
		last--
	}
	if last < 0 {
		return nil
	}
	return &steps[last]
}

// chain returns the name of the step's chain, which is the same under both netfilter
// backends.
func (s *Step) chain() string {
	return strings.TrimPrefix(strings.TrimPrefix(s.Table, "chain "), iptables.Prefix)
}

// afterDenial reports whether the step is in a chain of all denied or rejected packets.
func (s *Step) afterDenial() bool {
	chain := s.chain()
	return slices.ContainsFunc(model.Directions(), func(d model.Direction) bool {
		return chain == rules.DeniedChain(d) || chain == rules.RejectedChain(d) || chain == rules.HostsDenied(d) || chain == rules.HostsRejected(d) ||
			chain == rules.ChainHostsDeniedPreDNAT || chain == rules.ChainHostsRejectedPreDNAT
	})
}

// Namer returns readable names for the objects in steps. Every method may return "".
type Namer interface {
	// Address names the owner of an address.
	Address(netip.Addr) string
	// Set describes the meaning of a set; the name is as in rules.
	Set(name string) string
	// Conjunction returns the policy and the rule of it that have an id.
	Conjunction(id uint32) (policy, rule string)
	// RuleName returns the name that the author gave a rule of a policy.
	RuleName(policy, rule string) string
	// Port names the owner of a port of the node's bridge.
	Port(node string, port uint32) string
}

// nameless names nothing.
type nameless struct{}

func (nameless) Address(netip.Addr) string           { return "" }
func (nameless) Set(string) string                   { return "" }
func (nameless) Conjunction(uint32) (string, string) { return "", "" }
func (nameless) RuleName(string, string) string      { return "" }
func (nameless) Port(string, uint32) string          { return "" }

// named appends a name in brackets, if there is one.
func named(text, name string) string {
	if name == "" {
		return text
	}
	return fmt.Sprintf("%s (%s)", text, name)
}

// UnknownRule is a rule on the packet's way that the tracer cannot read: where it
// leads is not known, and not guessed.
type UnknownRule struct {
	Place, Table string
	Number       int
	Text, Reason string
}

// Error names the rule.
func (e *UnknownRule) Error() string {
	return fmt.Sprintf("%s: %s: rule %d (%s): %s: it may decide about the packet, and this tracer does not know its form",
		e.Place, e.Table, e.Number, e.Text, e.Reason)
}

// NameRules sets the names that the authors gave the rules of steps.
func NameRules(steps []Step, n Namer) {
	for i := range steps {
		s := &steps[i]
		s.RuleName = n.RuleName(s.Policy, s.PolicyRule)
		for j := range s.Missed {
			m := &s.Missed[j]
			m.RuleName = n.RuleName(m.Policy, m.PolicyRule)
		}
	}
}
