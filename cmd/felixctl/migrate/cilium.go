package migrate

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/felixlike/felixlike/felixlike/antrea"
	"github.com/felixlike/felixlike/felixlike/datastore/strict"
)

// ciliumAllow is added to the priority of rules that allow: in Cilium, a rule that denies wins over all of them. Each
// policy has a priority of its own, since felixlike reports equal ones.
const ciliumAllow = lastPriority / 2

const (
	noteOutside = "Prefixes and the entity world of Cilium do not match pods and nodes of the cluster: the prefixes of --cluster-cidr are left out of them. " +
		"They must cover all pods and nodes, and nothing else: a Deny leaves them out too."
	noteSettings = "The conversion is right for Cilium with policyEnforcementMode default, without policyCIDRMatchMode, with localhost always allowed, and with the default labels of identities (the defaults)."
)

func isCilium(r Ref) bool {
	return r.APIVersion == "cilium.io/v2" && (r.Kind == "CiliumNetworkPolicy" || r.Kind == "CiliumClusterwideNetworkPolicy")
}

// cilium converts a policy of Cilium.
func (c *conversion) cilium(at int, d document) {
	c.note(noteSettings)
	row := c.row(at)
	for _, name := range d.others {
		row.refuse(name, "has no counterpart")
	}
	entries := map[string]json.RawMessage{}
	var order []string
	if len(d.spec) > 0 {
		entries["spec"], order = d.spec, append(order, "spec")
	}
	var specs []json.RawMessage
	if len(d.specs) > 0 {
		if err := json.Unmarshal(d.specs, &specs); err != nil {
			row.refuse("specs", "not a list")
		}
	}
	for i, s := range specs {
		field := fmt.Sprintf("specs[%d]", i)
		entries[field], order = s, append(order, field)
	}
	var objects []metav1.Object
	for i, field := range order {
		if c.policies++; c.policies > ciliumAllow {
			row.refuse(field, "more than %d policies", ciliumAllow)
			return
		}
		out := &converted{priority: float64(c.policies), origin: row.Object, namespace: d.ref.Namespace, name: "cilium-" + d.ref.Name}
		if d.ref.Kind == "CiliumNetworkPolicy" && out.namespace == "" {
			out.namespace = metav1.NamespaceDefault
		}
		if i > 0 {
			out.name = fmt.Sprintf("%s-spec%d", out.name, i)
		}
		r := ciliumRules{c: c, row: row, field: field, scope: ciliumScope{out.namespace}, priority: out.priority}
		if r.entry(entries[field], out) {
			objects = append(objects, out.render()...)
		}
		if r.refused {
			return
		}
	}
	if len(order) == 0 {
		row.refuse("spec", "required")
	}
	c.emit(at, objects)
}

// ciliumRules converts one entry of a policy.
type ciliumRules struct {
	c     *conversion
	row   *Object
	field string
	scope ciliumScope
	// priority is that of the entry.
	priority float64
	// refused: the object cannot be converted.
	refused bool
}

func (r *ciliumRules) refuse(field, format string, args ...any) {
	r.row.refuse(strings.TrimSuffix(r.field+"."+field, "."), format, args...)
	r.refused = true
}

// entry converts an entry. It reports whether there is something to render.
func (r *ciliumRules) entry(raw json.RawMessage, out *converted) bool {
	var spec ciliumSpec
	for _, fault := range strict.Decode(raw, &spec) {
		r.refuse(fault.Field, "%s", reasonOf(fault))
	}
	if r.refused {
		return false
	}
	if spec.EndpointSelector == nil {
		r.refuse("endpointSelector", "required")
		return false
	}
	s, err := r.scope.selection(*spec.EndpointSelector, false)
	if err == nil && out.namespace != "" && s.namespaces != nil {
		err = fmt.Errorf("a selector of namespaces inside the namespace of the policy has no counterpart")
	}
	if err != nil {
		r.refuse("endpointSelector", "%v", err)
		return false
	}
	out.subjects = []selection{s}
	out.ingress = r.direction(spec.Ingress, spec.IngressDeny, spec.EnableDefaultDeny.Ingress, "ingress", out.namespace)
	out.egress = r.direction(spec.Egress, spec.EgressDeny, spec.EnableDefaultDeny.Egress, "egress", out.namespace)
	return !r.refused
}

// direction converts the rules of a direction. A direction with rules isolates, unless the policy says otherwise.
func (r *ciliumRules) direction(allow, deny []json.RawMessage, isolates *bool, name, namespace string) direction {
	out := direction{isolates: len(allow)+len(deny) > 0}
	if isolates != nil {
		out.isolates = *isolates
	}
	if denies := r.rules(deny, name, antrea.Drop); len(denies) > 0 {
		out.parts = append(out.parts, part{suffix: "-deny", priority: r.priority, rules: denies})
	}
	var ordered []rule
	for _, a := range r.rules(allow, name, antrea.Allow) {
		if namespace == "" || !out.isolates || a.needsAntrea() {
			ordered = append(ordered, a)
		} else {
			out.allows = append(out.allows, a)
		}
	}
	if len(ordered) > 0 {
		out.parts = append(out.parts, part{priority: ciliumAllow + r.priority, rules: ordered})
	}
	return out
}

func (r *ciliumRules) rules(all []json.RawMessage, name string, action antrea.Action) []rule {
	var out []rule
	deny := action != antrea.Allow
	for i, raw := range all {
		field := fmt.Sprintf("%s[%d]", name, i)
		if deny {
			field = fmt.Sprintf("%sDeny[%d]", name, i)
		}
		if requires(raw) {
			// Requirements add no peers, and bind the rules of all policies (IngressRule in pkg/policy/api/ingress.go of Cilium).
			r.refuse(field, "fromRequires and toRequires have no counterpart, and restrict the rules of all policies")
			continue
		}
		one, err := r.rule(raw, name == "egress", deny)
		switch {
		case err == nil:
			one.action = action
			out = append(out, one)
			if one.onlyDNS {
				r.row.loosen(r.field+"."+field, "rules.dns is left out: Cilium lets only DNS pass to these ports; what it converts to lets everything pass to them")
			}
			if deny && name == "ingress" && one.matchesNodes() {
				r.row.loosen(r.field+"."+field, "packets from a pod's own node to the pod always pass; this rule denies them")
			}
		case deny:
			r.refuse(field, "%v, and the rule denies", err)
		default:
			r.row.lose(r.field+"."+field, "%v; the rule is left out: its packets are denied unless another rule allows them", err)
		}
	}
	return withoutEmpty(out)
}

// requires reports whether a rule has requirements.
func requires(raw json.RawMessage) bool {
	var members map[string]json.RawMessage
	if json.Unmarshal(raw, &members) != nil {
		return false
	}
	_, from := members["fromRequires"]
	_, to := members["toRequires"]
	return from || to
}

// ciliumScope is where selectors of a policy select: in its namespace, or in all for a clusterwide policy.
type ciliumScope struct{ namespace string }

const (
	ciliumNamespace       = "io.kubernetes.pod.namespace"
	ciliumNamespacePrefix = "io.cilium.k8s.namespace.labels."
)

// isNoIdentity reports whether Cilium by default ignores a label of pods:
// https://docs.cilium.io/en/stable/operations/performance/scalability/identity-relevant-labels/.
func isNoIdentity(key string) bool {
	return strings.Contains(key, "beta.kubernetes.io") || slices.ContainsFunc([]string{
		"io.kubernetes", "kubernetes.io", "k8s.io", "statefulset.kubernetes.io/pod-name", "apps.kubernetes.io/pod-index",
		"batch.kubernetes.io/job-completion-index", "batch.kubernetes.io/controller-uid", "pod-template-generation", "pod-template-hash",
		"controller-revision-hash", "annotation", "controller-uid", "etcd_node",
	}, func(ignored string) bool { return strings.HasPrefix(key, ignored) })
}

// needsLabel reports whether a requirement holds only where the label is.
func needsLabel(r metav1.LabelSelectorRequirement) bool {
	return r.Operator == metav1.LabelSelectorOpIn || r.Operator == metav1.LabelSelectorOpExists
}

// selection returns the pods that a selector of Cilium selects. A selector that names no namespace selects in the
// namespace of the policy.
func (s ciliumScope) selection(in metav1.LabelSelector, peer bool) (selection, error) {
	var all, pods, namespaces term
	hasNamespace := false
	for key, value := range in.MatchLabels {
		all = append(all, metav1.LabelSelectorRequirement{Key: key, Operator: metav1.LabelSelectorOpIn, Values: []string{value}})
	}
	slices.SortFunc(all, func(a, b metav1.LabelSelectorRequirement) int { return strings.Compare(a.Key, b.Key) })
	for _, r := range append(all, in.MatchExpressions...) {
		if source, key, has := strings.Cut(r.Key, ":"); has {
			if source != "k8s" && source != "any" {
				return selection{}, fmt.Errorf("label %s has no counterpart: only labels of Kubernetes have one", r.Key)
			}
			r.Key = key
		}
		name, ofNamespace := strings.CutPrefix(r.Key, ciliumNamespacePrefix)
		switch {
		case r.Key == ciliumNamespace:
			hasNamespace = true
			r.Key = kubernetesName
			namespaces = append(namespaces, r)
		case ofNamespace:
			r.Key = name
			namespaces = append(namespaces, r)
		case strings.HasPrefix(r.Key, "io.cilium."):
			return selection{}, fmt.Errorf("label %s has no counterpart", r.Key)
		case isNoIdentity(r.Key):
			return selection{}, fmt.Errorf("label %s has no counterpart: Cilium leaves it out of identities by default, so no pod has it there", r.Key)
		default:
			pods = append(pods, r)
		}
	}
	// Cilium then adds no label that only pods have: https://github.com/cilium/cilium/blob/main/pkg/k8s/apis/cilium.io/utils/utils.go.
	if unbound := hasNamespace || s.namespace != "" && len(namespaces) > 0; peer && unbound && !slices.ContainsFunc(slices.Concat(pods, namespaces), needsLabel) {
		return selection{}, errors.New("a selector of namespaces that only excludes has no counterpart: it also matches nodes and addresses outside the cluster")
	}
	out := selection{pods: pods.selector()}
	if s.namespace == "" || len(namespaces) > 0 {
		out.namespaces = namespaces.selector()
	}
	return out, nil
}
