package strict

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/felixlike/felixlike/felixlike/antrea"
	"github.com/felixlike/felixlike/model"
)

// The values that stand for a tier and for a priority that are not understood. No object can have
// them.
const (
	noTier         = "(not understood)"
	noPriority     = 0
	noTierPriority = -1
)

// DecodeAntrea decodes an object of Antrea's API, without its name. If it has faults, the object
// has what is understood of it, and the rest is such that the policy engine closes it: a rule with
// a fault has a peer without a field, an appliedTo with a fault is an entry without a field, and
// tier and priority are no valid ones. A rule with a fault and l7Protocols has no action, which denies everything. A field that is not known may be a misspelt direction: each
// direction then has one rule without action, which denies everything. A group or a tier with a
// fault has no members or place, so that the rules and policies that name it fail closed. An ExternalIPPool with a
// fault has no nodes. An Egress with a fault has
// no address, and one with a fault in its appliedTo has none of that either. A NetNamespace with a fault has no number, and an
// address that is none unless its addresses are understood. A HostSubnet with a fault has no addresses.
// A rule of an EgressNetworkPolicy with a fault has no peer, and the rest of the object with one is a rule without a type.
func DecodeAntrea(kind antrea.Kind, data []byte) (antrea.Object, []Fault) {
	object := kind.New()
	faults := Decode(data, object)
	if len(faults) == 0 {
		return object, nil
	}
	return ClosedAntrea(kind, data), faults
}

// CloseAntrea replaces the rules of a policy by one without action in each direction, which denies
// everything, and the content of a group or a tier by none. It takes the address from an Egress.
func CloseAntrea(object antrea.Object) {
	if spec := antreaSpec(object); spec != nil {
		spec.Ingress, spec.Egress = []antrea.Rule{{}}, []antrea.Rule{{}}
		if len(spec.AppliedTo) == 0 {
			spec.AppliedTo = []antrea.AppliedTo{{}}
		}
	}
	switch o := object.(type) {
	case *antrea.Tier:
		o.Spec = antrea.TierSpec{Priority: noTierPriority}
	case *antrea.ClusterGroup:
		o.Spec = antrea.GroupSpec{}
	case *antrea.Group:
		o.Spec = antrea.GroupSpec{}
	case *antrea.ExternalIPPool:
		o.Spec = closedPool()
	case *antrea.OwnExternalIPPool:
		o.Spec = closedPool()
	case *antrea.Egress:
		o.Spec.EgressIP, o.Spec.ExternalIPPool = "", ""
	case *antrea.NodeEgress:
		o.Spec.EgressIP, o.Spec.ExternalIPPool = "", ""
	case *antrea.NetNamespace:
		o.NetID = nil
	case *antrea.HostSubnet:
		o.EgressIPs, o.EgressCIDRs = nil, nil
	case *antrea.EgressNetworkPolicy:
		o.Spec.Egress = []antrea.EgressNetworkPolicyRule{{}}
	}
}

func antreaSpec(object antrea.Object) *antrea.PolicySpec {
	switch o := object.(type) {
	case *antrea.ClusterNetworkPolicy:
		return &o.Spec
	case *antrea.NetworkPolicy:
		return &o.Spec
	}
	return nil
}

// ClosedAntrea returns what is understood of an object with faults.
func ClosedAntrea(kind antrea.Kind, data []byte) antrea.Object {
	object := kind.New()
	fields, known := members(data, "apiVersion", "kind", "metadata", "spec", "status")
	switch o := object.(type) {
	case *antrea.Tier:
		if !known || !understood(fields["spec"], &o.Spec) {
			o.Spec = antrea.TierSpec{Priority: noTierPriority}
		}
	case *antrea.ClusterGroup:
		if !known || !understood(fields["spec"], &o.Spec) {
			o.Spec = antrea.GroupSpec{}
		}
	case *antrea.Group:
		if !known || !understood(fields["spec"], &o.Spec) {
			o.Spec = antrea.GroupSpec{}
		}
	case *antrea.ClusterNetworkPolicy:
		o.Spec = closedAntreaSpec(fields["spec"], known)
	case *antrea.NetworkPolicy:
		o.Spec = closedAntreaSpec(fields["spec"], known)
	case *antrea.ExternalIPPool:
		o.Spec = closedPool()
	case *antrea.OwnExternalIPPool:
		o.Spec = closedPool()
	case *antrea.Egress:
		o.Spec.AppliedTo = closedEgress(fields["spec"])
	case *antrea.NodeEgress:
		o.Spec.AppliedTo = closedEgress(fields["spec"])
	case *antrea.NetNamespace:
		if _, known := members(data, "apiVersion", "kind", "metadata", "netname", "netid", "egressIPs"); !known || len(fields["egressIPs"]) > 0 && !understood(fields["egressIPs"], &o.EgressIPs) {
			o.EgressIPs = []string{""}
		}
	case *antrea.EgressNetworkPolicy:
		o.Spec.Egress = closedEgressRules(fields["spec"], known)
	}
	return object
}

// closedEgressRules returns the rules of an EgressNetworkPolicy with a fault. Of a rule with one only the type is left.
func closedEgressRules(spec json.RawMessage, known bool) []antrea.EgressNetworkPolicyRule {
	fields, specKnown := members(spec, "egress")
	if !known || !specKnown || len(fields["egress"]) == 0 {
		return []antrea.EgressNetworkPolicyRule{{}}
	}
	var all []antrea.EgressNetworkPolicyRule
	for _, raw := range rulesOf(fields["egress"]) {
		var rule antrea.EgressNetworkPolicyRule
		if !understood(raw, &rule) {
			fields, _ := members(raw)
			if rule = (antrea.EgressNetworkPolicyRule{}); !understood(fields["type"], &rule.Type) {
				rule.Type = ""
			}
		}
		all = append(all, rule)
	}
	return all
}

// closedPool returns the content of a pool with a fault: a selector that is not valid, so that no node holds its addresses.
func closedPool() antrea.ExternalIPPoolSpec {
	return antrea.ExternalIPPoolSpec{NodeSelector: metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{}}}}
}

// closedEgress returns the appliedTo of an Egress with a fault, as far as it is understood.
func closedEgress(data json.RawMessage) antrea.AppliedTo {
	fields, _ := members(data)
	var pods antrea.AppliedTo
	if !understood(fields["appliedTo"], &pods) {
		return antrea.AppliedTo{}
	}
	return pods
}

// closedAntreaSpec returns what is understood of a policy's spec.
func closedAntreaSpec(data json.RawMessage, known bool) antrea.PolicySpec {
	fields, specKnown := members(data, "tier", "priority", "appliedTo", "ingress", "egress")
	var spec antrea.PolicySpec
	if len(fields) == 0 {
		return spec
	}
	if len(fields["tier"]) > 0 && !understood(fields["tier"], &spec.Tier) {
		spec.Tier = noTier
	}
	if !understood(fields["priority"], &spec.Priority) {
		spec.Priority = noPriority
	}
	spec.AppliedTo = closedAppliedTo(fields["appliedTo"])
	rules := func(raw json.RawMessage, closed func(*antrea.Rule)) []antrea.Rule {
		var all []antrea.Rule
		for _, raw := range rulesOf(raw) {
			var rule antrea.Rule
			if !understood(raw, &rule) {
				fields, _ := members(raw)
				rule = antrea.Rule{AppliedTo: closedAppliedTo(fields["appliedTo"])}
				if len(rulesOf(fields["l7Protocols"])) > 0 || !understood(fields["action"], &rule.Action) {
					rule.Action = ""
				}
				closed(&rule)
			}
			all = append(all, rule)
		}
		return all
	}
	spec.Ingress = rules(fields["ingress"], func(r *antrea.Rule) { r.From = []antrea.Peer{{}} })
	spec.Egress = rules(fields["egress"], func(r *antrea.Rule) { r.To = []antrea.Peer{{}} })
	if !known || !specKnown {
		rule := antrea.Rule{}
		if len(spec.AppliedTo) == 0 {
			// The rules may have one each: then those of all.
			for _, r := range append(spec.Ingress, spec.Egress...) {
				rule.AppliedTo = append(rule.AppliedTo, r.AppliedTo...)
			}
		}
		spec.Ingress, spec.Egress = []antrea.Rule{rule}, []antrea.Rule{rule}
	}
	return spec
}

// closedAppliedTo returns the entries of a list, and in place of one with a fault, or of no list,
// an entry without a field.
func closedAppliedTo(data json.RawMessage) []antrea.AppliedTo {
	var all []antrea.AppliedTo
	for _, raw := range rulesOf(data) {
		var entry antrea.AppliedTo
		if !understood(raw, &entry) {
			entry = antrea.AppliedTo{}
		}
		all = append(all, entry)
	}
	return all
}

// Staged reports whether the annotations of an object say that it is not enforced, whatever else in it is not understood.
func Staged(data []byte) bool {
	var o struct {
		Metadata struct {
			Annotations map[string]json.RawMessage `json:"annotations"`
		} `json:"metadata"`
	}
	return json.Unmarshal(data, &o) == nil && string(o.Metadata.Annotations[model.EnforceAnnotation]) == `"no"`
}
