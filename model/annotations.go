package model

// Annotations of NetworkPolicies and ClusterNetworkPolicies.
const (
	// LogAnnotation names the rules that log: "true" for all, or a comma-separated list of
	// actions.
	LogAnnotation = "felixlike.io/log"
	// LogLabelAnnotation is a text that comes with each line.
	LogLabelAnnotation = "felixlike.io/log-label"
)

// PolicyAnnotations returns the names of all of them.
func PolicyAnnotations() []string { return []string{LogAnnotation, LogLabelAnnotation} }
