package rules

import (
	"crypto/sha256"
	"encoding/base64"
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
	ChainNoService  = "no-service"
	// Chains of packets that policy rejects.
	ChainRejectedIn  = "rejected-in"
	ChainRejectedOut = "rejected-out"
	ChainAnswer      = "answer"
	ChainAllowedOut  = "allowed-out"
	ChainCommonIn    = "common-in"
	ChainCommonOut   = "common-out"
	// Chains of pods whose policies are in grants (Granted).
	ChainGrantedIn  = "granted-in"
	ChainGrantedOut = "granted-out"
	// Further chains of the backend that judges in the switch.
	ChainFromSwitch  = "from-switch"
	ChainFromOutside = "from-outside"
	ChainRewritten   = "rewritten"

	// ChainInput and ChainOwnNode judge packets of pods to their own node, under every
	// backend.
	ChainInput   = "input"
	ChainOwnNode = "judge-own-node"

	// ChainSenders is in a table of its own (Senders).
	ChainSenders = "senders"
	// ChainCleartext is in the same table (Cleartext).
	ChainCleartext = "cleartext"

	// These chains are in a table of their own (PodSources).
	ChainPodSources = "pod-sources"
	ChainNeighbours = "neighbours"
	ChainUnmarked   = "unmarked"
	ChainUnjudged   = "unjudged"

	// This chain is in a table of the family bridge (Frames).
	ChainFrames = "frames"

	// ChainUntranslated is behind the translation of sources (Sources, Host).
	ChainUntranslated = "untranslated"

	// These chains are in a table of their own (Egress).
	ChainEgressDrops   = "egress-drops"
	ChainEgressSources = "egress-sources"
	ChainEgressWays    = "egress-ways"
	ChainEgressAway    = "egress-away"
	ChainEgressBack    = "egress-back"
	ChainEgressGuard   = "egress-guard"

	// These chains are in a table of their own (Tunnel).
	ChainTunnel         = "tunnel"
	ChainTunnelPassed   = "tunnel-passed"
	ChainTunnelReceived = "tunnel-received"
	ChainTunnelSent     = "tunnel-sent"

	ChainGuardForward    = "guard-forward"
	ChainGuardPrerouting = "guard-prerouting"
	ChainGuardInput      = "guard-input"
)

// A chain's name depends only on the identity of its object: API group, kind,
// namespace, name, and direction. So names are the same in any order of updates and
// after a restart, and later objects do not change them. Only the width of the hash
// prevents collisions. Under nftables a collision cannot be computed. Names of iptables have
// 28 bytes: two colliding objects take 2^45 tries, a collision with a given object
// takes 2^90. So Claims compares whole identities, and the second object of a name
// gets no chain.
const (
	// nameHash is the length of the hash in base64: 162 bits.
	nameHash = 27
	// shortNameHash is the length for IPTablesNameLength: 90 bits. It leaves three
	// characters for a label.
	shortNameHash = 15
)

// IPTablesNameLength is the length of chain names for iptables: xtables takes
// 28 bytes (XT_EXTENSION_MAXNAMELEN with the terminating zero), of which the
// driver's prefix needs four.
const IPTablesNameLength = 24

// NFTablesNameLength is the length of chain names for nftables: the kernel
// takes 255 bytes, people less.
const NFTablesNameLength = 64

// Names makes the names of chains for a driver.
type Names struct {
	// maxName is the longest name in bytes. hash and label are the lengths of a name's hash
	// and of its readable part, the latter at most.
	maxName, hash, label int
}

func newNames(maxName int) Names {
	n := Names{maxName: max(maxName, IPTablesNameLength), hash: nameHash}
	if !n.long() {
		n.hash = shortNameHash
	}
	n.label = n.maxName
	return n
}

// long reports whether names are as long as nftables takes them.
func (n Names) long() bool { return n.maxName >= NFTablesNameLength }

// DispatchMap returns the name of the verdict map, or of the root of the prefix
// tree, from addresses of one family to the chains of one direction: Egress
// looks at the source of a packet, Ingress at its destination.
//
// Earlier versions named the chains of egress from-pods and from-outside; these
// went on to to-pods. Today's chains return to forward. The names must differ, since
// an upgrade in several transactions has both kinds until forward changes.
func DispatchMap(d model.Direction, f model.Family) string {
	if d == model.Egress {
		return ChainEgress + "-" + f.String()
	}
	return "to-pods-" + f.String()
}

// PodNetworksSet returns the name of the set of all pod prefixes of the
// cluster in one family.
func PodNetworksSet(f model.Family) string { return "pod-networks-" + f.String() }

// PeersSet returns the name of the set of the pod prefixes and addresses of all peer nodes in one family.
func PeersSet(f model.Family) string { return "peers-" + f.String() }

// NodesSet returns the name of the set of the addresses of all nodes in one family.
func NodesSet(f model.Family) string { return "nodes-" + f.String() }

// HairpinSet returns the name of the set of this node's pods in one family. Rules use
// it to recognise packets of a pod to itself.
func HairpinSet(f model.Family) string { return "hairpin-" + f.String() }

// EgressSet returns the name of the set of this node's pods in one family that
// policy may keep from sending.
func EgressSet(f model.Family) string { return "egress-" + f.String() }

// OwnNodeSet returns the name of the set of this node's pods in one family that the ordered
// tiers judge on the way to this node. Only nftables has it.
func OwnNodeSet(f model.Family) string { return "own-node-" + f.String() }

// PolicyChain returns the name of the chain with a policy's rules of one
// direction.
func (n Names) PolicyChain(id model.PolicyID, d model.Direction) string {
	return n.name(prefixOf(id.Tier, d), policyLabel(id), id.Identity()+shape(d))
}

// AppliedChain returns the name of the chain for all endpoints to which
// exactly these policies apply in the direction.
func (n Names) AppliedChain(d model.Direction, a model.Applied) string {
	return n.AppliedChainBy(AppliedIdentity(d, a), d, a)
}

// AppliedChainBy is AppliedChain for a caller that has the AppliedIdentity.
func (n Names) AppliedChainBy(identity string, d model.Direction, a model.Applied) string {
	label, more := "", -1
	for id := range a.All() {
		if more++; more == 0 {
			label = policyLabel(id)
		}
	}
	if more > 0 {
		label += fmt.Sprintf("_%dmore", more)
	}
	prefix := "in"
	if d == model.Egress {
		prefix = "out"
	}
	if n.long() {
		prefix = "pods-" + prefix
	}
	return n.name(prefix, label, identity+shape(d))
}

// ownNodeChain returns the name of the chain that asks the ordered tiers about packets to
// the own node.
func (n Names) ownNodeChain(a model.Applied) string {
	label := ""
	for id := range a.All() {
		label = policyLabel(id)
		break
	}
	return n.name("own", label, AppliedIdentity(model.Egress, a))
}

// AppliedIdentity returns the unique identity of a list of policies: the direction and
// the identities of the policies.
func AppliedIdentity(d model.Direction, a model.Applied) string {
	identity := append(make([]byte, 0, 1024), d.String()...) // ten policies
	for id := range a.All() {
		// Fields of an identity end with a zero byte, so lists cannot run together.
		identity = id.AppendIdentity(append(identity, 0))
	}
	return string(identity)
}

// shape makes the names of egress chains differ from those of earlier versions, in
// which egress chains went on to to-pods (see DispatchMap).
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

func directionLabel(d model.Direction) string {
	if d == model.Egress {
		return "out"
	}
	return "in"
}

// adminChain returns the name of the chain with a list of policies of the admin tier.
func (n Names) adminChain(d model.Direction, ids []model.PolicyID) string {
	return n.name("t"+directionLabel(d), policyLabel(ids[0]), AppliedIdentity(d, model.Applied{Admin: ids}))
}

// partSet returns the name of a part's sets, made from the name of its chain. Names of
// ipset have at most 31 characters, so the version replaces the readable label.
func (n Names) partSet(chain string) string {
	if n.long() {
		return chain
	}
	prefix, _, _ := strings.Cut(chain, "-")
	return prefix + "-" + chain[len(chain)-n.hash:]
}

// treeChain returns the name of the chain of a dispatch tree for the keys with a prefix. It
// has the prefix as text, or in base64 if the text is too long or has characters that
// commands need quoted. Different prefixes have different names.
func (n Names) treeChain(d model.Direction, label string, bytes []byte) string {
	start := "to"
	if d == model.Egress {
		start = "from"
	}
	if name := start + "-" + label; len(name) <= n.maxName && !strings.ContainsFunc(label, unfit) {
		return name
	}
	return start[:1] + "-" + base64.RawURLEncoding.EncodeToString(bytes)
}

// unfit reports whether the name of a chain must not have the character.
func unfit(c rune) bool {
	return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune("-_./", c)
}

// name joins prefix, label and a hash of the identity. It shortens the label to the
// driver's limit of the whole name.
func (n Names) name(prefix, label, identity string) string {
	sum := sha256.Sum256([]byte(prefix + "\x00" + identity))
	hash := base64.RawURLEncoding.EncodeToString(sum[:])[:n.hash]
	label = label[:min(len(label), n.label, n.maxName-len(prefix)-len(hash)-2)]
	return prefix + "-" + label + "-" + hash
}
