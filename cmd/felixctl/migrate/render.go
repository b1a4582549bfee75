package migrate

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/felixlike/felixlike/felixlike/antrea"
	"github.com/felixlike/felixlike/model"
)

// OriginAnnotation names the original of a converted object.
const OriginAnnotation = "felixlike.io/converted-from"

// lastPriority is the greatest priority of a policy of Antrea's API, and the number of different whole ones.
const lastPriority = 10000

// render returns the objects of a policy: NetworkPolicies of Kubernetes for rules that they can say, and to isolate pods of a
// namespace. Antrea's policies for rules with an order, and, in the baseline tier, to isolate pods of all namespaces.
func (p *converted) render() []metav1.Object {
	var all []metav1.Object
	if p.namespace != "" {
		all = p.kubernetes()
	}
	suffixes := map[string]*antrea.PolicySpec{}
	var order []string
	add := func(egress bool, d direction) {
		for _, part := range d.parts {
			if len(part.rules) == 0 {
				continue
			}
			spec := suffixes[part.suffix]
			if spec == nil {
				spec = &antrea.PolicySpec{Tier: p.tier, Priority: part.priority, AppliedTo: p.appliedTo()}
				suffixes[part.suffix], order = spec, append(order, part.suffix)
			}
			if egress {
				spec.Egress = antreaRules(part.rules, true)
			} else {
				spec.Ingress = antreaRules(part.rules, false)
			}
		}
	}
	add(false, p.ingress)
	add(true, p.egress)
	for _, suffix := range order {
		all = append(all, p.antrea(suffix, *suffixes[suffix]))
	}
	if p.namespace == "" && (p.ingress.isolates || p.egress.isolates) {
		spec := antrea.PolicySpec{Tier: "baseline", Priority: p.priority, AppliedTo: p.appliedTo()}
		if p.ingress.isolates {
			spec.Ingress = []antrea.Rule{{Action: antrea.Drop}}
		}
		if p.egress.isolates {
			spec.Egress = []antrea.Rule{{Action: antrea.Drop}}
		}
		all = append(all, p.antrea("-isolate", spec))
	}
	return all
}

func (p *converted) meta(suffix string) metav1.ObjectMeta {
	meta := metav1.ObjectMeta{
		Namespace: p.namespace, Name: shortened(p.name + suffix),
		Annotations: map[string]string{OriginAnnotation: p.origin.String()},
	}
	if p.preDNAT {
		meta.Annotations[model.PreDNATAnnotation] = "true"
	}
	return meta
}

// shortened returns a name that the API server takes: a longer one ends in a hash of the whole.
func shortened(name string) string {
	if len(name) <= validation.DNS1123SubdomainMaxLength {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	end := "-" + hex.EncodeToString(sum[:4])
	return strings.TrimRight(name[:validation.DNS1123SubdomainMaxLength-len(end)], ".-") + end
}

// kubernetes returns a NetworkPolicy for each subject.
func (p *converted) kubernetes() []metav1.Object {
	if !p.ingress.isolates && !p.egress.isolates {
		return nil
	}
	var all []metav1.Object
	for i, s := range p.subjects {
		suffix := ""
		if i > 0 {
			suffix = fmt.Sprintf("-%d", i+1)
		}
		np := &networkingv1.NetworkPolicy{
			TypeMeta:   metav1.TypeMeta{APIVersion: networkingv1.SchemeGroupVersion.String(), Kind: "NetworkPolicy"},
			ObjectMeta: p.meta(suffix), Spec: networkingv1.NetworkPolicySpec{PodSelector: *s.pods},
		}
		if p.ingress.isolates {
			np.Spec.PolicyTypes = append(np.Spec.PolicyTypes, networkingv1.PolicyTypeIngress)
			for _, r := range p.ingress.allows {
				np.Spec.Ingress = append(np.Spec.Ingress, networkingv1.NetworkPolicyIngressRule{From: kubernetesPeers(r), Ports: r.ports})
			}
		}
		if p.egress.isolates {
			np.Spec.PolicyTypes = append(np.Spec.PolicyTypes, networkingv1.PolicyTypeEgress)
			for _, r := range p.egress.allows {
				np.Spec.Egress = append(np.Spec.Egress, networkingv1.NetworkPolicyEgressRule{To: kubernetesPeers(r), Ports: r.ports})
			}
		}
		all = append(all, np)
	}
	return all
}

func (p *converted) appliedTo() []antrea.AppliedTo {
	var all []antrea.AppliedTo
	for _, s := range p.subjects {
		all = append(all, antrea.AppliedTo{PodSelector: s.pods, NamespaceSelector: s.namespaces})
	}
	for _, n := range p.nodes {
		all = append(all, antrea.AppliedTo{NodeSelector: n})
	}
	return all
}

func (p *converted) antrea(suffix string, spec antrea.PolicySpec) metav1.Object {
	version := antrea.GroupVersion().String()
	if p.namespace == "" {
		return &antrea.ClusterNetworkPolicy{
			TypeMeta:   metav1.TypeMeta{APIVersion: version, Kind: antrea.KindClusterNetworkPolicy.String()},
			ObjectMeta: p.meta(suffix), Spec: spec,
		}
	}
	return &antrea.NetworkPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: version, Kind: antrea.KindNetworkPolicy.String()},
		ObjectMeta: p.meta(suffix), Spec: spec,
	}
}
