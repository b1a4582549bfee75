package migrate

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/felixlike/felixlike/felixlike/antrea"
)

// convert converts the objects of the input together.
func convert(documents []document, options Options) (*Result, error) {
	c := &conversion{options: options, notes: map[string]bool{}}
	all, err := c.choose(documents)
	if err != nil {
		return nil, err
	}
	c.fromCilium = slices.ContainsFunc(all, func(d document) bool { return isCilium(d.ref) })
	if slices.ContainsFunc(all, func(d document) bool { return isCalico(d.ref, "NetworkPolicy", "GlobalNetworkPolicy", "HostEndpoint") }) {
		if c.fromCilium {
			return nil, errors.New("the input has policies of Calico and of Cilium: convert them one after the other")
		}
		c.calico(all)
	}
	for i, d := range all {
		switch {
		case isCalico(d.ref, "NetworkPolicy", "GlobalNetworkPolicy", "NetworkSet", "GlobalNetworkSet", "Tier", "HostEndpoint"):
		case isCalico(d.ref, "FelixConfiguration"):
			failsafe(c, i, d)
		case isCilium(d.ref):
			c.cilium(i, d)
		case isAdminPolicy(d.ref):
			if err := c.admin(i, d); err != nil {
				return nil, err
			}
		case isTaken(d.ref):
			if err := c.keep(i, d.raw); err != nil {
				return nil, err
			}
			if isEgressPolicy(d.ref) {
				c.note(noteIsolation)
			}
			if c.fromCilium && d.ref.APIVersion == networkingv1.SchemeGroupVersion.String() {
				c.foreignBlocks(i, d.raw)
			}
		case isPolicy(d.ref) || isCalico(d.ref, "Profile"):
			c.row(i).refuse("kind", "%s of %s has no counterpart", d.ref.Kind, d.ref.APIVersion)
		default:
			// A tier or a group has no verdicts of its own. The policies that use it are named.
			c.row(i).lose("kind", "%s of %s has no counterpart", d.ref.Kind, d.ref.APIVersion)
		}
	}
	owners := map[Ref]int{}
	for i, o := range c.result.Objects {
		for _, ref := range o.Becomes {
			if other, taken := owners[ref]; taken {
				return nil, fmt.Errorf("%s and %s both become %s: rename one", c.row(other).Object, o.Object, ref)
			}
			owners[ref] = i
		}
	}
	return &c.result, c.refused(owners)
}

// choose returns the objects of the input that are converted, and makes a row of the result for each.
func (c *conversion) choose(documents []document) ([]document, error) {
	var all []document
	seen := map[Ref]bool{}
	for _, d := range documents {
		if !concerns(d.ref) {
			continue
		}
		if isCalico(d.ref, "NetworkPolicy") && strings.HasPrefix(d.ref.Name, "knp.default.") {
			c.note(noteCopies)
			continue
		}
		if isCalico(d.ref, "StagedNetworkPolicy", "StagedGlobalNetworkPolicy", "StagedKubernetesNetworkPolicy") {
			c.note(noteStaged)
			continue
		}
		if seen[d.ref] {
			return nil, fmt.Errorf("%s is twice in the input", d.ref)
		}
		seen[d.ref] = true
		all = append(all, d)
		c.result.Objects = append(c.result.Objects, Object{Object: d.ref})
	}
	if len(all) == 0 {
		return nil, errors.New("the input has no policy of Calico, Cilium, Antrea, OpenShift SDN or Kubernetes")
	}
	return all, nil
}

// concerns reports whether an object of the input is about policy.
func concerns(r Ref) bool {
	if isPolicy(r) {
		return true
	}
	switch groupOf(r.APIVersion) {
	case "projectcalico.org", "crd.projectcalico.org":
		return slices.Contains([]string{"NetworkSet", "GlobalNetworkSet", "HostEndpoint", "Profile", "FelixConfiguration"}, r.Kind) || r.Kind == "Tier" && !slices.Contains(ownTiers, r.Name)
	case "cilium.io":
		return r.Kind == "CiliumCIDRGroup"
	case antrea.GroupName:
		return strings.HasSuffix(r.Kind, "Group") || r.Kind == "Tier"
	}
	return false
}

// isPolicy reports whether a kind is one of policies, whatever its API group, and also if its case is wrong.
func isPolicy(r Ref) bool { return strings.HasSuffix(strings.ToLower(r.Kind), "networkpolicy") }

// isTaken reports whether felixlike reads the kind.
func isTaken(r Ref) bool {
	switch r.APIVersion {
	case "networking.k8s.io/v1":
		return r.Kind == "NetworkPolicy"
	case "policy.networking.k8s.io/v1alpha2":
		return r.Kind == "ClusterNetworkPolicy"
	case antrea.GroupVersion().String():
		return slices.ContainsFunc(antrea.Kinds(), func(k antrea.Kind) bool { return k.String() == r.Kind })
	}
	return isEgressPolicy(r)
}

// noteIsolation is about EgressNetworkPolicies.
const noteIsolation = "EgressNetworkPolicies are taken as they are. The agents read them only with isolation: namespaces; without it, what they deny is allowed."

// isEgressPolicy reports whether an object is an EgressNetworkPolicy of OpenShift SDN.
func isEgressPolicy(r Ref) bool {
	kind := antrea.KindEgressNetworkPolicy
	return r.APIVersion == kind.GroupVersion().String() && r.Kind == kind.String()
}
