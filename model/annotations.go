package model

// Annotations of NetworkPolicies and ClusterNetworkPolicies.
const (
	// LogAnnotation names the rules that log: "true" for all, or a comma-separated list of
	// actions.
	LogAnnotation = "felixlike.io/log"
	// LogLabelAnnotation is a text that comes with each line.
	LogLabelAnnotation = "felixlike.io/log-label"
	// DenyActionAnnotation is the action of the Deny rules of a ClusterNetworkPolicy:
	// "drop", which is the default, or "reject".
	DenyActionAnnotation = "felixlike.io/deny-action"
	// PreDNATAnnotation is "true" on a policy for nodes that is judged before DNAT: the default is "false".
	PreDNATAnnotation = "felixlike.io/pre-dnat"
	// UntrackedAnnotation is refused: Calico has policies for packets without a connection.
	UntrackedAnnotation = "felixlike.io/untracked"
	// EnforceAnnotation is "no" on a staged policy: it is not enforced, and connections are judged as if it were. The default is "yes".
	EnforceAnnotation = "felixlike.io/enforce"
	// JoinedAnnotation is the number with which a NetNamespace was joined to another one on purpose.
	JoinedAnnotation = "isolation.felixlike.io/joined"
)

// PublicKeyAnnotation is the annotation of a Node with the public key of its WireGuard device. Peers encrypt to it, and
// believe packets that its private key has encrypted.
const PublicKeyAnnotation = "felixlike.io/wireguard-public-key"

// PolicyAnnotations returns the names of all of them.
func PolicyAnnotations() []string {
	return []string{LogAnnotation, LogLabelAnnotation, DenyActionAnnotation, PreDNATAnnotation, UntrackedAnnotation, EnforceAnnotation, JoinedAnnotation}
}
