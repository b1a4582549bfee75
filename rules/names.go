package rules

import (
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"strings"

	"github.com/felixlike/felixlike/model"
)

// Names of the static chains.
const (
	ChainForward    = "forward"
	ChainPrerouting = "prerouting"
	ChainEgress     = "judge-egress"
	ChainOutside    = "judge-outside"
	ChainToPods     = "to-pods"
	ChainSources    = "postrouting"
	ChainAllowed    = "allowed"
	ChainPassed     = "passed"
	ChainDeniedIn   = "denied-in"
	ChainDeniedOut  = "denied-out"
	ChainAllowedOut = "allowed-out"
	// Those of the backend whose policy is in the switch, besides.
	ChainFromSwitch  = "from-switch"
	ChainFromOutside = "from-outside"
	ChainRewritten   = "rewritten"

	ChainGuardForward    = "guard-forward"
	ChainGuardPrerouting = "guard-prerouting"
)

// nameHashLength is the number of base32 characters (40 bits) that keep
// shortened names apart.
const nameHashLength = 8

// DispatchMap returns the name of the verdict map (or the root of the prefix
// tree) from addresses of one family to the chains of one direction: Egress
// looks at the source of a packet, Ingress at its destination.
//
// Earlier versions had other names for what judges egress (from-pods,
// from-outside), whose chains went on to to-pods. Those here come back to
// forward, so neither may be programmed under a name of the other: an upgrade
// that takes several transactions has both until forward is switched.
func DispatchMap(d model.Direction, f model.Family) string {
	if d == model.Egress {
		return ChainEgress + "-" + f.String()
	}
	return "to-pods-" + f.String()
}

// PodNetworksSet returns the name of the set of all pod prefixes of the
// cluster in one family.
func PodNetworksSet(f model.Family) string { return "pod-networks-" + f.String() }

// HairpinSet returns the name of the set of this node's pods in one family, by
// which it is told that one of them reaches itself.
func HairpinSet(f model.Family) string { return "hairpin-" + f.String() }

// EgressSet returns the name of the set of this node's pods in one family that
// policy may keep from sending.
func EgressSet(f model.Family) string { return "egress-" + f.String() }

// PolicyChain returns the name of the chain with a policy's rules of one
// direction.
func (r *Renderer) PolicyChain(id model.PolicyID, d model.Direction) string {
	return r.name(prefixOf(id.Tier, d), policyLabel(id), id.String()+shape(d))
}

// AppliedChain returns the name of the chain for all endpoints to which
// exactly these policies apply in the direction.
func (r *Renderer) AppliedChain(d model.Direction, a model.Applied) string {
	all := make([]model.PolicyID, 0, len(a.Admin)+len(a.NetworkPolicies)+len(a.Baseline))
	all = append(append(append(all, a.Admin...), a.NetworkPolicies...), a.Baseline...)
	label := ""
	if len(all) > 0 {
		label = policyLabel(all[0])
	}
	if len(all) > 1 {
		label += fmt.Sprintf("_%dmore", len(all)-1)
	}
	var identity strings.Builder
	for _, id := range all {
		// A zero byte cannot occur in names, so lists cannot run together.
		identity.WriteString(id.String() + "\x00")
	}
	prefix := "pods-in"
	if d == model.Egress {
		prefix = "pods-out"
	}
	return r.name(prefix, label, identity.String()+shape(d))
}

// shape makes the names of egress chains differ from those of versions whose
// egress chains went on to to-pods (see DispatchMap).
func shape(d model.Direction) string {
	if d == model.Egress {
		return "\x00returns"
	}
	return ""
}

func policyLabel(id model.PolicyID) string {
	if id.Namespace == "" {
		return id.Name
	}
	return id.Namespace + "/" + id.Name
}

func prefixOf(t model.Tier, d model.Direction) string {
	letter := map[model.Tier]string{model.TierAdmin: "a", model.TierNetworkPolicy: "p", model.TierBaseline: "b"}[t]
	if d == model.Egress {
		return letter + "out"
	}
	return letter + "in"
}

// treeChain returns the name of the chain of a dispatch tree for the keys with
// a prefix. Chain names stand unquoted in commands, so what is neither a letter
// nor a digit nor one of "-_./" is written otherwise; the colons of addresses
// are dots. Of too long a prefix the end is kept: what tells the prefixes of a
// tree apart is there.
func (r *Renderer) treeChain(d model.Direction, prefix string) string {
	start, changed := "to", false
	if d == model.Egress {
		start = "from"
	}
	label := strings.Map(func(c rune) rune {
		switch {
		case c == ':':
			return '.'
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', strings.ContainsRune("-_./", c):
			return c
		}
		changed = true
		return '_'
	}, prefix)
	if room := r.maxName - len(start) - 1; changed || len(label) > room {
		room -= nameHashLength + 1
		return r.name(start, label[max(0, len(label)-room):], prefix)
	}
	return start + "-" + label
}

// name joins prefix, label and a hash of the identity, with the label cut so
// that the whole fits the driver's limit.
func (r *Renderer) name(prefix, label, identity string) string {
	sum := sha256.Sum256([]byte(prefix + "\x00" + identity))
	hash := strings.ToLower(base32.StdEncoding.EncodeToString(sum[:]))[:nameHashLength]
	room := r.maxName - len(prefix) - len(hash) - 2
	if len(label) > room {
		label = label[:room]
	}
	return prefix + "-" + label + "-" + hash
}
