package migrate

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha1"
	policyapi "sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/felixlike/felixlike/felixlike/datastore/strict"
)

// mostOfEach is how many rules a direction of a ClusterNetworkPolicy may have, how many peers a rule, and how many ports. In
// v1alpha1 all three are 100.
const mostOfEach = 25

// baselineName names what the BaselineAdminNetworkPolicy becomes, which is always called default.
const baselineName = "baseline-default"

func isAdminPolicy(r Ref) bool {
	return r.APIVersion == v1alpha1.GroupVersion.String() && (r.Kind == "AdminNetworkPolicy" || r.Kind == "BaselineAdminNetworkPolicy")
}

// admin converts a policy of the version of this API before ClusterNetworkPolicy, which has other names for the same things
// (https://network-policy-api.sigs.k8s.io). What it does not rename stays as it is in the input, so that an absent field stays absent.
func (c *conversion) admin(at int, d document) error {
	row := c.row(at)
	becomes := Ref{APIVersion: policyapi.GroupVersion.String(), Kind: "ClusterNetworkPolicy", Name: d.ref.Name}
	tier, understood := policyapi.AdminTier, any(new(v1alpha1.AdminNetworkPolicySpec))
	if d.ref.Kind == "BaselineAdminNetworkPolicy" {
		becomes.Name, tier, understood = baselineName, policyapi.BaselineTier, any(new(v1alpha1.BaselineAdminNetworkPolicySpec))
	}
	for _, name := range d.others {
		row.refuse(name, "has no counterpart")
	}
	if len(d.spec) == 0 || string(d.spec) == "null" {
		row.refuse("spec", "required")
		return nil
	}
	for _, f := range strict.Decode(d.spec, understood) {
		row.refuse(specField(f.Field), "%s", reasonOf(f))
	}
	if len(row.Losses) > 0 {
		return nil
	}
	var spec map[string]any
	if err := json.Unmarshal(d.spec, &spec); err != nil {
		return err
	}
	spec["tier"] = tier
	if tier == policyapi.BaselineTier {
		spec["priority"] = 0
	}
	for direction, peers := range map[string]string{"ingress": "from", "egress": "to"} {
		var rules []any
		list, _ := spec[direction].([]any)
		for i, r := range list {
			rule, _ := r.(map[string]any)
			some, err := ofAdminRule(rule, peers)
			if err != nil {
				row.refuse(fmt.Sprintf("spec.%s[%d]", direction, i), "%v", err)
				return nil
			}
			rules = append(rules, some...)
		}
		if len(rules) > mostOfEach {
			row.refuse("spec."+direction, "becomes %d rules, and a ClusterNetworkPolicy has at most %d: write it as several policies", len(rules), mostOfEach)
			return nil
		}
		if spec[direction] != nil {
			spec[direction] = rules
		}
	}
	c.result.output = append(c.result.output, map[string]any{
		"apiVersion": becomes.APIVersion, "kind": becomes.Kind, "spec": spec,
		"metadata": map[string]any{"name": becomes.Name, "annotations": map[string]string{OriginAnnotation: row.Object.String()}},
	})
	row.Becomes = []Ref{becomes}
	return nil
}

// ofAdminRule returns the rules that a rule becomes: more than one if it has more peers or ports than a rule may have.
func ofAdminRule(rule map[string]any, peers string) ([]any, error) {
	if rule["action"] == string(v1alpha1.AdminNetworkPolicyRuleActionAllow) {
		rule["action"] = policyapi.ClusterNetworkPolicyRuleActionAccept
	} else if rule["action"] == string(policyapi.ClusterNetworkPolicyRuleActionAccept) {
		return nil, errors.New(`action "Accept" is not known`)
	}
	protocols := [][]any{nil}
	if ports, given := rule["ports"].([]any); given {
		var all []any
		for i, p := range ports {
			port, _ := p.(map[string]any)
			one, err := ofAdminPort(port)
			if err != nil {
				return nil, fmt.Errorf("ports[%d]: %w", i, err)
			}
			all = append(all, one)
		}
		if len(all) == 0 {
			return nil, errors.New("ports is empty")
		}
		protocols = slices.Collect(slices.Chunk(all, mostOfEach))
	}
	delete(rule, "ports")
	list, _ := rule[peers].([]any)
	if len(list) == 0 {
		return nil, fmt.Errorf("%s is empty", peers)
	}
	var becomes []any
	for some := range slices.Chunk(list, mostOfEach) {
		for _, ports := range protocols {
			one := maps.Clone(rule)
			one[peers] = some
			if ports != nil {
				one["protocols"] = ports
			}
			becomes = append(becomes, one)
		}
	}
	return becomes, nil
}

func ofAdminPort(port map[string]any) (any, error) {
	if len(port) != 1 {
		return nil, fmt.Errorf("has %d of portNumber, portRange and namedPort, not 1", len(port))
	}
	if port["namedPort"] != nil {
		return map[string]any{"destinationNamedPort": port["namedPort"]}, nil
	}
	number, isNumber := port["portNumber"].(map[string]any)
	fields, isRange := port["portRange"].(map[string]any)
	if !isNumber && !isRange {
		return nil, errors.New("is empty")
	}
	destination := map[string]any{"range": fields}
	if isNumber {
		fields, destination = number, map[string]any{"number": number["port"]}
	}
	protocol, _ := fields["protocol"].(string)
	protocol = cmp.Or(protocol, string(corev1.ProtocolTCP)) // the default of the API
	member := map[string]string{"TCP": "tcp", "UDP": "udp", "SCTP": "sctp"}[protocol]
	if member == "" {
		return nil, fmt.Errorf("protocol %q is not known", protocol)
	}
	delete(fields, "protocol")
	return map[string]any{member: map[string]any{"destinationPort": destination}}, nil
}
