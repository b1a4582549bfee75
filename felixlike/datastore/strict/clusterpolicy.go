package strict

import (
	"encoding/json"
	"fmt"

	"sigs.k8s.io/network-policy-api/apis/v1alpha2"
)

// ClosedSpec returns the spec of a ClusterNetworkPolicy in which Decode found faults, as
// far as it is understood. The rest is left empty, which the policy engine takes as its
// API says: a rule without peers or action fails closed, and so does a policy without
// tier, priority or subject. A field that is not known may be a misspelt direction, or
// change the meaning of all rules: each direction then has one rule without action, which
// denies everything.
func ClosedSpec(data []byte) v1alpha2.ClusterNetworkPolicySpec {
	object, known := members(data, "apiVersion", "kind", "metadata", "spec", "status")
	fields, specKnown := members(object["spec"], "tier", "priority", "subject", "ingress", "egress")
	var spec v1alpha2.ClusterNetworkPolicySpec
	if len(fields) == 0 {
		return spec
	}
	if !understood(fields["tier"], &spec.Tier) {
		spec.Tier = ""
	}
	if !understood(fields["priority"], &spec.Priority) {
		spec.Priority = -1
	}
	if !understood(fields["subject"], &spec.Subject) {
		spec.Subject = v1alpha2.ClusterNetworkPolicySubject{}
	}
	if !known || !specKnown {
		Close(&spec)
		return spec
	}
	for _, raw := range rulesOf(fields["ingress"]) {
		var rule v1alpha2.ClusterNetworkPolicyIngressRule
		if !understood(raw, &rule) {
			rule = v1alpha2.ClusterNetworkPolicyIngressRule{Action: actionOf(raw)}
		}
		spec.Ingress = append(spec.Ingress, rule)
	}
	for _, raw := range rulesOf(fields["egress"]) {
		var rule v1alpha2.ClusterNetworkPolicyEgressRule
		if !understood(raw, &rule) {
			rule = v1alpha2.ClusterNetworkPolicyEgressRule{Action: actionOf(raw)}
		}
		spec.Egress = append(spec.Egress, rule)
	}
	return spec
}

// Close replaces the rules by one without action in each direction, which denies everything.
func Close(spec *v1alpha2.ClusterNetworkPolicySpec) {
	spec.Ingress = []v1alpha2.ClusterNetworkPolicyIngressRule{{}}
	spec.Egress = []v1alpha2.ClusterNetworkPolicyEgressRule{{}}
}

// members returns the members of a JSON object, and reports whether all names are known.
func members(data json.RawMessage, names ...string) (map[string]json.RawMessage, bool) {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(data, &all); err != nil {
		return nil, false
	}
	known := 0
	for _, name := range names {
		if _, given := all[name]; given {
			known++
		}
	}
	return all, known == len(all)
}

// understood decodes a value and reports whether it was given and has no faults.
func understood(data json.RawMessage, into any) bool {
	return len(data) > 0 && len(Decode(data, into)) == 0
}

// rulesOf returns the rules of a direction. If they are no list, it returns one rule of
// which nothing is understood.
func rulesOf(data json.RawMessage) []json.RawMessage {
	if len(data) == 0 {
		return nil
	}
	var rules []json.RawMessage
	if err := json.Unmarshal(data, &rules); err != nil {
		return []json.RawMessage{nil}
	}
	return rules
}

// actionOf returns the action of a rule, or "" if it is missing or unknown.
func actionOf(data json.RawMessage) v1alpha2.ClusterNetworkPolicyRuleAction {
	fields, _ := members(data)
	var action v1alpha2.ClusterNetworkPolicyRuleAction
	if !understood(fields["action"], &action) {
		return ""
	}
	return action
}

// emptyProtocols finds rules of a ClusterNetworkPolicy with an empty list of protocols. The API demands one
// item. Encoding such a rule again would drop the list, and the rule would match all protocols.
func emptyProtocols(object any) []Fault {
	empty := func(p []v1alpha2.ClusterNetworkPolicyProtocol) bool { return p != nil && len(p) == 0 }
	var faults []Fault
	fault := func(field string) {
		faults = append(faults, Fault{Field: field + "protocols", Reason: "must have at least one item"})
	}
	switch o := object.(type) {
	case *v1alpha2.ClusterNetworkPolicyIngressRule:
		if empty(o.Protocols) {
			fault("")
		}
	case *v1alpha2.ClusterNetworkPolicyEgressRule:
		if empty(o.Protocols) {
			fault("")
		}
	case *v1alpha2.ClusterNetworkPolicy:
		for i, r := range o.Spec.Ingress {
			if empty(r.Protocols) {
				fault(fmt.Sprintf("spec.ingress[%d].", i))
			}
		}
		for i, r := range o.Spec.Egress {
			if empty(r.Protocols) {
				fault(fmt.Sprintf("spec.egress[%d].", i))
			}
		}
	}
	return faults
}
