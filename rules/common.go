package rules

import (
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"strings"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
)

// Part is one entry of the common chain: a jump or goto in place of one in the chains
// of many pods. A set has the addresses of these pods.
type Part struct {
	// Set is the name of the set of addresses, without family and version: the name of
	// the chain, which is unique.
	Set string
	// Versions have the version of each family's set (see SetVersion).
	Versions map[model.Family]string
	// Action leads to the chain.
	Action tables.Action
	// Comment describes the target.
	Comment string
}

// Common lists the parts of a direction's common chain in the order of evaluation. The
// caller sorts each list.
type Common struct {
	// Admin are lists of policies of the admin tier (see AdminList).
	Admin []Part
	// Policies are NetworkPolicies of pods without an admin tier.
	Policies []Part
	// Pods are chains of lists of policies (see Applied).
	Pods []Part
}

// CommonChain returns the name of the common chain of a direction. All packets pass
// it before they are dispatched by address.
func CommonChain(d model.Direction) string {
	if d == model.Egress {
		return ChainCommonOut
	}
	return ChainCommonIn
}

// RenderCommon renders the common chain. Verdicts there are final for ingress; egress returns
// allowed packets with MarkJudged.
//
// It saves time on kernels that follow every path when they validate a change. They
// walk a chain once for each of a thousand chains that jump to it, but only once per
// family if the jump is here.
func RenderCommon(d model.Direction, c Common) tables.Chain {
	chain := tables.Chain{Name: CommonChain(d), Origin: tables.OfEveryPod{}}
	if len(c.Admin) > 0 {
		chain.Rules = append(chain.Rules, tables.Rule{Action: tables.SetMark{Value: 0, Mask: MarkPass}, Comment: "admin tier"})
	}
	for _, parts := range [][]Part{c.Admin, c.Policies, c.Pods} {
		for _, p := range parts {
			for _, f := range model.Families() {
				matches := []tables.Match{tables.MatchSet{Family: f, Side: dispatchSide(d), Set: p.SetOf(f)}}
				if d == model.Egress && len(chain.Rules) > 0 {
					matches = append([]tables.Match{notJudged()}, matches...)
				}
				chain.Rules = append(chain.Rules, tables.Rule{Matches: matches, Action: p.Action, Comment: p.Comment})
			}
		}
	}
	return chain
}

// PartSet returns the name of the set of a part's addresses of one family, without
// version. The dot distinguishes it from the sets of groups, which end in "-4" or "-6".
func PartSet(set string, f model.Family) string { return set + "." + f.String() }

// SetOf returns the name of the set of one family's addresses.
func (p Part) SetOf(f model.Family) string { return PartSet(p.Set, f) + p.Versions[f] }

// SetVersion returns the suffix for the name of a set with these members. Drivers need it
// that cannot change sets and rules in one transaction: other members need a set with
// another name, so one step changes the rules from the old set to the new one. Two lists
// of members have the same version in one of a million cases; salt then separates them.
func SetVersion(members []model.Member, salt int) string {
	h := sha256.New()
	fmt.Fprintln(h, salt)
	for _, m := range members {
		fmt.Fprintln(h, m)
	}
	return strings.ToLower(base32.StdEncoding.EncodeToString(h.Sum(nil)))[:versionLength]
}

// WithoutVersion returns the name of a part's set without the version.
func WithoutVersion(set string) string {
	if i := len(set) - versionLength; i > 1 && set[i-2] == '.' {
		return set[:i]
	}
	return set
}

// versionLength is the number of base32 characters (20 bits) of a version.
const versionLength = 4

// PolicyPart returns the part for a policy.
func (r *Renderer) PolicyPart(d model.Direction, id model.PolicyID) Part {
	chain := r.PolicyChain(id, d)
	return Part{Set: r.partSet(chain), Action: tables.Jump{Chain: chain}, Comment: id.String()}
}

// AdminPart returns the part for a list of policies of the admin tier.
func (r *Renderer) AdminPart(d model.Direction, ids []model.PolicyID) Part {
	chain := r.adminChain(d, ids)
	return Part{Set: r.partSet(chain), Action: tables.Jump{Chain: chain}, Comment: "admin tier"}
}

// PodsPart returns the part for the chain of a list of policies.
func (r *Renderer) PodsPart(d model.Direction, a model.Applied) Part {
	return r.PodsPartOf(d, r.AppliedChain(d, a))
}

// PodsPartOf is PodsPart for a caller that has the name of the chain.
func (r *Renderer) PodsPartOf(d model.Direction, chain string) Part {
	return Part{Set: r.partSet(chain), Action: tables.Goto{Chain: chain}, Comment: dispatchComment(d)}
}

// AdminList renders the chain with a list of policies of the admin tier, to which
// the common chain jumps. Packets that the policies do not decide, or pass on, return
// with MarkPass: the mark proves that the admin tier was evaluated.
func (r *Renderer) AdminList(d model.Direction, ids []model.PolicyID, hasRules func(model.PolicyID) bool) tables.Chain {
	return tables.Chain{
		Name:   r.adminChain(d, ids),
		Origin: tables.OfList{Identity: AppliedIdentity(d, model.Applied{Admin: ids}), Admin: true},
		Rules: append(r.admin(d, ids, hasRules),
			tables.Rule{Action: tables.SetMark{Value: MarkPass, Mask: MarkPass}, Comment: "next tier"}),
	}
}

// BehindAdmin renders the chain of Applied if the common chain evaluates the admin
// tier. It drops packets without the mark that proves this. So no order of changes
// lets a packet through that the admin tier denies.
func (r *Renderer) BehindAdmin(d model.Direction, a model.Applied, hasRules func(model.PolicyID) bool) tables.Chain {
	identity := AppliedIdentity(d, a)
	return tables.Chain{
		Name:   r.AppliedChainBy(identity, d, a),
		Origin: tables.OfList{Identity: identity},
		Rules: append([]tables.Rule{{
			Matches: []tables.Match{tables.MatchMark{Value: MarkPass, Mask: MarkPass, Negated: true}},
			Action:  Deny(d), Comment: "admin tier was not asked",
		}}, r.lowerTiers(d, a, hasRules)...),
	}
}

// Size returns how many rules a policy has in a direction for one family.
func Size(p *model.Policy, d model.Direction) int {
	n := 0
	for _, r := range p.Rules(d) {
		peers, ports := len(r.Peers), len(r.Ports)+len(r.NamedPorts)
		if r.AnyPeer {
			peers = 1
		}
		if r.AnyPort {
			ports = 1
		}
		n += peers * ports
	}
	return n
}
