package migrate

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/felixlike/felixlike/felixlike/antrea"
	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/felixlike/datastore/manifests"
	"github.com/felixlike/felixlike/felixlike/policy"
	"github.com/felixlike/felixlike/felixlike/policy/compile"
	"github.com/felixlike/felixlike/model"
)

// refused reads the output as an agent does, and adds everything that it refuses to the objects of the input.
func (c *conversion) refused(owners map[Ref]int) error {
	text, err := c.result.YAML()
	if err != nil {
		return err
	}
	events, problems := manifests.Parse("output.yaml", text)
	undecoded := len(problems)
	engine := policy.New("")
	engine.SetIsolation(true) // EgressNetworkPolicies mean nothing without it
	for _, e := range events {
		switch set := e.(type) {
		case datastore.NetworkPolicySet:
			problems = append(problems, engine.SetNetworkPolicy(set.Policy)...)
		case datastore.ClusterNetworkPolicySet:
			problems = append(problems, engine.SetClusterNetworkPolicy(set.Policy)...)
		case datastore.AntreaSet:
			engine.SetAntrea(set.Object)
		}
	}
	for i, p := range slices.Concat(problems, engine.AntreaProblems()) {
		at, found := ownerOf(owners, p.Object)
		if !found {
			return p
		}
		switch row := c.row(at); {
		case !slices.Contains(row.Becomes, row.Object) && (!isAdminPolicy(row.Object) || c.denies(row.Becomes[0], "")):
			row.loosen(p.Field, "felixlike refuses what it converts to: %s. If the API server refuses it too, it denies nothing", p.Reason)
		case i < undecoded && c.denies(row.Object, ""):
			row.loosen(p.Field, "felixlike refuses it: %s. If the API server refuses it too, it denies nothing", p.Reason)
		case (strings.HasSuffix(p.Reason, compile.SelectsNoPod) || strings.HasSuffix(p.Reason, compile.SelectsNoNode)) && c.denies(row.Object, p.Field):
			row.loosen(p.Field, "felixlike refuses it: %s, so its Drop or Reject denies nothing there", p.Reason)
		default:
			row.lose(p.Field, "felixlike refuses it: %s", p.Reason)
		}
	}
	c.ownNode(events)
	return nil
}

// denies reports whether an object that is kept as it is denies anything: by isolation, or by a rule. A field in a rule asks for that rule.
func (c *conversion) denies(of Ref, field string) bool {
	if of.APIVersion == networkingv1.SchemeGroupVersion.String() {
		return true
	}
	for _, o := range c.result.output {
		object, kept := o.(map[string]any)
		if !kept || refIn(object) != of {
			continue
		}
		spec, _ := object["spec"].(map[string]any)
		for _, direction := range []string{"ingress", "egress"} {
			rules, _ := spec[direction].([]any)
			for i, r := range rules {
				rule, _ := r.(map[string]any)
				action, _ := rule["action"].(string)
				if isEgressPolicy(of) {
					action, _ = rule["type"].(string)
				}
				ofRule := strings.HasPrefix(field, "spec.ingress[") || strings.HasPrefix(field, "spec.egress[")
				if ofRule && !strings.HasPrefix(field, fmt.Sprintf("spec.%s[%d]", direction, i)) {
					continue
				}
				if slices.Contains([]string{"Drop", "Reject", "Deny"}, action) {
					return true
				}
			}
		}
	}
	return false
}

// refIn returns the name of an object.
func refIn(object map[string]any) Ref {
	text := func(fields map[string]any, name string) string { s, _ := fields[name].(string); return s }
	meta, _ := object["metadata"].(map[string]any)
	return Ref{text(object, "apiVersion"), text(object, "kind"), text(meta, "namespace"), text(meta, "name")}
}

// ownNode says which policies leave their pods' own node open: no NetworkPolicy of Kubernetes denies it (docs/explain/guarantees/always.md).
func (c *conversion) ownNode(events []datastore.Event) {
	var names []string
	for _, e := range events {
		if set, is := e.(datastore.NetworkPolicySet); is && slices.Contains(set.Policy.Spec.PolicyTypes, networkingv1.PolicyTypeEgress) {
			names = append(names, set.Policy.Namespace+"/"+set.Policy.Name)
		}
	}
	if len(names) == 0 {
		return
	}
	slices.Sort(names)
	c.loosen("Each pod whose egress a NetworkPolicy of Kubernetes isolates still reaches its own node, on every port. Calico and Cilium deny that without a rule. " +
		"A ClusterNetworkPolicy with a Deny of nodes closes it (docs/explain/guarantees/always.md). The policies: " + strings.Join(names, ", "))
}

// foreignBlocks names ipBlocks of a NetworkPolicy that match pods and nodes of the cluster here, but not under Cilium:
// https://docs.cilium.io/en/stable/network/kubernetes/policy/ and issue 9209 of Cilium.
func (c *conversion) foreignBlocks(at int, raw json.RawMessage) {
	var policy networkingv1.NetworkPolicy
	if err := json.Unmarshal(raw, &policy); err != nil {
		return // named by refused
	}
	check := func(field string, peers []networkingv1.NetworkPolicyPeer) {
		for i, p := range peers {
			if p.IPBlock != nil && !c.isOutside(p.IPBlock) {
				c.row(at).loosen(fmt.Sprintf("%s[%d].ipBlock", field, i), "under Cilium, a block matches no pods, and by default no nodes. Here it matches those with an address "+
					"in it: add the prefixes of pods and nodes to its except. With --cluster-cidr, only blocks with such addresses are named")
			}
		}
	}
	for i, r := range policy.Spec.Ingress {
		check(fmt.Sprintf("spec.ingress[%d].from", i), r.From)
	}
	for i, r := range policy.Spec.Egress {
		check(fmt.Sprintf("spec.egress[%d].to", i), r.To)
	}
}

// isOutside reports whether a block has no address of the cluster.
func (c *conversion) isOutside(b *networkingv1.IPBlock) bool {
	of, err := prefixes([]string{b.CIDR})
	except, errExcept := prefixes(b.Except)
	if err != nil || errExcept != nil {
		return false
	}
	known := false
	for _, p := range c.options.ClusterCIDRs {
		known = known || p.Addr().Is4() == of[0].Addr().Is4()
		covers := func(e netip.Prefix) bool { return e.Bits() <= p.Bits() && e.Overlaps(p) }
		if p.Overlaps(of[0]) && !slices.ContainsFunc(except, covers) {
			return false
		}
	}
	return known
}

// ownerOf returns the object of the input that became the object of a problem.
func ownerOf(owners map[Ref]int, of model.ObjectRef) (at int, found bool) {
	for ref, at := range owners {
		kind := ref.Kind
		if group := groupOf(ref.APIVersion); group == antrea.GroupName || group == antrea.NetNamespaceGroupName {
			kind += "." + group
		}
		if kind == of.Kind && ref.Name == of.Name && (ref.Namespace == of.Namespace || ref.Namespace == "" && of.Namespace == metav1.NamespaceDefault) {
			return at, true
		}
	}
	return 0, false
}
