package compile

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/felixlike/felixlike/felixlike/antrea"
	"github.com/felixlike/felixlike/felixlike/policy/label"
	"github.com/felixlike/felixlike/model"
)

// MaxEgressRules bounds the rules of an EgressNetworkPolicy, as OpenShift does.
const MaxEgressRules = 1_000

// EgressNetworkPolicy returns the policy of an EgressNetworkPolicy for the pods of namespaces, and reports each invalid part. What
// stays in the cluster goes on to the tiers. The first rule that matches other packets decides, and an Allow goes on, too. So only
// rules that deny are in the model, each with the addresses that no earlier rule has: their order has no meaning. An Allow that is
// not understood matches nothing, and another such rule denies everything. If the object is in conflict with another one,
// it denies everything. The policy is nil if it denies nothing.
func EgressNetworkPolicy(o *antrea.EgressNetworkPolicy, namespaces []string, conflict bool, ids GroupIDs) (*Policy, []model.Problem) {
	c := compiler{ids: ids, Report: Report{Object: o.ID().Ref()}}
	out := &Policy{
		Model: model.Policy{
			ID:         model.PolicyID{Tier: model.TierAdmin, API: model.EgressNetworkPolicy, Namespace: o.Namespace, Name: o.Name},
			Precedence: model.PrecedenceBeforeTiers(),
		},
		Egress: true,
	}
	for _, n := range namespaces {
		out.Targets = append(out.Targets, Selection{Namespace: n, Pods: label.Everything()})
	}
	stays := model.Rule{
		Name: "cluster", Title: "pods of the cluster", Action: model.Next, AnyPort: true,
		Peers: []model.GroupID{c.define(ids.clusterGroup(PodPrefixes))},
	}
	if Staged(o.Annotations) {
		c.Add(annotationField(model.EnforceAnnotation), "not supported for EgressNetworkPolicies: the policy is enforced")
	}
	var denied []model.Rule
	if conflict {
		denied = []model.Rule{closedEgress("in conflict")}
	} else {
		denied = c.egressRules(o.Spec.Egress)
	}
	if len(denied) == 0 {
		return nil, c.Problems
	}
	out.Model.Egress = append([]model.Rule{stays}, denied...)
	c.closeCollided(&out.Model)
	out.Groups = c.used(&out.Model)
	return out, c.Problems
}

func closedEgress(title string) model.Rule {
	rule := denyAll("egress")
	rule.Title = title
	return rule
}

// egressRules returns the rules that deny.
func (c *compiler) egressRules(rules []antrea.EgressNetworkPolicyRule) []model.Rule {
	if len(rules) > MaxEgressRules {
		c.Add("spec.egress", "%d rules, the limit is %d; everything that leaves the cluster is denied", len(rules), MaxEgressRules)
		return []model.Rule{closedEgress("too many rules")}
	}
	var all []model.Rule
	var taken []netip.Prefix
	for i := range rules {
		r := parseEgressRule(&rules[i])
		if r.fault != "" {
			effect := "the rule matches nothing"
			if r.deny {
				effect = "the rule denies everything that leaves the cluster"
			}
			c.Add(indexed("spec.egress", i)+r.field, "%s; %s", r.fault, effect)
		}
		if r.deny {
			groups, err := c.ids.ofBlocks(without(r.prefixes, taken))
			if err != nil {
				c.Add(indexed("spec.egress", i), "cannot combine it with earlier rules: %v; everything that leaves the cluster is denied", err)
				return []model.Rule{closedEgress("not understood")}
			}
			rule := model.Rule{Name: indexed("egress", i), Title: r.title, Action: model.Deny, AnyPort: true}
			for _, g := range groups {
				rule.Peers = append(rule.Peers, c.define(g))
			}
			if len(groups) > 0 {
				all = append(all, rule)
			}
		}
		taken = append(taken, r.prefixes...)
	}
	if reason := c.exceeded(all); reason != "" {
		c.Add("spec.egress", "%s; everything that leaves the cluster is denied", reason)
		return []model.Rule{closedEgress("too many rules")}
	}
	return all
}

// without returns prefixes without the addresses of others.
func without(prefixes, others []netip.Prefix) []ipBlock {
	var all []ipBlock
	for _, p := range prefixes {
		b := ipBlock{cidr: p}
		left := !slices.ContainsFunc(others, func(o netip.Prefix) bool {
			if p.Overlaps(o) && o.Bits() > p.Bits() {
				b.excepts = append(b.excepts, o)
				return false
			}
			return p.Overlaps(o)
		})
		if left {
			all = append(all, b)
		}
	}
	return all
}

// egressRule is what a rule of an EgressNetworkPolicy means.
type egressRule struct {
	deny         bool
	prefixes     []netip.Prefix
	title        string
	field, fault string
}

func parseEgressRule(r *antrea.EgressNetworkPolicyRule) egressRule {
	to := r.To
	out := egressRule{deny: r.Type != antrea.EgressAllow, title: model.RuleTitle(cmp.Or(to.CIDRSelector, to.DNSName))}
	cidr := to.CIDRSelector
	if cidr == "0.0.0.0/32" {
		cidr = "0.0.0.0/0" // OpenShift SDN reads it so
	}
	p, err := ParseCIDR(cidr)
	switch {
	case out.deny && r.Type != antrea.EgressDeny:
		out.field, out.fault = ".type", fmt.Sprintf("%q is not Allow or Deny", r.Type)
	case (to.CIDRSelector == "") == (to.DNSName == ""):
		out.field, out.fault = ".to", "needs cidrSelector or dnsName"
	case to.DNSName != "":
		out.field, out.fault = ".to.dnsName", "not supported"
	case err != nil:
		out.field, out.fault = ".to.cidrSelector", err.Error()
	default:
		out.prefixes = []netip.Prefix{p}
		return out
	}
	if out.deny {
		out.prefixes = []netip.Prefix{netip.PrefixFrom(netip.IPv4Unspecified(), 0), netip.PrefixFrom(netip.IPv6Unspecified(), 0)}
	}
	return out
}

// EgressDenial returns the index of the rule that denies an address outside of the cluster, or false.
func EgressDenial(o *antrea.EgressNetworkPolicy, a netip.Addr) (int, bool) {
	for i := range o.Spec.Egress {
		if r := parseEgressRule(&o.Spec.Egress[i]); slices.ContainsFunc(r.prefixes, func(p netip.Prefix) bool { return p.Contains(a) }) {
			return i, r.deny
		}
	}
	return 0, false
}
